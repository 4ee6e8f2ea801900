// A plan for a range of batches: inputs of another number of images come, and run on the device and kernel that is
// right for that number, with weights that were packed once.
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
  int packings() const;  ///< how many orders they were packed into so far

 private:
  friend class BatchPlan;
  struct State;
  std::shared_ptr<State> state_;
};

/// The plans of one Conv2d or Matmul whose batch, input.n or m, varies. Device::plan(op, BatchRange) makes it: which
/// device and kernel take which batches is settled then, by what Device::plan(op) would choose at the ends of the range
/// and at powers of two; where those differ, the batches between are looked at as well. The plan of a batch is made
/// when that batch comes first, and the 64 plans that were used last are kept. Movable, as Plan is. Threads may use it
/// at once as long as each runs another batch.
class GABLE_API BatchPlan {
 public:
  /// Device::plan()'s.
  BatchPlan(const Device& device, const Op& op, BatchRange range);
  BatchPlan(BatchPlan&&) noexcept;
  BatchPlan& operator=(BatchPlan&&) noexcept;
  ~BatchPlan();

  BatchRange range() const;
  /// "batches 1 to 7: cpu/pointwise", a line for each run of batches with one choice. The kernel is the one at the
  /// first of them: a device may take another kernel of its own for others.
  std::string explain() const;
  /// The plan that runs this batch; made now if there is none. Throws Error(invalid_argument) for a batch outside the
  /// range, and what Device::plan() throws.
  std::shared_ptr<const Plan> at(std::int64_t batch) const;

  /// Packs for all kernels that are known to be needed; run() packs for another one when it comes up. `weights` are
  /// those of Plan::pack(): their memory must stay as it is while the result is used. Throws Error(invalid_argument),
  /// Error(out_of_memory).
  BatchWeights pack(const ConstTensorView& weights) const;

  /// Plan::run() of the plan of x's batch, which is x.shape[0].
  void run(const ConstTensorView& x, const BatchWeights& weights, const TensorView& y, const Stream& stream = {}) const;
  void run(const ConstTensorView& x, const BatchWeights& weights, const ConstTensorView& bias, const TensorView& y,
           const Stream& stream = {}) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gable
