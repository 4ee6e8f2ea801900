// C++ names of kernels for people.
#pragma once

#include <string>

namespace gable::cupti {

/// "_Z4axpyfPf" -> "axpy(float, float*)"; a name that is not mangled stays as it is.
std::string demangled(const char* name);

}  // namespace gable::cupti
