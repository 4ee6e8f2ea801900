// A backend whose probe fails and whose device can't be opened.
#include "tests/backends/plugins/test_backend.h"

#include <stdexcept>

namespace {
class ThrowingBackend final : public gable::test::TestBackend {
 public:
  ThrowingBackend() : TestBackend("throwing_probe") {}
  std::vector<gable::DeviceInfo> probe() const override { throw std::runtime_error("the driver is on fire"); }
  std::shared_ptr<gable::DeviceImpl> open(const gable::DeviceUri& uri) const override {
    throw gable::Error(gable::ErrorCode::unavailable, "device '" + gable::to_string(uri) + "': the driver is on fire");
  }
};
}  // namespace

GABLE_PLUGIN(ThrowingBackend)
