// The consumer of the wgmma kernel: a warpgroup that waits for full stages, issues the matrix products, releases the
// stages and runs the epilogue.
#pragma once

#include "cuda/wgmma/epilogue.cuh"
#include "cuda/wgmma/pipeline.cuh"
#include "cuda/wgmma/schedule.cuh"

namespace gable::cuda::wgmma {

/// Where each step of a consumer's item finds its operands. The next step's addresses are computed while the matrix
/// unit works on the current one, because the unit idles between two steps.
class Steps {
 public:
  __device__ Steps(const WgmmaArguments& a, const SharedMemory& m, const WgmmaShare& share, int slice)
      : a_(a), m_(m), blocks_(share.end - share.begin), first_box_(share.index), slice_(slice) {}

  __device__ void begin(const Cursor& box, const Cursor& weights) {
    box_ = box;
    weights_ = weights;
    blocks_left_ = blocks_;
    index_ = first_box_;
    const WgmmaBox b = a_.boxes[index_];
    tap_ = b.first_tap;
    end_ = b.first_tap + b.taps;
    opens_box_ = true;
    ready_ = false;
    locate();
  }

  /// Waits for the step's operands.
  __device__ void wait() const {
    if (ready_) return;
    if (opens_box_) ptx::wait(m_.box_full(box_.slot), box_.round);
    ptx::wait(m_.weights_full(weights_.slot), weights_.round);
  }

  /// Goes to the next step, whose operands need not have arrived. Free of branches: it runs between products.
  __device__ void advance() {
    opens_box_ = tap_ + 1 == end_;
    closed_box_ = opens_box_ ? box_.slot : -1;
    used_weights_ = weights_.slot;
    weights_.advance_one(a_.stages.weights);
    Cursor next_box = box_;
    next_box.advance_one(a_.stages.boxes);
    const int next_index = index_ + 1 == a_.reduction.box_count ? 0 : index_ + 1;
    box_.slot = opens_box_ ? next_box.slot : box_.slot;
    box_.round = opens_box_ ? next_box.round : box_.round;
    index_ = opens_box_ ? next_index : index_;
    blocks_left_ -= opens_box_ ? 1 : 0;
    const WgmmaBox b = a_.boxes[index_];
    tap_ = opens_box_ ? b.first_tap : tap_ + 1;
    end_ = b.first_tap + b.taps;
    locate();
    // A box that serves several steps has been waited for already; its phase is complete.
    const bool weights_ready = ptx::is_complete(m_.weights_full(weights_.slot), weights_.round);
    const bool box_ready = ptx::is_complete(m_.box_full(box_.slot), box_.round);
    ready_ = weights_ready & box_ready;
  }

  __device__ bool done() const { return blocks_left_ == 0; }
  __device__ std::uint64_t left() const { return combine(left_, high_of(kWeightsPitch)); }
  __device__ std::uint64_t right() const { return combine(right_, high_of(a_.stages.group_pitch)); }
  /// The stages that the step before advance() was the last to read; -1: no box.
  __device__ int used_weights() const { return used_weights_; }
  __device__ int closed_box() const { return closed_box_; }
  __device__ const Cursor& box() const { return box_; }
  __device__ const Cursor& weights() const { return weights_; }

 private:
  static constexpr int kPixel = 128 >> 4;  // in the descriptor's units of 16 bytes
  static constexpr int kWeightsPitch = 1024;
  __device__ static std::uint32_t high_of(int group_pitch) {
    return static_cast<std::uint32_t>(ptx::operand_descriptor(0, group_pitch) >> 32);
  }
  __device__ static std::uint64_t combine(std::uint32_t low, std::uint32_t high) {
    return static_cast<std::uint64_t>(high) << 32 | low;
  }
  __device__ void locate() {
    left_ = static_cast<std::uint32_t>(ptx::operand_descriptor(m_.weights(weights_.slot, slice_), 0));
    right_ = static_cast<std::uint32_t>(ptx::operand_descriptor(m_.box(box_.slot), 0)) + a_.shifts[tap_] * kPixel;
    asm volatile("" : "+r"(left_), "+r"(right_));  // computes both here, not at their use
  }

  const WgmmaArguments& a_;
  const SharedMemory& m_;
  int blocks_, first_box_, slice_;
  Cursor box_, weights_;
  int blocks_left_ = 0, index_ = 0, tap_ = 0, end_ = 0, used_weights_ = -1, closed_box_ = -1;
  bool opens_box_ = true, ready_ = false;
  std::uint32_t left_ = 0, right_ = 0;
};

/// The same where boxes and weights have common stages.
class StepsOfStages {
 public:
  __device__ StepsOfStages(const WgmmaArguments& a, const SharedMemory& m, const WgmmaShare& share, int slice)
      : a_(a), m_(m), steps_(share.steps), slice_(slice) {}

  __device__ void begin(const Cursor& box, const Cursor&) {
    at_ = box;
    left_ = steps_;
    ready_ = false;
    locate();
  }
  __device__ void wait() const {
    if (!ready_) ptx::wait(m_.box_full(at_.slot), at_.round);
  }
  __device__ void advance() {
    used_ = at_.slot;
    at_.advance_one(a_.stages.boxes);
    --left_;
    locate();
    ready_ = ptx::is_complete(m_.box_full(at_.slot), at_.round);
  }
  __device__ bool done() const { return left_ == 0; }
  __device__ std::uint64_t left() const { return combine(left_operand_, kWeightsPitch); }
  __device__ std::uint64_t right() const { return combine(right_operand_, a_.stages.group_pitch); }
  __device__ int used_weights() const { return -1; }
  __device__ int closed_box() const { return used_; }
  __device__ const Cursor& box() const { return at_; }
  __device__ const Cursor& weights() const { return at_; }

