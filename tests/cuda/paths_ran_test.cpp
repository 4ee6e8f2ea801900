// Runs last in its executable (doctest orders by file name): every dispatch path of the CUDA kernels that this GPU has
// must have run in the tests before.
#include <doctest/doctest.h>

#include "tests/cuda/plugin_coverage.h"
#include "tests/tools/expect.h"

namespace gable {

TEST_CASE("the loaded CUDA plugin gives its table of paths to tests, with a GPU or without") {
  devices();  // loads the plugins
  CHECK_FALSE(loaded_cuda_plugin().empty());
  CHECK((plugin_coverage_function() != nullptr));
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
    CHECK_MESSAGE(entry.ran, "never ran: ", entry.path);
  }
}

}  // namespace gable
