// A backend with two devices: the first has a GPU's kind of memory, held on the host, the second has host memory. A
// device's kind is that of its memory, whatever its name begins with.
//
// CUDA_DOUBLE_LOST=N in the environment: the first device is lost for the process in the second run of the Nth plan
// that runs, as a GPU is after a fault; so rows before it are whole at any speed of the machine. CUDA_DOUBLE_TAKEN: it
// can't be opened, as a GPU that another process has for itself. CUDA_DOUBLE_FULL: it has no memory. CUDA_DOUBLE_SLOW:
// its ceilings take seconds.
#include <gable/backend.h>
#include <gable/gable.h>

#include <gable/error.h>
#include <gable/study_backend.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

namespace {

std::atomic<long> plans_left{std::getenv("CUDA_DOUBLE_LOST") ? std::atol(std::getenv("CUDA_DOUBLE_LOST")) : -1};
std::atomic<bool> lost{false};

void throw_if_lost() {
  if (lost) throw gable::Error(gable::ErrorCode::device_failure, "cuda_double:0: lost: start the process again");
}

class HostPlan final : public gable::PlanImpl {
 public:
  HostPlan(const gable::Conv2d& conv, gable::Plan plan)
      : PlanImpl({.kernel = "on_host",
                  .explanation = "the reference",
                  .bound = plan.error_bound(),
                  .packed_bytes = 1,
                  .packing_key = gable::packing_key("double")}),
        conv_(conv),
        plan_(std::move(plan)) {}

  void pack(const void* weights, void*) override { weights_ = plan_.pack({weights, conv_.dtype, conv_.weights}); }

  void run(const gable::RunArguments& arguments) override {
    if (runs_ == 0 && plans_left > 0) --plans_left;
    if (++runs_ == 2 && plans_left == 0) lost = true;
    throw_if_lost();
    const gable::ConstTensorView x(arguments.inputs[0], conv_.dtype, conv_.input, conv_.layout);
    plan_.run(x, weights_, gable::TensorView(arguments.output, conv_.dtype, plan_.output_shape(), conv_.layout));
  }

 private:
  gable::Conv2d conv_;
  gable::Plan plan_;
  gable::PackedWeights weights_;
  long runs_ = 0;
};

class ClockEvent final : public gable::EventImpl {
 public:
  void record(void*) override {
    throw_if_lost();
    at_ = std::chrono::steady_clock::now();
  }
  double seconds_since(const EventImpl& start) const override {
    return std::chrono::duration<double>(at_ - static_cast<const ClockEvent&>(start).at_).count();
  }

 private:
  std::chrono::steady_clock::time_point at_{};
};

/// Two roofs and a rate.
class DoubleStudies final : public gable::StudyImpl {
 public:
  std::vector<gable::Ceiling> ceilings(const gable::CeilingRequest& request) const override {
    using enum gable::Ceiling::Kind;
    const bool slow = std::getenv("CUDA_DOUBLE_SLOW") != nullptr;
    std::vector<gable::Ceiling> all{
        {.name = "fma f32", .kind = compute, .unit = "fma", .dtype = "f32", .samples = {1e12}, .formula = "made up"},
        {.name = "dram read", .kind = bandwidth, .level = "dram", .level_bytes = 1 << 30, .samples = {1e11}},
        {.name = "launch and wait", .unit = "s", .samples = {1e-9}}};
    for (const gable::Ceiling& one : all) {
      if (request.next) request.next(one.name);
      if (slow) std::this_thread::sleep_for(std::chrono::seconds(&one == all.data() ? 1 : 60));
      if (request.hold && one.kind != rate) request.hold(one.name, [] { return 1e9; });
    }
    return all;
  }
  std::shared_ptr<gable::LoopImpl> loop(const gable::MemoryLoop&) const override { return no_loop(); }
  std::shared_ptr<gable::LoopImpl> loop(const gable::PagerankLoop&) const override { return no_loop(); }

 private:
  static std::shared_ptr<gable::LoopImpl> no_loop() {
    throw gable::Error(gable::ErrorCode::unsupported, "cuda_double has no loops");
  }
};

class DoubleDevice final : public gable::DeviceImpl {
 public:
  using DeviceImpl::DeviceImpl;

  std::vector<gable::KernelOffer> offers(const gable::Op& op) const override {
    const auto* conv = std::get_if<gable::Conv2d>(&op);
    if (conv == nullptr) return {{"on_host", "only convolutions", {}}};
    return {{"on_host", "",
             [conv = *conv] { return std::make_unique<HostPlan>(conv, gable::open("reference").plan(conv)); }}};
  }

  std::shared_ptr<void> allocate(std::size_t bytes) const override {
    throw_if_lost();
    if (std::getenv("CUDA_DOUBLE_FULL") != nullptr)
      throw gable::Error(gable::ErrorCode::out_of_memory, "cuda_double:0: no " + std::to_string(bytes) + " bytes");
    return DeviceImpl::allocate(bytes);
  }

  void synchronize(void*) const override { throw_if_lost(); }

  void copy(const gable::ConstTensorView& from, const gable::TensorView& to, void*) const override {
    throw_if_lost();
    std::memcpy(to.data, from.data, static_cast<std::size_t>(from.shape.elements()) * gable::size_of(from.dtype));
  }

  std::shared_ptr<gable::EventImpl> event() const override { return std::make_shared<ClockEvent>(); }
  const gable::StudyImpl* studies() const override {
    return info_.memory.kind == gable::Memory::Kind::cuda ? &studies_ : nullptr;
  }

 private:
  DoubleStudies studies_;
};

class DoubleBackend final : public gable::Backend {
 public:
  std::string name() const override { return "cuda_double"; }
  int priority() const override { return -2; }
  std::vector<std::string> options() const override { return {}; }

  std::vector<gable::DeviceInfo> probe() const override {
    return {
        {.uri = "cuda_double:0",
         .backend = "cuda_double",
         .name = "a GPU's double",
         .available = true,
         .memory = {gable::Memory::Kind::cuda, 0},
         .kernels = {"on_host"}},
        {.uri = "cuda_double:1", .backend = "cuda_double", .name = "a CPU", .available = true, .kernels = {"on_host"}}};
  }

  std::shared_ptr<gable::DeviceImpl> open(const gable::DeviceUri& uri) const override {
    if (uri.selector != "1" && std::getenv("CUDA_DOUBLE_TAKEN") != nullptr)
      throw gable::Error(gable::ErrorCode::unavailable, "cuda_double:0: another process has it for itself");
    return std::make_shared<DoubleDevice>(probe().at(uri.selector == "1" ? 1 : 0));
  }
};

}  // namespace

GABLE_PLUGIN(DoubleBackend)