 private:
  static constexpr int kWeightsPitch = 1024;
  __device__ static std::uint64_t combine(std::uint32_t low, int group_pitch) {
    return (ptx::operand_descriptor(0, group_pitch) >> 32) << 32 | low;
  }
  __device__ void locate() {
    left_operand_ = static_cast<std::uint32_t>(ptx::operand_descriptor(m_.weights(at_.slot, slice_), 0));
    right_operand_ = static_cast<std::uint32_t>(ptx::operand_descriptor(m_.box(at_.slot), 0));
    asm volatile("" : "+r"(left_operand_), "+r"(right_operand_));  // computes both here, not at their use
  }

  const WgmmaArguments& a_;
  const SharedMemory& m_;
  int steps_, slice_;
  Cursor at_;
  int left_ = 0, used_ = -1;
  bool ready_ = false;
  std::uint32_t left_operand_ = 0, right_operand_ = 0;
};

/// Gives stages back to the producers, once no product reads them.
struct Release {
  int box = -1, weights = -1;
  __device__ void operator()(const SharedMemory& m) const {
    if (threadIdx.x % 32 != 0) return;  // one arrival a warp
    if (weights >= 0) ptx::arrive(m.weights_empty(weights));
    if (box >= 0) ptx::arrive(m.box_empty(box));
  }
};

/// Issues an item's products. Returns the stages that the last products, still in flight, read.
template <typename T, int pixels, typename StepsOfItem>
__device__ Release multiply_item(const WgmmaArguments& a, const SharedMemory& m, StepsOfItem& steps,
                                 float (&sums)[pixels / 2]) {
  constexpr int kDescriptorStep = 32 >> 4;
  Release old;
  int accumulate = 0;
  do {
    steps.wait();
    const std::uint64_t left = steps.left(), right = steps.right();
    ptx::fence_operands();
    ptx::multiply<typename OperandOf<T>::Type, pixels>(sums, left, right, accumulate);
    steps.advance();
    accumulate = 1;
#pragma unroll
    for (int k = 1; k < 4; ++k) {
      ptx::multiply<typename OperandOf<T>::Type, pixels>(sums, left + k * kDescriptorStep, right + k * kDescriptorStep,
                                                         accumulate);
    }
    ptx::commit_products();
    ptx::wait_products<1>();
    old(m);
    old = {steps.closed_box(), a.stages.resident_weights ? -1 : steps.used_weights()};
  } while (!steps.done());
  return old;
}

template <typename T, int pixels, bool common>
__device__ void consume(const WgmmaArguments& a, const SharedMemory& m, int consumer) {
  const bool turns = a.reduction.schedule != WgmmaSchedule::one_tile;
  const int other = 1 - consumer;
  const Rounds rounds = rounds_of(a);
  const WgmmaShare share = share_of(a);
  // Stages of the other consumer's item, which lie between this consumer's in the rings.
  const int partner_boxes = turns ? share.end - share.begin : 0;
  const int partner_steps = turns && !a.stages.resident_weights ? share.steps : 0;
  Epilogue<T> epilogue(a, m);
  std::conditional_t<common, StepsOfStages, Steps> steps(a, m, share, turns ? 0 : consumer);
  Cursor box, weights;
  float sums[pixels / 2];
  if (turns && consumer == 1) ptx::named_arrive(kTurnBarrier, kConsumers * kWarpgroup);
  for (int first = rounds.begin; first < rounds.end; first += rounds.step) {
    const int item = first + consumer * rounds.partner;
    const bool active = item < rounds.end;
    const bool partner = first + other * rounds.partner < rounds.end;
    const Tile tile = tile_of(a, active ? item : first);
    const int channel = first_output(a, channel_slice(a, tile, consumer));
    epilogue.set_bias(channel);
    if (a.stages.resident_weights) weights = {};
    if (partner && consumer == 1) {
      box.advance(partner_boxes, a.stages.boxes);
      weights.advance(partner_steps, a.stages.weights);
    }
    Release old;
    if (turns) ptx::named_sync(kTurnBarrier + consumer, kConsumers * kWarpgroup);
    if (active) {
      steps.begin(box, weights);
      old = multiply_item<T, pixels>(a, m, steps, sums);
      box = steps.box();
      weights = steps.weights();
    }
    if (turns && (consumer == 0 || first + rounds.step < rounds.end)) {
      ptx::named_arrive(kTurnBarrier + other, kConsumers * kWarpgroup);
    }
    ptx::wait_products<0>();
    old(m);
    if (partner && consumer == 0) {
      box.advance(partner_boxes, a.stages.boxes);
      weights.advance(partner_steps, a.stages.weights);
    }
    if (!active) continue;
    ptx::fence_sums(sums);
    epilogue.template run<pixels>(sums, tile, channel);
  }
  if (threadIdx.x % kWarpgroup == 0) ptx::wait_stores_read<0>();  // shared memory must outlive them
}

}  // namespace gable::cuda::wgmma
