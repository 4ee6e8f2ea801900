// The device "cudnn:N": NVIDIA's cuDNN 9 on a GPU, the peer that gable's own CUDA kernels are measured against.
//
// cudnn[:N][?algorithm=measured|heuristic]. Memory, copies and streams are those of cuda:N.
#include <gable/backend.h>
#include <gable/error.h>

#include <algorithm>

#include "backends/cuda/cuda_rates.h"
#include "backends/cudnn/cudnn_plan.h"

namespace gable::cudnn {
namespace {

constexpr const char* kMeasured = "measured";
constexpr const char* kHeuristic = "heuristic";

/// Time over roof of depthwise, grouped, few_channels, pointwise and spatial convolutions and of vectors, fused by
/// PyTorch's cuDNN or not, whichever was faster: as in backends/cuda/cuda_backend.cpp.
constexpr std::array<double, kShapeClasses> kInefficiency{3.4, 2.4, 1.5, 1.6, 2.1, 1.6};

bool wants_measuring(const DeviceUri& uri) {
  const auto option = uri.options.find("algorithm");
  if (option == uri.options.end() || option->second == kMeasured) return true;
  if (option->second == kHeuristic) return false;
  throw Error(ErrorCode::invalid_argument, "device '" + to_string(uri) + "': algorithm is '" + option->second +
                                               "'; it must be " + kMeasured + " or " + kHeuristic);
}

class CudnnDevice final : public CudaDevice {
 public:
  CudnnDevice(DeviceInfo info, const Library& library, bool measured)
      : CudaDevice(std::move(info)),
        planner_(std::make_unique<Planner>(std::make_shared<Session>(library, CudaDevice::index()), measured)),
        rates_(reporting(uri(), [this] { return CudaRates(*this); })) {}

  std::optional<double> predicted_seconds(const Op& op) const override {
    return modelled_cuda_seconds(op, rates_, kInefficiency);
  }

  std::vector<KernelOffer> offers(const Op& op) const override {
    return reporting(uri(), [&]() -> std::vector<KernelOffer> {
      const CurrentDevice current(index());
      const std::shared_ptr<Found> found = planner_->find(op);
      const std::string refusal = planner_->refusal(*found);
      return {{kernel_of(op), refusal, [this, op, found] { return made(op, *found); }, search_of(op)}};
    });
  }

  /// What cuDNN's heuristics say, which take tens of milliseconds, is left to the plan.
  std::vector<KernelOffer> quick_offers(const Op& op) const override {
    const auto make = [this, op]() -> std::unique_ptr<PlanImpl> {
      if (planner_->searches(op)) return searched(op, {});
      KernelOffer offer = std::move(offers(op).front());
      if (!offer.supported()) throw Error(ErrorCode::unsupported, offer.refusal);
      return offer.make();
    };
    return {{kernel_of(op), planner_->known_refusal(op), make, search_of(op)}};
  }

 private:
  std::unique_ptr<PlanImpl> made(const Op& op, Found& found) const {
    return reporting(uri(), [&] {
      const CurrentDevice current(index());
      return planner_->searches(op) ? planner_->plan(op, PlanSearch{}, *this) : planner_->plan(op, found, *this);
    });
  }

  std::unique_ptr<PlanImpl> searched(const Op& op, const PlanSearch& search) const {
    return reporting(uri(), [&] {
      const CurrentDevice current(index());
      return planner_->plan(op, search, *this);
    });
  }

  std::function<std::unique_ptr<PlanImpl>(const PlanSearch&)> search_of(const Op& op) const {
    if (!planner_->searches(op)) return {};
    return [this, op](const PlanSearch& search) { return searched(op, search); };
  }

  std::unique_ptr<Planner> planner_;
  CudaRates rates_;
};

class CudnnBackend final : public Backend {
 public:
  std::string name() const override { return "cudnn"; }
  int priority() const override { return 200; }

  std::vector<std::string> options() const override { return {"algorithm"}; }

  std::vector<DeviceInfo> probe() const override {
    std::string version;
    try {
      version = library().version();
    } catch (const Error& error) {
      return {{.uri = name(),
               .backend = name(),
               .name = "",
               .available = false,
               .reason = error.what(),
               .memory = {Memory::Kind::cuda, 0}}};
    }
    std::vector<DeviceInfo> all = probe_cuda_devices(name());
    for (DeviceInfo& info : all) info.name += (info.name.empty() ? "cuDNN " : ", cuDNN ") + version;
    return all;
  }

  std::shared_ptr<DeviceImpl> open(const DeviceUri& uri) const override {
    const bool measured = wants_measuring(uri);
    DeviceInfo info = find_cuda_device(uri);
    const std::string where = "device '" + to_string(uri) + "': ";
    try {
      info.name += ", cuDNN " + library().version();
      return std::make_shared<CudnnDevice>(std::move(info), library(), measured);
    } catch (const Error& error) {
      throw Error(error.code(), where + error.what());
    }
  }
};

}  // namespace
}  // namespace gable::cudnn

GABLE_PLUGIN(gable::cudnn::CudnnBackend)
