// A plugin as it should be. Built a second time, where the loader must not look: in the current folder.
#include "tests/backends/plugins/test_backend.h"

namespace {
class NamedBackend final : public gable::test::TestBackend {
 public:
  NamedBackend() : TestBackend(GABLE_TEST_BACKEND) {}
};
}  // namespace

GABLE_PLUGIN(NamedBackend)
