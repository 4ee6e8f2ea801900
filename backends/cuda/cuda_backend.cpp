// The device "cuda:N": gable's own CUDA kernels. cuda is cuda:0; ?kernel= names one kernel.
#include <gable/backend.h>
#include <gable/error.h>
#include <gable/study_backend.h>

#include <mutex>

#include "backends/cuda/cuda_ceilings.h"
#include "backends/cuda/cuda_device.h"
#include "backends/cuda/cuda_loops.h"
#include "backends/cuda/cuda_plans.h"
#include "backends/cuda/cuda_rates.h"

namespace gable {
namespace {

/// Time over roof of depthwise, grouped, few_channels, pointwise and spatial convolutions and of vectors: geometric
/// means over bench/results/h200/layers-*.json, in graphs.
constexpr std::array<double, kShapeClasses> kInefficiency{1.7, 1.5, 1.0, 1.4, 1.9, 1.4};

/// The GPU measures itself.
class CudaStudies final : public StudyImpl {
 public:
  explicit CudaStudies(const CudaDevice& device) : device_(device) {}
  std::vector<Ceiling> ceilings(const CeilingRequest& request) const override {
    return measure_cuda_ceilings(device_, request);
  }
  std::shared_ptr<LoopImpl> loop(const MemoryLoop& loop) const override { return make_cuda_loop(device_, loop); }
  std::shared_ptr<LoopImpl> loop(const PagerankLoop& loop) const override { return make_cuda_loop(device_, loop); }

 private:
  const CudaDevice& device_;
};

class KernelDevice final : public CudaDevice {
 public:
  /// `kernel` is empty, or the only one to use.
  KernelDevice(DeviceInfo info, std::string kernel) : CudaDevice(std::move(info)), kernel_(std::move(kernel)) {
    info_.kernels = cuda_kernels().names(properties());
  }

  /// The last answer is kept: the kernels estimate hundreds of tiles, and `auto` asks again when it makes the plan.
  std::vector<KernelOffer> offers(const Op& op) const override {
    {
      const std::lock_guard lock(mutex_);
      if (!answer_.empty() && asked_ == op) return answer_;
    }
    std::vector<KernelOffer> all = reporting(uri(), [&] {
      const CurrentDevice current(index());  // estimates ask CUDA how many blocks a multiprocessor holds
      return cuda_kernels().offers(op, properties(), *this, kernel_);
    });
    for (KernelOffer& offer : all) {
      if (offer.supported()) offer.make = [this, make = std::move(offer.make)] { return made(make); };
    }
    const std::lock_guard lock(mutex_);
    asked_ = op;
    answer_ = all;
    return all;
  }

  std::optional<double> predicted_seconds(const Op& op) const override {
    return modelled_cuda_seconds(op, rates_, kInefficiency);
  }

  const StudyImpl* studies() const override { return &studies_; }

 private:
  std::unique_ptr<PlanImpl> made(const std::function<std::unique_ptr<PlanImpl>()>& make) const {
    return reporting(uri(), [&] {
      const CurrentDevice current(index());
      return make();
    });
  }

  std::string kernel_;
  mutable std::mutex mutex_;  ///< of the last answer
  mutable Op asked_{};
  mutable std::vector<KernelOffer> answer_{};
  CudaRates rates_ = reporting(uri(), [this] { return CudaRates(*this); });
  CudaStudies studies_{*this};
};

class CudaBackend final : public Backend {
 public:
  std::string name() const override { return "cuda"; }
  int priority() const override { return 210; }

  std::vector<std::string> options() const override { return {"kernel"}; }

  std::vector<DeviceInfo> probe() const override {
    std::vector<DeviceInfo> all = probe_cuda_devices(name());
    for (DeviceInfo& info : all) {
      if (info.available) info.kernels = kernels_of(info.memory.index);
    }
    return all;
  }

  std::shared_ptr<DeviceImpl> open(const DeviceUri& uri) const override {
    std::string kernel = requested_kernel(uri, cuda_kernels().names());
    return std::make_shared<KernelDevice>(find_cuda_device(uri), std::move(kernel));
  }

 private:
  static std::vector<std::string> kernels_of(int index) {
    cudaDeviceProp device{};
    const cudaError_t status = cudaGetDeviceProperties(&device, index);
    cuda::ignore(status);
    return status == cudaSuccess ? cuda_kernels().names(device) : std::vector<std::string>{};
  }
};

}  // namespace
}  // namespace gable

GABLE_PLUGIN(gable::CudaBackend)
