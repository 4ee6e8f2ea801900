// The epilogue of sums that tiles did not store themselves (kernels.h): pool, bias, activation, conversion and store,
// compiled once for each target.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/planes/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/planes/epilogue.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <limits>

#include "cpu/common/half.h"
#include "cpu/common/stream-inl.h"
#include "cpu/common/tanh-inl.h"
#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {
namespace planes_epilogue {

namespace hn = hwy::HWY_NAMESPACE;
using planes::FinishCall;
using planes::FinishKernels;
using planes::Piece;

using F = hn::ScalableTag<float>;
using V = hn::Vec<F>;
constexpr std::int64_t lanes_of_vector() { return static_cast<std::int64_t>(hn::MaxLanes(F())); }

/// One vector of pixels after the pool. `sums` is the first pixel's window.
HWY_INLINE V pooled(const FinishCall& call, const float* sums) {
  const F d;
  const std::int64_t step = call.pool.stride_w;
  const auto load = [&](const float* from) HWY_ATTR {
    if (step == 1) return hn::LoadU(d, from);
#if HWY_TARGET != HWY_SCALAR
    if (step == 2) return hn::ConcatEven(d, hn::LoadU(d, from + lanes_of_vector()), hn::LoadU(d, from));
#endif
    HWY_ALIGN float values[hn::MaxLanes(F())];
    for (std::int64_t i = 0; i < lanes_of_vector(); ++i) values[i] = from[i * step];
    return hn::Load(d, values);
  };
  V best = load(sums);
  for (std::int64_t h = 0; h < call.pool.h; ++h) {
    for (std::int64_t w = h == 0 ? 1 : 0; w < call.pool.w; ++w) best = nan_max(d, best, load(sums + h * call.row + w));
  }
  return best;
}

/// Stores the first `count` results of each vector, which is prepared once for many vectors.
template <DType kType>
class ResultStore {
 public:
  ResultStore(const FinishCall& call, std::int64_t count)
      : count_(std::min(count, lanes_of_vector())), non_temporal_(call.non_temporal) {}

  HWY_INLINE void operator()(V value, Storage<kType>* y) const {
    const F d;
    if (count_ < lanes_of_vector()) return store_part(value, y);
    constexpr std::size_t kBytes = hn::MaxLanes(F()) * sizeof(*y);
    if (non_temporal_ && reinterpret_cast<std::uintptr_t>(y) % kBytes == 0) return stream_f32_as<kType>(d, value, y);
    store_f32_as<kType>(d, value, y);
  }

 private:
  HWY_INLINE void store_part(V value, Storage<kType>* y) const {
    store_first_f32_as<kType>(F(), value, y, static_cast<int>(count_));
  }

