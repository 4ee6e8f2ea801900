// See dependencies.h.
#include "bench/cli/dependencies.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <hwy/highway.h>
#include <link.h>

#include <CLI/Version.hpp>
#include <nlohmann/json.hpp>

namespace gable::bench {
namespace {

std::string compiler() {
#if defined(__clang__)
  return __clang_version__;
#else
  return __VERSION__;
#endif
}

}  // namespace

std::vector<Dependency> dependencies() {
  return {
    {"highway", fmt::format("{}.{}.{}", HWY_MAJOR, HWY_MINOR, HWY_PATCH), "Apache-2.0 OR BSD-3-Clause"},
        {"fmt", fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100), "MIT"},
        {"nlohmann-json",
         fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH),
         "MIT"},
        {"CLI11", CLI11_VERSION, "BSD-3-Clause"},
        {"glibc", fmt::format("{}, built with {}.{}", gnu_get_libc_version(), __GLIBC__, __GLIBC_MINOR__),
         "LGPL-2.1-or-later"},
        {"libstdc++", std::to_string(_GLIBCXX_RELEASE), "GPL-3.0-or-later WITH GCC-exception-3.1"},
#if defined(__clang__)
        {"clang", compiler(), "Apache-2.0 WITH LLVM-exception"},
#else
        {"gcc", compiler(), "GPL-3.0-or-later WITH GCC-exception-3.1"},
#endif
  };
}

std::vector<std::string> loaded_libraries() {
  std::vector<std::string> files;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* all) {
        const std::string file = info->dlpi_name;
        if (!file.empty()) static_cast<std::vector<std::string>*>(all)->push_back(file);
        return 0;
      },
      &files);
  return files;
}

}  // namespace gable::bench
