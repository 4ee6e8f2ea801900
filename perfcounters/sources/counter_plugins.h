// Where the libraries of the folder `counters` lie: libgable_cupti.so, libgable_listen.so. They have their own folder,
// since the loader treats every libgable_*.so beside the backends as a backend.
#pragma once

#include <string>

namespace gable::perf {

struct CounterPlugin {
  std::string file;    ///< absolute path; empty: it was not found
  std::string looked;  ///< the folders that were searched, separated by ", "
};

/// Searches the folder `counters` of each folder in GABLE_BACKEND_PATH, of the build tree and of the installed tree. In
/// a program of others the trees are found from libgable_measure.so.
CounterPlugin find_counter_plugin(const char* name);

}  // namespace gable::perf
