// The device "cuda:N": gable's own CUDA kernels. cuda is cuda:0; ?kernel= names one kernel.
#include <gable/backend.h>
#include <gable/error.h>

#include "backends/cuda/cuda_ceilings.h"
#include "backends/cuda/cuda_device.h"
#include "backends/cuda/cuda_loops.h"
#include "backends/cuda/cuda_plans.h"

namespace gable {
namespace {

/// The value of ?kernel=, empty without it.
std::string requested_kernel(const DeviceUri& uri) {
  const auto option = uri.options.find("kernel");
  if (option == uri.options.end()) return "";
  std::string names;
  for (const std::string& kernel : cuda_kernels()) {
    if (kernel == option->second) return kernel;
    names += (names.empty() ? "" : ", ") + kernel;
  }
  throw Error(ErrorCode::invalid_argument,
              "device '" + to_string(uri) + "': kernel is '" + option->second + "'; it must be one of " + names);
}

class KernelDevice final : public CudaDevice {
 public:
  /// `kernel` is empty, or the only one to use.
  KernelDevice(DeviceInfo info, std::string kernel) : CudaDevice(std::move(info)), kernel_(std::move(kernel)) {
    info_.kernels = cuda_kernels(properties());
  }

  std::vector<KernelSupport> query(const Op& op) const override { return query_cuda(op, properties(), kernel_); }

  std::unique_ptr<PlanImpl> plan(const Op& op) const override {
    return reporting(uri(), [&] {
      const CurrentDevice current(index());
      return make_cuda_plan(op, *this, kernel_);
    });
  }

  std::vector<Ceiling> ceilings(const CeilingRequest& request) const override {
    return measure_cuda_ceilings(*this, request);
  }
  std::shared_ptr<LoopImpl> loop(const MemoryLoop& loop) const override { return make_cuda_loop(*this, loop); }
  std::shared_ptr<LoopImpl> loop(const PagerankLoop& loop) const override { return make_cuda_loop(*this, loop); }

 private:
  std::string kernel_;
};

class CudaBackend final : public Backend {
 public:
  std::string name() const override { return "cuda"; }
  int priority() const override { return 210; }

  std::vector<DeviceInfo> probe() const override {
    std::vector<DeviceInfo> all = probe_cuda_devices(name());
    for (DeviceInfo& info : all) {
      if (info.available) info.kernels = kernels_of(info.memory.index);
    }
    return all;
  }

  std::shared_ptr<DeviceImpl> open(const DeviceUri& uri) const override {
    check_options(uri, {"kernel"});
    std::string kernel = requested_kernel(uri);
    return std::make_shared<KernelDevice>(find_cuda_device(uri), std::move(kernel));
  }

 private:
  static std::vector<std::string> kernels_of(int index) {
    cudaDeviceProp device{};
    const cudaError_t status = cudaGetDeviceProperties(&device, index);
    cuda::ignore(status);
    return status == cudaSuccess ? cuda_kernels(device) : std::vector<std::string>{};
  }
};

}  // namespace
}  // namespace gable

GABLE_PLUGIN(gable::CudaBackend)
