// What this gable is made of, for `gable info --json`: the libraries that it was compiled with and those that the
// process has loaded, so that a report of a fault in one of them finds the builds that have it.
#pragma once

#include <string>
#include <vector>

namespace gable::bench {

struct Dependency {
  std::string name;     ///< "fmt"
  std::string version;  ///< "9.1.0"
  std::string license;  ///< SPDX
};

/// At compile time: the headers and the compiler.
std::vector<Dependency> dependencies();

/// The files of the shared libraries in this process. Plugins and what they need are among them once devices() was
/// called.
std::vector<std::string> loaded_libraries();

}  // namespace gable::bench