  std::int64_t count_;
  bool non_temporal_;
};

/// Bias and activation. Without bias, `bias` points to a zero.
struct Activate {
  V least;
  bool tanh;
  explicit Activate(const FinishCall& call)
      : least(hn::Set(F(), call.activation == Activation::relu ? 0.0f : -std::numeric_limits<float>::infinity())),
        tanh(call.activation == Activation::tanh) {}
  HWY_INLINE V operator()(V value, const float* bias) const {
    const F d;
    value = at_least(d, least, hn::Add(value, hn::Set(d, *bias)));
    return HWY_UNLIKELY(tanh) ? tanh_f32(d, value) : value;
  }
};
constexpr float kNoBias = 0.0f;

/// One vector of each lane's pixels.
template <DType kType, bool kPools>
HWY_INLINE void finish_lanes(const FinishCall& call, const float* sums, Storage<kType>* y, std::int64_t count) {
  const F d;
  const Activate activate(call);
  const ResultStore<kType> store(call, count);
  const float* bias = call.bias == nullptr ? &kNoBias : call.bias;
  const std::int64_t bias_step = call.bias == nullptr ? 0 : 1;
  for (int lane = 0; lane < call.lanes; ++lane) {
    V value;
    if constexpr (kPools) {
      value = pooled(call, sums);
    } else {
      value = hn::LoadU(d, sums);
    }
    store(activate(value, bias), y);
    sums += call.lane;
    y += call.plane;
    bias += bias_step;
  }
}

template <DType kType>
void finish(const FinishCall& call) {
  for (std::int64_t p = 0; p < call.piece_count; ++p) {
    const Piece& piece = call.pieces[p];
    Storage<kType>* y = static_cast<Storage<kType>*>(call.y) + piece.y;
    for (std::int64_t i = 0; i < piece.count; i += lanes_of_vector()) {
      if (call.pool.none()) {
        finish_lanes<kType, false>(call, call.sums + piece.sums + i, y + i, piece.count - i);
      } else {
        finish_lanes<kType, true>(call, call.sums + piece.sums + i * call.pool.stride_w, y + i, piece.count - i);
      }
    }
  }
}

#if HWY_TARGET == HWY_AVX3
/// The 4x4 blocks of 4 rows, transposed: block b of result i is column 4b + i.
HWY_INLINE void transpose_blocks(V (&rows)[4]) {
  const F d;
  const hn::Repartition<double, F> dd;
  const auto low01 = hn::BitCast(dd, hn::InterleaveLower(d, rows[0], rows[1]));
  const auto high01 = hn::BitCast(dd, hn::InterleaveUpper(d, rows[0], rows[1]));
  const auto low23 = hn::BitCast(dd, hn::InterleaveLower(d, rows[2], rows[3]));
  const auto high23 = hn::BitCast(dd, hn::InterleaveUpper(d, rows[2], rows[3]));
  rows[0] = hn::BitCast(d, hn::InterleaveLower(dd, low01, low23));
  rows[1] = hn::BitCast(d, hn::InterleaveUpper(dd, low01, low23));
  rows[2] = hn::BitCast(d, hn::InterleaveLower(dd, high01, high23));
  rows[3] = hn::BitCast(d, hn::InterleaveUpper(dd, high01, high23));
}

/// 16 pixels of 16 lanes, from registers to y.
template <DType kType>
HWY_INLINE void finish_block(const FinishCall& call, const float* sums, int first_lane, Storage<kType>* y,
                             std::int64_t pixels) {
  const F d;
  V groups[4][4];
  HWY_UNROLL(4) for (int g = 0; g < 4; ++g) {
    HWY_UNROLL(4) for (int i = 0; i < 4; ++i) groups[g][i] = hn::LoadU(d, sums + (4 * g + i) * call.lane);
    transpose_blocks(groups[g]);
  }
  const Activate activate(call);
  const ResultStore<kType> store_pixels(call, pixels);
  const auto store = [&](int lane, V value) HWY_ATTR {
    if (first_lane + lane >= call.lanes) return;
    const float* bias = call.bias == nullptr ? &kNoBias : call.bias + first_lane + lane;
    store_pixels(activate(value, bias), y + lane * call.plane);
  };
  HWY_UNROLL(4) for (int i = 0; i < 4; ++i) {
    const V a = groups[0][i], b = groups[1][i], c = groups[2][i], e = groups[3][i];
    const V even_ab = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a);
    const V odd_ab = hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a));
    const V even_ce = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(e), c);
    const V odd_ce = hn::OddEvenBlocks(e, hn::SwapAdjacentBlocks(c));
    store(i, hn::ConcatLowerLower(d, even_ce, even_ab));
    store(4 + i, hn::ConcatLowerLower(d, odd_ce, odd_ab));
    store(8 + i, hn::ConcatUpperUpper(d, even_ce, even_ab));
    store(12 + i, hn::ConcatUpperUpper(d, odd_ce, odd_ab));
  }
}

template <DType kType>
void finish_pixels(const FinishCall& call) {
  constexpr int kSide = 16;
  for (std::int64_t p = 0; p < call.piece_count; ++p) {
    const Piece& piece = call.pieces[p];
    for (int lane = 0; lane < call.lanes; lane += kSide) {
      Storage<kType>* y = static_cast<Storage<kType>*>(call.y) + lane * call.plane + piece.y;
      const float* sums = call.sums + piece.sums * call.lane + lane;
      for (std::int64_t i = 0; i < piece.count; i += kSide) {
        finish_block<kType>(call, sums + i * call.lane, lane, y + i, piece.count - i);
      }
    }
  }
}
#else
/// Sums of pixels by lanes: transposes them and finishes the result.
template <DType kType>
void finish_pixels(const FinishCall& call) {
  FinishCall transposed = call;
  std::int64_t pixels = 0;
  for (std::int64_t p = 0; p < call.piece_count; ++p) {
    pixels = std::max(pixels, call.pieces[p].sums + call.pieces[p].count);
  }
  transpose_32bit(call.sums, call.lane, call.transposed, planes::kTransposedPitch, pixels,
                  static_cast<std::int64_t>(call.lanes));
  transposed.sums = call.transposed;
  transposed.lane = planes::kTransposedPitch;
  finish<kType>(transposed);
}
#endif

const FinishKernels& kernels_here() {
  static const FinishKernels kernels{
      .lanes = {&finish<DType::f32>, &finish<DType::f16>, &finish<DType::bf16>},
      .pixels = {&finish_pixels<DType::f32>, &finish_pixels<DType::f16>, &finish_pixels<DType::bf16>}};
  return kernels;
}

}  // namespace planes_epilogue
}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu::planes {

const FinishKernels& finish_kernels(const Target& target) {
  GABLE_CPU_RETURN_OF(target, planes_epilogue::kernels_here());
}

}  // namespace gable::cpu::planes
#endif  // HWY_ONCE
