// A plan for a range of batches: each run may have another number of images and uses the best device and kernel for
// that number, with weights that are packed once, if the op has weights.
#pragma once

#include <gable/export.h>
#include <gable/ops.h>
#include <gable/plan.h>
#include <gable/tensor.h>

#include <cstdint>
#include <memory>
#include <string>

namespace gable {

class Device;

/// Both ends are included: 1 <= least <= most.
struct BatchRange {
  std::int64_t least = 1;
  std::int64_t most = 1;
};

/// Weights for every plan of a BatchPlan. Copies share them.
class GABLE_API BatchWeights {
 public:
  BatchWeights() = default;
  int packings() const;  ///< in how many orders they have been packed so far

 private:
  friend class BatchPlan;
  struct State;
  std::shared_ptr<State> state_;
};

/// The plans of one op whose batch varies: the first dimension of its inputs, m of a Matmul. Device::plan(op,
/// BatchRange) makes it and decides which device and kernel take which batches: by what Device::plan(op) would choose
/// at the ends of the range and at powers of two and, if two of these differ, at batches between them. The plan for a
/// batch is made at its first run, and the 64 plans that were used last are kept. Movable, like Plan. Several threads
/// may use it at the same time if each runs a different batch.
class GABLE_API BatchPlan {
 public:
  /// Device::plan()'s.
  BatchPlan(const Device& device, const Op& op, BatchRange range);
  BatchPlan(BatchPlan&&) noexcept;
  BatchPlan& operator=(BatchPlan&&) noexcept;
  ~BatchPlan();

  BatchRange range() const;  ///< as given to Device::plan()
  /// "batches 1 to 7: cpu/pointwise": a line for each run of batches with one device and kernel. The kernel is that of
  /// the first batch; the device may take another of its kernels for the others.
  std::string explain() const;
  /// The plan that runs this batch; made now if there is none. Throws Error(invalid_argument) for a batch outside the
  /// range, and everything that Device::plan() throws.
  std::shared_ptr<const Plan> at(std::int64_t batch) const;

  /// Packs for all kernels that are known to be needed; run() packs for a further kernel when it is first needed.
  /// `weights` are as for Plan::pack(). Their memory must not change while the result is used. Throws
  /// Error(invalid_argument), Error(out_of_memory).
  BatchWeights pack(const ConstTensorView& weights) const;

  /// Plan::run() of the plan of x's batch, which is x.shape[0], of a Conv2d or Matmul: without a bias, or with one.
  void run(const ConstTensorView& x, const BatchWeights& weights, const TensorView& y, const Stream& stream = {}) const;
  void run(const ConstTensorView& x, const BatchWeights& weights, const ConstTensorView& bias, const TensorView& y,
           const Stream& stream = {}) const;  ///< `bias` has one f32 for each channel of the output
  /// Of ops with one input, and with two. All throw what Plan::run() throws, and Error(invalid_argument) for a batch
  /// outside the range or an op that takes other tensors.
  void run(const ConstTensorView& x, const TensorView& y, const Stream& stream = {}) const;
  void run(const ConstTensorView& a, const ConstTensorView& b, const TensorView& y, const Stream& stream = {}) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gable
