// Devices for choose_test, which add f32 tensors. Their time is what they say.
//   choose_gpu    its memory is "cuda:7" (pointers are the host's); fast: 1 us for a run, plus copies where tensors lie
//                 on the host; of a second kernel it says no time. It refuses to copy to a memory that is not cuda:7.
//                 It is gone while GABLE_TEST_GONE is set
//   choose_host   host memory; 4 ns an element predicted; two kernels, of which the second is the faster in truth and
//                 is searched for; the first estimates GABLE_TEST_ESTIMATE times what is predicted, nothing without it.
//                 Each question makes GABLE_TEST_ASKED longer
//   choose_slow   host memory; 1 ns an element predicted. Like a vendor's library, it must be asked whether it can
//                 add: it can't add an odd number of elements
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "tests/backends/plugins/test_backend.h"

namespace gable::test {
namespace {

constexpr bool kIsGpu = std::string_view(GABLE_TEST_BACKEND) == "choose_gpu";
constexpr bool kIsSlow = std::string_view(GABLE_TEST_BACKEND) == "choose_slow";
constexpr Memory kMemory = kIsGpu ? Memory{Memory::Kind::cuda, 7} : Memory{};

DeviceInfo info() {
  return {.uri = GABLE_TEST_BACKEND,
          .backend = GABLE_TEST_BACKEND,
          .name = "a loop",
          .available = true,
          .memory = kMemory,
          .kernels = {"slow", "quick"}};
}

/// Adds, and takes some time over it.
class TimedAdd final : public PlanImpl {
 public:
  TimedAdd(const Op& op, PlanDetails details, std::chrono::microseconds time)
      : PlanImpl(std::move(details)), adds_(op), time_(time) {}
  void run(const RunArguments& arguments) override {
    const auto end = std::chrono::steady_clock::now() + time_;
    adds_.run(arguments);
    while (std::chrono::steady_clock::now() < end) continue;
  }

 private:
  AddPlan adds_;
  std::chrono::microseconds time_;
};

PlanDetails details_of(const std::string& kernel) {
  PlanDetails details;
  details.kernel = kernel;
  details.explanation = "adds";
  details.bound = f32_accumulation_bound(1, DType::f32, {});
  return details;
}

class ChooseDevice final : public DeviceImpl {
 public:
  ChooseDevice() : DeviceImpl(test::info()) {}

  std::vector<KernelOffer> offers(const Op& op) const override {
    if (!std::holds_alternative<Add>(op)) return {{"slow", "it only adds", {}}};
    const auto offer = [&op](const char* kernel, int microseconds) -> KernelOffer {
      return {kernel, "", [=] {
                return std::make_unique<TimedAdd>(op, details_of(kernel), std::chrono::microseconds(microseconds));
              }};
    };
    // Slower than the host's `quick`, however cheap the copies are: what is measured has one order.
    if (kIsGpu) return {offer("quick", 150), offer("spare", 150)};
    if (kIsSlow) {
      if (output_shape(op).elements() % 2 != 0) return {{"asked", "its library takes even counts", {}}};
      return {offer("asked", 0)};
    }
    if (const char* asked = std::getenv("GABLE_TEST_ASKED"))
      setenv("GABLE_TEST_ASKED", (std::string(asked) + "+").c_str(), 1);
    KernelOffer quick = offer("quick", 0);
    quick.search = [=](const PlanSearch& search) {
      PlanDetails details = details_of("quick");
      details.explanation += search.program.empty() ? " by a search" : " by " + search.program + ", which is known";
      details.program = "the best";
      return std::make_unique<TimedAdd>(op, std::move(details), std::chrono::microseconds(0));
    };
    KernelOffer slow = offer("slow", 300);
    if (const char* times = std::getenv("GABLE_TEST_ESTIMATE"))
      slow.seconds = std::atof(times) * *predicted_seconds(op);
    return {slow, quick, {"broken", "", []() -> std::unique_ptr<PlanImpl> {
                            throw Error(ErrorCode::out_of_memory, "no memory at all");
                          }}};
  }

  std::vector<KernelOffer> quick_offers(const Op& op) const override {
    if (!kIsSlow || !std::holds_alternative<Add>(op)) return offers(op);
    const auto make = [this, op]() -> std::unique_ptr<PlanImpl> {
      const KernelOffer offer = offers(op).front();
      if (!offer.supported()) throw Error(ErrorCode::unsupported, offer.refusal);
      return offer.make();
    };
    return {{"asked", "", make}};
  }

  std::optional<double> predicted_seconds(const Op& op) const override {
    return kIsGpu ? 1e-6 : (kIsSlow ? 1e-9 : 4e-9) * static_cast<double>(output_shape(op).elements());
  }

  void copy(const ConstTensorView& from, const TensorView& to, void*) const override {
    const bool one_is_here = (from.memory == kMemory) != (to.memory == kMemory);
    if (kIsGpu && !one_is_here) throw Error(ErrorCode::invalid_argument, "no copy between host and device");
    std::memcpy(to.data, from.data, to.bytes());
  }
};

class ChooseBackend final : public TestBackend {
 public:
  ChooseBackend() : TestBackend(GABLE_TEST_BACKEND) {}
  int priority() const override { return kIsGpu ? 1002 : kIsSlow ? 1000 : 1001; }
  std::vector<DeviceInfo> probe() const override {
    DeviceInfo found = info();
    found.available = !kIsGpu || std::getenv("GABLE_TEST_GONE") == nullptr;
    if (!found.available) found.reason = "no GPU is visible";
    return {found};
  }
  std::shared_ptr<DeviceImpl> open(const DeviceUri&) const override { return std::make_shared<ChooseDevice>(); }
};

}  // namespace
}  // namespace gable::test

GABLE_PLUGIN(gable::test::ChooseBackend)
