// A sound plugin that needs a library which is not where the dynamic loader looks.
#include "tests/backends/plugins/test_backend.h"

extern "C" int gable_test_dependency();

namespace {
class OrphanBackend final : public gable::test::TestBackend {
 public:
  OrphanBackend() : TestBackend("orphan") {}
  int priority() const override { return -gable_test_dependency(); }
};
}  // namespace

GABLE_PLUGIN(OrphanBackend)
