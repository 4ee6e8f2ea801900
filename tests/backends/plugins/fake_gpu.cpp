// Devices for auto_test whose tensors lie in the memory "cuda:7", where there is none: pointers are the host's.
//   fake_gpu   the best; adds; has events and studies; takes ?kernel=
//   fake_peer  behind it; adds and transposes; takes ?threads=
//   fake_liar  says that its memory is cuda:7, and opens with the host's
#include <gable/error.h>
#include <gable/study_backend.h>

#include <string_view>

#include "tests/backends/plugins/test_backend.h"

namespace gable::test {
namespace {

constexpr std::string_view kName = GABLE_TEST_BACKEND;
constexpr bool kIsGpu = kName == "fake_gpu";
constexpr bool kIsPeer = kName == "fake_peer";

DeviceInfo info(Memory memory) {
  const std::string name(kName);
  return {.uri = name, .backend = name, .name = "no GPU", .available = true, .memory = memory, .kernels = {"loop"}};
}

class FakeEvent final : public EventImpl {
 public:
  void record(void*) override {}
  double seconds_since(const EventImpl&) const override { return 42; }
};

class FakeLoop final : public LoopImpl {
 public:
  FakeLoop() : LoopImpl({.kernel = "fake loop", .bytes = 8}) {}
  void run(int, void*) override {}
};

class FakeStudies final : public StudyImpl {
 public:
  std::vector<Ceiling> ceilings(const CeilingRequest&) const override { return {{.name = "fake", .samples = {1}}}; }
  std::shared_ptr<LoopImpl> loop(const MemoryLoop&) const override { return std::make_shared<FakeLoop>(); }
  std::shared_ptr<LoopImpl> loop(const PagerankLoop&) const override { return std::make_shared<FakeLoop>(); }
};

class TransposePlan final : public PlanImpl {
 public:
  explicit TransposePlan(const std::string& threads) : PlanImpl({.kernel = "loop", .explanation = threads}) {}
  void run(const RunArguments&) override {}
};

class FakeDevice final : public DeviceImpl {
 public:
  FakeDevice(Memory memory, std::string threads) : DeviceImpl(test::info(memory)), threads_(std::move(threads)) {}

  std::vector<KernelOffer> offers(const Op& op) const override {
    if (std::holds_alternative<Add>(op)) return {{"loop", "", [op] { return std::make_unique<AddPlan>(op); }}};
    if (kIsPeer && std::holds_alternative<Transpose>(op)) {
      return {{"loop", "", [this] { return std::make_unique<TransposePlan>(threads_ + " threads"); }}};
    }
    return {{"loop", "it only adds", {}}};
  }
  std::shared_ptr<EventImpl> event() const override { return std::make_shared<FakeEvent>(); }
  const StudyImpl* studies() const override { return kIsGpu ? &studies_ : nullptr; }

 private:
  std::string threads_;
  FakeStudies studies_;
};

class FakeBackend final : public Backend {
 public:
  std::string name() const override { return std::string(kName); }
  int priority() const override { return kIsGpu ? 1003 : kIsPeer ? 1002 : 1001; }
  std::vector<std::string> options() const override {
    if (kIsGpu) return {"kernel"};
    if (kIsPeer) return {"threads"};
    return {};
  }
  std::vector<DeviceInfo> probe() const override { return {info({Memory::Kind::cuda, 7})}; }
  std::shared_ptr<DeviceImpl> open(const DeviceUri& uri) const override {
    if (const auto kernel = uri.options.find("kernel"); kernel != uri.options.end() && kernel->second != "loop") {
      throw Error(ErrorCode::invalid_argument, "kernel is '" + kernel->second + "'; it must be loop");
    }
    const bool lies = !kIsGpu && !kIsPeer;
    const auto threads = uri.options.find("threads");
    return std::make_shared<FakeDevice>(lies ? Memory{} : Memory{Memory::Kind::cuda, 7},
                                        threads == uri.options.end() ? "all" : threads->second);
  }
};

}  // namespace
}  // namespace gable::test

GABLE_PLUGIN(gable::test::FakeBackend)
