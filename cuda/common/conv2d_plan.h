// What every convolution kernel gives to the backend: a refusal, or a plan. A kernel's header names a struct with
//   kAlignment          of the tensors' addresses in bytes, beyond that of an element
//   refusal()           why it can't run a problem on a device; empty: it can
//   make()              its plan of a problem that it doesn't refuse, on the current device
//   seconds()           where it has a model of its time: how long a run takes, launch included
// and Conv2dKernel<> of that struct, which backends hold by value. The plan's class stays in the kernel's own file.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>

#include <gable/problem.h>

namespace gable::cuda {

/// What a plan decided, in words.
struct Conv2dDescription {
  std::string kernel;   // as ?kernel= takes it
  std::string tile;     // output tile of a block and of a thread or warp
  std::string staging;  // how operands come in: shared memory, pipeline stages, reorders
  std::string fusion;   // where bias, activation and pool happen
  bool fused = true;    // the whole epilogue runs inside the kernel
};

/// A kernel's choices for one problem. Safe to use from several threads.
class Conv2dPlan {
 public:
  virtual ~Conv2dPlan() = default;

  virtual Conv2dDescription description() const = 0;
  /// Plans of equal packings share packed weights.
  virtual Packing packing() const = 0;
  virtual std::size_t packed_bytes() const = 0;
  virtual std::size_t workspace_bytes() const { return 0; }

  /// Device pointers. Both are asynchronous on `stream` and allocate nothing. `packed` and `workspace` are aligned as
  /// cudaMalloc aligns; `bias` is null without one.
  virtual void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const = 0;
  virtual void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
                   cudaStream_t stream) const = 0;
};

/// A plan of the kernel that `Kernel` describes.
template <typename Kernel>
class Conv2dKernel {
 public:
  static constexpr std::size_t kAlignment = Kernel::kAlignment;

  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device) {
    return Kernel::refusal(problem, device);
  }
  /// Empty, or why a GPU lacks the kernel's instructions.
  static std::string missing(const cudaDeviceProp& device) requires requires { Kernel::missing(device); }
  { return Kernel::missing(device); }

  static double seconds(const Conv2dProblem& problem, const cudaDeviceProp& device) requires requires {
    Kernel::seconds(problem, device);
  }
  { return Kernel::seconds(problem, device); }

  /// `device` is the current one.
  Conv2dKernel(const Conv2dProblem& problem, const cudaDeviceProp& device) : plan_(Kernel::make(problem, device)) {}

  Conv2dDescription description() const { return plan_->description(); }
  Packing packing() const { return plan_->packing(); }
  std::size_t packed_bytes() const { return plan_->packed_bytes(); }
  std::size_t workspace_bytes() const { return plan_->workspace_bytes(); }
  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const {
    plan_->pack(weights, strides, packed, stream);
  }
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace, cudaStream_t stream) const {
    plan_->run(x, packed, bias, y, workspace, stream);
  }

 private:
  std::unique_ptr<const Conv2dPlan> plan_;
};

}  // namespace gable::cuda
