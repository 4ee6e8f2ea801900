// Times that the scheduler took a core from this process's threads for another program.
#pragma once

#include <sys/resource.h>

namespace gable {

/// How often that happened so far. A run during which the number changes took longer than the code does.
inline long interruptions() {
  struct rusage usage {};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : 0;
}

}  // namespace gable
