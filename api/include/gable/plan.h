// A plan: one op, validated, bound to one kernel of one device, with its workspace. Making it is slow, running it is
// not.
#pragma once

#include <gable/export.h>
#include <gable/ops.h>
#include <gable/tensor.h>

#include <cstdint>
#include <memory>
#include <string>

namespace gable {

class Device;
class PlanImpl;
class DeviceImpl;

/// An order of execution on a device. A default-constructed Stream is the device's own; CPU devices run synchronously.
class GABLE_API Stream {
 public:
  Stream() = default;
  explicit Stream(std::shared_ptr<void> handle) : handle_(std::move(handle)) {}
  /// A stream that somebody else owns, e.g. a cudaStream_t of the application's.
  static Stream borrow(void* native) { return Stream(std::shared_ptr<void>(std::shared_ptr<void>(), native)); }
  void* native() const { return handle_.get(); }  ///< cudaStream_t on CUDA devices, null on the CPU

 private:
  std::shared_ptr<void> handle_;
};

/// How far a result may lie from the exact one: |y - exact| <= accumulation * M + rounding * |exact| + absolute, where
/// M is the sum of |x||w| over the output's terms plus |bias| (the greatest such M of a pooling window).
///
/// accumulation = lambda * sqrt(n + 1) * u for n terms of unit roundoff u: the probabilistic bound of Higham and Mary,
/// "A New Approach to Probabilistic Rounding Error Analysis" (SIAM J. Sci. Comput. 41, 2019), with lambda = 6 (failure
/// probability below 1e-7 an element, for any order of summation).
struct ErrorBound {
  double accumulation = 0;
  double rounding = 0;
  double absolute = 0;

  double tolerance(double exact, double magnitude) const {
    return accumulation * magnitude + rounding * (exact < 0 ? -exact : exact) + absolute;
  }
};

/// The bound of f32 accumulation over `terms` products followed by one rounding to `dtype`.
GABLE_API ErrorBound f32_accumulation_bound(std::int64_t terms, DType dtype, Activation activation);

/// Weights in a kernel's own order, on its device. Valid for every plan with the same packing.
class GABLE_API PackedWeights {
 public:
  PackedWeights() = default;
  PackedWeights(Tensor::Storage storage, std::size_t bytes, std::uint64_t key)
      : storage_(std::move(storage)), bytes_(bytes), key_(key) {}

  const void* data() const { return storage_.get(); }
  std::size_t bytes() const { return bytes_; }
  std::uint64_t key() const { return key_; }  ///< equal keys mean the same packing

 private:
  Tensor::Storage storage_;
  std::size_t bytes_ = 0;
  std::uint64_t key_ = 0;
};

/// Movable. run() of one plan from two threads at once is not allowed (they would share its workspace); two plans are
/// independent.
class GABLE_API Plan {
 public:
  Plan(const Op& op, std::shared_ptr<DeviceImpl> device, std::unique_ptr<PlanImpl> impl);
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;
  ~Plan();

  const Op& op() const;
  const Shape& output_shape() const;
  Work work() const;
  /// Kernel, target, tile, blocking, fusion, threads; what `auto` chose and why; each kernel that was refused.
  std::string explain() const;
  std::string kernel() const;
  bool fused() const;  ///< the whole epilogue runs inside the kernel
  ErrorBound error_bound() const;
  std::size_t workspace_bytes() const;
  std::string device_uri() const;
  Memory memory() const;  ///< where the plan's tensors lie

  /// Once, outside the hot loop. `weights` are (K, C/groups, R, S), or (k, n) for a matmul, row-major, in this plan's
  /// dtype and in this device's memory.
  PackedWeights pack(const ConstTensorView& weights) const;

  /// conv2d and matmul. Shapes, dtypes, layouts and memory are checked; nothing is allocated. Asynchronous on a stream
  /// where the device is. `bias` is f32 with one element a channel of the output, and must be given exactly if the op
  /// has one.
  void run(const ConstTensorView& x, const PackedWeights& weights, const TensorView& y,
           const Stream& stream = {}) const;
  void run(const ConstTensorView& x, const PackedWeights& weights, const ConstTensorView& bias, const TensorView& y,
           const Stream& stream = {}) const;
  /// Ops with one input, and with two.
  void run(const ConstTensorView& x, const TensorView& y, const Stream& stream = {}) const;
  void run(const ConstTensorView& a, const ConstTensorView& b, const TensorView& y, const Stream& stream = {}) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gable
