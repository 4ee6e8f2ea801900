// Which problems the fast depthwise kernel takes, packing, and the loop over units (image, block of rows).
#include "cpu/depthwise/depthwise.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "cpu/common/cache.h"
#include "cpu/common/coverage.h"
#include "cpu/common/half.h"
#include "cpu/common/parallel.h"
#include "cpu/common/tiling.h"
#include "cpu/common/unit_description.h"

namespace gable::cpu {
namespace {

// 512 B of neighbouring channels a pixel: long enough for the hardware's prefetcher, and the nine taps' weights of a
// block (4.6 KB) stay in L1.
constexpr std::int64_t kBlockChannels = 128;

bool takes_pairs(const Conv2dProblem& p, const DepthwiseKernels& kernels) {
  return p.dtype == DType::bf16 && p.c >= 2 * kernels.lanes;
}

/// Even, so that only the image's last row has no partner.
std::int64_t choose_unit_rows(const Conv2dProblem& p, int threads) {
  return round_up(ceil_div(p.ho, ceil_div(units_wanted(threads), p.n)), kDepthwiseRows);
}

}  // namespace

std::string depthwise_refusal(const Conv2dProblem& p, const Target& target) {
  if (!target.supported) return "target " + std::string(target.name) + " is not supported by this CPU";
  if (!is_depthwise(p)) return "it takes several groups of one channel each";
  if (!p.nhwc) return "layout nchw: its lanes are channels, which must be neighbours";
  if (p.r != kDepthwiseTaps || p.s != kDepthwiseTaps) {
    return "kernel " + text(p.r) + "x" + text(p.s) + ": it is made for 3x3";
  }
  if (p.stride_h != p.stride_w || p.stride_h > 2) {
    return "stride " + text(p.stride_h) + "x" + text(p.stride_w) + ": it is made for 1x1 and 2x2";
  }
  if (p.dilation_h != 1 || p.dilation_w != 1) return "it is made for no dilation";
  if (!p.pool.none()) return "it fuses no max-pool";
  if (p.activation == Activation::tanh) return "it fuses relu, not tanh";
  const int lanes = depthwise_kernels(target).lanes;
  if (p.c < lanes) return text(p.c) + " channels are less than a vector of " + text(lanes);
  const std::int64_t right = column_axis(p).overhang();
  if (p.pad_left > 1 || right > 1) {
    return "columns of padding: " + text(p.pad_left) + " left, " + text(right) + " right; it is made for at most 1";
  }
  if (p.pad_left + std::max<std::int64_t>(right, 0) >= kDepthwiseTaps - 1 && p.wo == 1) {
    return "one output pixel with padding on both sides";
  }
  return "";
}

DepthwisePlan::DepthwisePlan(const Conv2dProblem& problem, const Target& target, int threads)
    : problem_(checked("depthwise", problem, target, threads)),
      target_(&target),
      kernels_(&depthwise_kernels(target)),
      pairs_(takes_pairs(problem, *kernels_)),
      lanes_(pairs_ ? 2 * kernels_->lanes : kernels_->lanes),
      threads_(threads),
      unit_rows_(choose_unit_rows(problem, threads)),
      row_blocks_(ceil_div(problem.ho, unit_rows_)),
      bias_(static_cast<std::size_t>(groups() * lanes_)) {
  if (row_axis(problem).padded()) {
    zeros_ =
        AlignedFloats(static_cast<std::size_t>(problem.w * problem.c) * size_of(problem.dtype) / sizeof(float) + 1);
  }
}

/// In a pair of vectors the first has the even channels, the second the odd ones.
std::int64_t DepthwisePlan::channel_of(std::int64_t group, std::int64_t lane) const {
  const std::int64_t first = std::min(group * lanes_, problem_.c - lanes_);
  if (!pairs_) return first + lane;
  const std::int64_t half = lanes_ / 2;
  return first + lane % half * 2 + lane / half;
}

std::size_t DepthwisePlan::packed_bytes() const {
  return static_cast<std::size_t>(groups() * kDepthwiseTaps * kDepthwiseTaps * lanes_) * sizeof(float);
}

Packing DepthwisePlan::packing() const { return packing_of(problem_, "depthwise", {lanes_, pairs_ ? 1 : 0}); }

std::int64_t DepthwisePlan::moved_bytes() const {
  return (problem_.x_elements() + problem_.y_elements()) * static_cast<std::int64_t>(size_of(problem_.dtype));
}

// If y does not stay in L2, non-temporal stores save the reads that ordinary stores make of the lines they fill. A
// vector narrower than a line would write it to memory in parts.
bool DepthwisePlan::non_temporal() const {
  return problem_.dtype == DType::f32 && problem_.c % lanes_ == 0 && lanes_ * 4 == 64 && moved_bytes() > 4 * l2_bytes();
}

void DepthwisePlan::pack(const void* weights, const WeightStrides& strides, void* packed) const {
  auto* out = static_cast<float*>(packed);
  for (std::int64_t group = 0; group < groups(); ++group) {
    for (std::int64_t kh = 0; kh < kDepthwiseTaps; ++kh) {
      for (std::int64_t kw = 0; kw < kDepthwiseTaps; ++kw) {
        for (std::int64_t lane = 0; lane < lanes_; ++lane) {
          const std::int64_t tap = kh * strides.row + kw * strides.column;
          *out++ = element_as_f32(weights, problem_.dtype, channel_of(group, lane) * strides.out + tap);
        }
      }
    }
  }
}

void DepthwisePlan::run(const void* x, const void* packed, const float* bias, void* y) {
  const Conv2dProblem& p = problem_;
  note_path(p.stride_h == 1 ? Path::depthwise_stride1 : Path::depthwise_stride2, *target_);
  if (pairs_) note_path(Path::depthwise_pairs, *target_);
  const auto bytes = static_cast<std::int64_t>(size_of(p.dtype));
  const std::int64_t x_row = p.w * p.c * bytes;
  const std::int64_t y_row = p.wo * p.c * bytes;
  for (std::int64_t i = 0; i < groups() * lanes_; ++i) {
    const float value = p.bias ? bias[channel_of(i / lanes_, i % lanes_)] : 0.0F;
    bias_.data()[i] = std::isnan(value) ? std::numeric_limits<float>::quiet_NaN() : value;  // no payload to round
  }
  DepthwiseCall shared{};
  shared.weights = static_cast<const float*>(packed);
  shared.bias = bias_.data();
  shared.channels = p.c;
  shared.block_channels = kBlockChannels * 4 / bytes;
  shared.pixels = p.wo;
  shared.left = static_cast<int>(p.pad_left);
  shared.right_outside = column_axis(p).overhang() > 0;
  shared.prefetch_bytes = moved_bytes() > l3_bytes() / 2 ? kDepthwiseRows * p.stride_h * x_row : 0;
  shared.relu = p.activation == Activation::relu;
  shared.non_temporal = non_temporal() && reinterpret_cast<std::uintptr_t>(y) % 64 == 0;
  const auto stride = static_cast<std::size_t>(p.stride_h - 1);
  const DepthwiseFunction(&functions)[kDepthwiseRows] =
      pairs_ ? kernels_->pairs[stride] : kernels_->rows[static_cast<int>(p.dtype)][stride];
  parallel_units(threads_, p.n * row_blocks_, [&](std::int64_t unit, int) {
    const std::int64_t image = unit / row_blocks_;
    const std::int64_t first = unit % row_blocks_ * unit_rows_;
    const std::int64_t end = std::min(first + unit_rows_, p.ho);
    const char* x_image = static_cast<const char*>(x) + image * p.h * x_row;
    char* y_image = static_cast<char*>(y) + image * p.ho * y_row;
    DepthwiseCall call = shared;
    for (std::int64_t row = first; row < end; row += kDepthwiseRows) {
      const std::int64_t rows = std::min<std::int64_t>(kDepthwiseRows, end - row);
      const std::int64_t input_rows = (rows - 1) * p.stride_h + kDepthwiseTaps;
      for (std::int64_t i = 0; i < input_rows; ++i) {
        const std::int64_t source = row * p.stride_h - p.pad_top + i;
        const bool inside = source >= 0 && source < p.h;
        call.rows[static_cast<std::size_t>(i)] = inside ? x_image + source * x_row : static_cast<void*>(zeros_.data());
      }
      for (std::int64_t i = 0; i < rows; ++i) call.y[static_cast<std::size_t>(i)] = y_image + (row + i) * y_row;
      functions[rows - 1](call);
    }
    if (call.non_temporal) hwy::FlushStream();
  });
}

Conv2dDescription DepthwisePlan::description() const {
  Conv2dDescription d;
  d.kernel = "depthwise";
  d.target = target_->name;
  const bool tiles = problem_.wo > kernels_->pixels;  // else pixel by pixel
  d.tile = text(std::min<std::int64_t>(kDepthwiseRows, problem_.ho)) + "x" + text(tiles ? kernels_->pixels : 1) +
           " pixels x " + text(lanes_) + " channels";
  d.blocking =
      "unit " + text(std::min(unit_rows_, problem_.ho)) + " rows, " + text(problem_.n * row_blocks_) + " units";
  d.fusion = std::string("input in place, ") + describe_epilogue(problem_, true, true) +
             (non_temporal() ? ", non-temporal stores" : "");
  d.threads = threads_;
  return d;
}

}  // namespace gable::cpu
