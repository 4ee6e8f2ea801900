// Runs last in its executable (doctest orders by file name): every dispatch path of the CUDA kernels that this GPU has
// must have run in the tests before.
#include <doctest/doctest.h>

#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "tests/cuda/plugin_coverage.h"
#include "tests/tools/expect.h"

namespace gable {

TEST_CASE("the loaded CUDA plugin gives its table of paths to tests, with a GPU or without") {
  devices();  // loads the plugins
  CHECK_FALSE(loaded_cuda_plugin().empty());
  CHECK((plugin_coverage_function() != nullptr));
}

/// By a plan that a test made itself, with this program's copy of the kernels.
bool ran_here(const std::string& path) {
  cudaDeviceProp properties{};
  GABLE_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  const std::vector<cuda::PathCoverage> entries = cuda::path_coverage(properties);
  return std::any_of(entries.begin(), entries.end(),
                     [&](const cuda::PathCoverage& entry) { return entry.path == path && entry.ran; });
}

TEST_CASE("every path of the CUDA kernels that this GPU has ran") {
  if (is_missing("cuda")) return;
  const std::vector<PluginPath> paths = plugin_coverage();
  REQUIRE_FALSE(paths.empty());
  for (const PluginPath& entry : paths) {
    if (!entry.supported) {
      MESSAGE("not run, this GPU lacks it: ", entry.path);
      continue;
    }
    CHECK_MESSAGE((entry.ran || ran_here(entry.path)), "never ran: ", entry.path);
  }
}

}  // namespace gable
