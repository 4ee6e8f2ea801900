// What `auto` measures by: contestants that something else slows down for a while.
#include "backends/registry/tuner.h"

#include <doctest/doctest.h>
#include <gable/backend.h>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

namespace gable {
namespace tuner_test {

using Clock = std::chrono::steady_clock;

class Host final : public DeviceImpl {
 public:
  Host() : DeviceImpl({.uri = "host", .backend = "host", .name = "a host", .available = true}) {}
  std::vector<KernelOffer> offers(const Op&) const override { return {}; }
};

/// A run takes as long as `time` says, given the seconds since the first run.
class Timed final : public PlanImpl {
 public:
  explicit Timed(std::function<double(double)> time) : PlanImpl(PlanDetails{}), time_(std::move(time)) {}
  void run(const RunArguments&) override {
    const Clock::time_point begin = Clock::now();
    if (first_ == Clock::time_point{}) first_ = begin;
    const double seconds = time_(std::chrono::duration<double>(begin - first_).count());
    while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds) continue;
  }

 private:
  std::function<double(double)> time_;
  Clock::time_point first_{};
};

/// Its time depends on where the output lies: `slow` on the first set of tensors that it runs on, else `fast`.
class Placed final : public PlanImpl {
 public:
  Placed(double slow, double fast) : PlanImpl(PlanDetails{}), slow_(slow), fast_(fast) {}
  void run(const RunArguments& arguments) override {
    const Clock::time_point begin = Clock::now();
    if (first_ == nullptr) first_ = arguments.output;
    const double seconds = arguments.output == first_ ? slow_ : fast_;
    while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds) continue;
  }

 private:
  double slow_, fast_;
  const void* first_ = nullptr;
};

Contestant contestant(const std::shared_ptr<DeviceImpl>& device, std::function<double(double)> time) {
  return {.device = device, .make = [time] { return std::make_unique<Timed>(time); }};
}

}  // namespace tuner_test

TEST_CASE("tuner: a contestant that is held up for 12 ms still wins") {
  const auto device = std::make_shared<tuner_test::Host>();
  std::vector<Contestant> contestants;
  contestants.push_back(tuner_test::contestant(device, [](double) { return 0.6e-3; }));
  contestants.push_back(tuner_test::contestant(device, [](double at) { return at < 12e-3 ? 1.2e-3 : 0.2e-3; }));
  measure({.op = Add{.shape = {16}}, .owner = device, .seconds = 0.5}, contestants);
  REQUIRE(contestants[0].seconds);
  REQUIRE(contestants[1].seconds);
  CHECK(*contestants[1].seconds < *contestants[0].seconds);
}

TEST_CASE("tuner: a contestant whose first runs are held up still wins") {
  const auto device = std::make_shared<tuner_test::Host>();
  std::vector<Contestant> contestants;
  contestants.push_back(tuner_test::contestant(device, [](double) { return 0.6e-3; }));
  contestants.push_back(tuner_test::contestant(device, [](double at) { return at < 12e-3 ? 4.3e-3 : 0.2e-3; }));
  measure({.op = Add{.shape = {16}}, .owner = device, .seconds = 0.5}, contestants);
  REQUIRE(contestants[0].seconds);
  REQUIRE(contestants[1].seconds);
  CHECK(*contestants[1].seconds < *contestants[0].seconds);
}

TEST_CASE("tuner: contestants of nearly the same time are compared on several sets of tensors") {
  const auto device = std::make_shared<tuner_test::Host>();
  std::vector<Contestant> contestants;
  contestants.push_back(tuner_test::contestant(device, [](double) { return 0.3e-3; }));
  contestants.push_back(
      {.device = device, .make = [] { return std::make_unique<tuner_test::Placed>(0.315e-3, 0.28e-3); }});
  measure({.op = Add{.shape = {16}}, .owner = device, .seconds = 0.5}, contestants);
  REQUIRE(contestants[0].seconds);
  REQUIRE(contestants[1].seconds);
  CHECK(*contestants[1].seconds < *contestants[0].seconds);
}

}  // namespace gable
