// What stands around a kernel that takes NHWC and fuses no pool but 2×2: reorders of NCHW tensors into the workspace
// and back, and any other pool as a pass of its own. Each is said in the description, with the bytes it moves.
//
// The pass over bias and activation stays in the kernel: rounding and activations are monotone, so the maximum may come
// last.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <utility>

#include <gable/problem.h>
#include "cuda/common/description.h"

namespace gable::cuda {

/// The steps, and where their tensors lie in the workspace (offsets in bytes).
struct Staging {
  explicit Staging(const Conv2dProblem& problem);

  /// The problem that is left for the kernel.
  Conv2dProblem inner() const;
  /// What stands before and after the kernel; empty if nothing does.
  std::string text() const;

  void before(const void* x, void* workspace, cudaStream_t stream) const;
  void after(void* y, void* workspace, cudaStream_t stream) const;

  Conv2dProblem problem;
  bool reorders, pools;
  std::size_t x_at = 0, conv_at = 0, y_at = 0, bytes = 0;
};

template <typename Kernel>
class Staged {
 public:
  static constexpr std::size_t kAlignment = Kernel::kAlignment;

  Staged(const Conv2dProblem& problem, const cudaDeviceProp& device)
      : staging_(problem), kernel_(staging_.inner(), device) {}

  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device) {
    return Kernel::refusal(Staging(problem).inner(), device);
  }

  Conv2dDescription description() const {
    Conv2dDescription d = kernel_.description();
    d.staging += staging_.text();
    d.fused = d.fused && !staging_.pools;
    return d;
  }

  std::size_t packed_bytes() const { return kernel_.packed_bytes(); }
  std::size_t workspace_bytes() const { return staging_.bytes + kernel_.workspace_bytes(); }

  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const {
    kernel_.pack(weights, strides, packed, stream);
  }

  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace, cudaStream_t stream) const {
    auto* bytes = static_cast<unsigned char*>(workspace);
    staging_.before(x, workspace, stream);
    kernel_.run(staging_.reorders ? bytes + staging_.x_at : x, packed, bias,
                staging_.pools || staging_.reorders ? bytes + staging_.conv_at : y, bytes + staging_.bytes, stream);
    staging_.after(y, workspace, stream);
  }

 private:
  Staging staging_;
  Kernel kernel_;
};

}  // namespace gable::cuda
