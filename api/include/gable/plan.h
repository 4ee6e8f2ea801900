// A plan: one validated op, bound to one kernel of one device, with its workspace. Making a plan is slow; running it is
// fast.
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

/// A queue of work on a device. A default-constructed Stream is the device's default one; CPU devices run
/// synchronously.
class GABLE_API Stream {
 public:
  Stream() = default;
  explicit Stream(std::shared_ptr<void> handle) : handle_(std::move(handle)) {}  ///< Device::stream()'s
  /// A stream that the application owns, e.g. a cudaStream_t.
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
  /// The bound for one element, whose `magnitude` is M.
  double tolerance(double exact, double magnitude) const {
    return accumulation * magnitude + rounding * (exact < 0 ? -exact : exact) + absolute;
  }
};

/// The bound of f32 accumulation over `terms` products followed by one rounding to `dtype`.
GABLE_API ErrorBound f32_accumulation_bound(std::int64_t terms, DType dtype, Activation activation);

/// What a kernel multiplies in, for rooflines: the matrix unit's type, and how many of its multiplications stand for
/// one of the op's dtype (3 for f32 as split3).
struct Arithmetic {
  std::string dtype{};  ///< "f64", "f32", "tf32", "f16" or "bf16"; in PlanDetails, empty: as dtype and math say
  int products = 0;     ///< in PlanDetails, 0: as the math says
};

/// Weights in a kernel's own order, in one device's memory. Valid for every plan with the same packing there.
class GABLE_API PackedWeights {
 public:
  PackedWeights() = default;
  PackedWeights(Tensor::Storage storage, std::size_t bytes, std::uint64_t key)
      : storage_(std::move(storage)), bytes_(bytes), key_(key) {}  ///< Plan::pack()'s

  const void* data() const { return storage_.get(); }  ///< in the memory of the plan
  std::size_t bytes() const { return bytes_; }         ///< of data()
  std::uint64_t key() const { return key_; }           ///< equal keys mean the same packing

 private:
  Tensor::Storage storage_;
  std::size_t bytes_ = 0;
  std::uint64_t key_ = 0;
};

/// Movable; one that was moved from throws Error(invalid_argument). So does run() of one plan from two threads at once
/// (they would share its workspace) in the second one. Two plans are independent, also of one device, and can share
/// packed weights.
class GABLE_API Plan {
 public:
  /// Device::plan() makes plans. `explanation` is explain()'s; if it is empty, the text of `impl` is.
  Plan(const Op& op, std::shared_ptr<const DeviceImpl> device, std::unique_ptr<PlanImpl> impl,
       std::string explanation = {});
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;
  ~Plan();

  const Op& op() const;               ///< as given to Device::plan()
  const Shape& output_shape() const;  ///< of y, after a fused pool
  Work work() const;                  ///< of one run
  /// What `auto` chose and why, if it did; then kernel, target, tile, blocking, fusion, threads; then a line for each
  /// kernel of the device that refused the op, with its reason.
  std::string explain() const;
  std::string kernel() const;           ///< as query() and ?kernel= name it
  bool fused() const;                   ///< the whole epilogue runs inside the kernel
  ErrorBound error_bound() const;       ///< of its results
  Arithmetic arithmetic() const;        ///< what its roof is made of
  std::size_t workspace_bytes() const;  ///< the plan's own memory, besides the tensors
  int threads() const;                  ///< of the CPU, that run() uses: may be fewer than the device has; 0 on a GPU
  std::string device_uri() const;       ///< of the device that runs the plan: "cpu" where `auto` chose the CPU
  Memory memory() const;                ///< where the plan's tensors lie
  std::uint64_t packing() const;        ///< key() of the packed weights that run() takes

  /// Reorders weights for run(). Call it once, outside the hot loop. `weights` are (K, C/groups, R, S), or (k, n) for a
  /// matmul, row-major, in this plan's dtype and memory; on a GPU the default stream reads them. Every plan with the
  /// same packing on the same device takes the result: mostly plans of the same layer with another batch size, image
  /// size or epilogue. Throws Error(invalid_argument), Error(out_of_memory).
  PackedWeights pack(const ConstTensorView& weights) const;

  /// Runs a conv2d or a matmul. Shapes, dtypes, layouts and memory are checked; nothing is allocated. Asynchronous on a
  /// stream where the device is. `bias` is f32 with one element for each channel of the output; it must be given if and
  /// only if the op has one. NCHW and NHWC are the same order where C = 1 or H = W = 1; either is then accepted.
  /// The memory of y must not overlap that of an input, the bias or the packed weights. Throws Error(invalid_argument)
  /// naming the tensor.
  void run(const ConstTensorView& x, const PackedWeights& weights, const TensorView& y,
           const Stream& stream = {}) const;
  void run(const ConstTensorView& x, const PackedWeights& weights, const ConstTensorView& bias, const TensorView& y,
           const Stream& stream = {}) const;  ///< the same with a bias
  /// Run ops with one input, and with two, under the same rules. One exception: the output of an Add or an Activate may
  /// be exactly one of its inputs (a = a + b).
  void run(const ConstTensorView& x, const TensorView& y, const Stream& stream = {}) const;
  void run(const ConstTensorView& a, const ConstTensorView& b, const TensorView& y, const Stream& stream = {}) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gable
