// Which problems the depthwise kernel of planes takes, how they are cut, and the loop over units (channels of an image,
// or a block of rows of one). A unit's input rows and results stay in L1: 40 KB.
#include "cpu/depthwise/depthwise_planes.h"

#include <algorithm>
#include <stdexcept>

#include "cpu/common/coverage.h"
#include "cpu/common/half.h"
#include "cpu/common/parallel.h"
#include "cpu/common/tiling.h"
#include "cpu/common/unit_description.h"

namespace gable::cpu {
namespace {

constexpr std::int64_t kUnitFloats = 10 << 10;
constexpr std::int64_t kMostThreadFloats = 256 << 10;

/// Offsets and size of a thread's part for b.unit_rows rows.
void lay_out(const Conv2dProblem& p, const DepthwisePlanesKernels& kernels, DepthwisePlanesBlocking& b) {
  const std::int64_t stride = p.stride_h;
  const std::int64_t rows = ceil_div((b.unit_rows - 1) * stride + kPlaneTaps, stride);
  b.pitch = ceil_div((p.wo - 1) * stride + kPlaneTaps, stride);
  // The last step reads past the last row, and rows are written in whole vectors.
  b.phase = static_cast<std::int64_t>(line_floats(rows * b.pitch + kernels.run_lanes + kPlaneTaps));
  b.out_offset = stride * stride * b.phase;
  b.plane_floats = b.out_offset + static_cast<std::int64_t>(line_floats(b.unit_rows * b.pitch + kernels.run_lanes));
}

DepthwisePlanesBlocking choose_blocking(const Conv2dProblem& p, const DepthwisePlanesKernels& kernels, int threads) {
  DepthwisePlanesBlocking b{};
  std::int64_t blocks = 1;
  const auto too_large = [&] {
    lay_out(p, kernels, b);
    const bool too_few = p.n * p.c * ceil_div(p.ho, b.unit_rows) < units_wanted(threads);
    return too_few || b.plane_floats > kUnitFloats;
  };
  do {
    b.unit_rows = ceil_div(p.ho, blocks++);
  } while (too_large() && b.unit_rows > 1);
  b.row_blocks = ceil_div(p.ho, b.unit_rows);
  const std::int64_t fair = threads == 1 ? p.c : std::max<std::int64_t>(1, p.n * p.c / units_wanted(threads));
  const std::int64_t fitting = std::max<std::int64_t>(1, kUnitFloats / b.plane_floats);
  b.unit_planes = b.row_blocks > 1 ? 1 : std::min({p.c, fair, fitting});
  b.plane_blocks = ceil_div(p.c, b.unit_planes);
  b.thread_floats = b.unit_planes * b.plane_floats;
  return b;
}

}  // namespace

std::string depthwise_planes_refusal(const Conv2dProblem& p, const Target& target) {
  if (!target.supported) return "target " + std::string(target.name) + " is not supported by this CPU";
  if (!is_depthwise(p)) return "it takes several groups of one channel each";
  if (p.nhwc) return "layout nhwc: its lanes are pixels, which must be neighbours";
  if (p.r != kPlaneTaps || p.s != kPlaneTaps) {
    return "kernel " + text(p.r) + "x" + text(p.s) + ": it is made for 3x3";
  }
  if (p.stride_h != p.stride_w || p.stride_h > 2) {
    return "stride " + text(p.stride_h) + "x" + text(p.stride_w) + ": it is made for 1x1 and 2x2";
  }
  if (p.dilation_h != 1 || p.dilation_w != 1) return "it is made for no dilation";
  if (!p.pool.none()) return "it fuses no max-pool";
  if (p.activation == Activation::tanh) return "it fuses relu, not tanh";
  if (p.pad_left >= kPlaneTaps) {
    return "columns of padding: " + text(p.pad_left) + " left; it is made for at most " + text(kPlaneTaps - 1);
  }
  DepthwisePlanesBlocking row{};
  row.unit_rows = 1;
  lay_out(p, depthwise_planes_kernels(target), row);
  if (row.plane_floats > kMostThreadFloats) return "rows of " + text(p.w) + " pixels: they exceed its buffers";
  return "";
}

DepthwisePlanesPlan::DepthwisePlanesPlan(const Conv2dProblem& problem, const Target& target, int threads)
    : problem_(checked("depthwise_planes", problem, target, threads)),
      target_(&target),
      kernels_(&depthwise_planes_kernels(target)),
      threads_(threads),
      blocking_(choose_blocking(problem, *kernels_, threads)),
      workspace_(static_cast<std::size_t>(threads * blocking_.thread_floats)) {}

std::size_t DepthwisePlanesPlan::packed_bytes() const {
  return static_cast<std::size_t>(kPlaneTaps * kPlaneTaps * problem_.c) * sizeof(float);
}

Packing DepthwisePlanesPlan::packing() const { return packing_of(problem_, "depthwise_planes", {}); }

void DepthwisePlanesPlan::pack(const void* weights, const WeightStrides& strides, void* packed) const {
  auto* out = static_cast<float*>(packed);
  for (std::int64_t c = 0; c < problem_.c; ++c) {
    for (std::int64_t kh = 0; kh < kPlaneTaps; ++kh) {
      for (std::int64_t kw = 0; kw < kPlaneTaps; ++kw) {
        *out++ = element_as_f32(weights, problem_.dtype, c * strides.out + kh * strides.row + kw * strides.column);
      }
    }
  }
}

void DepthwisePlanesPlan::run(const void* x, const void* packed, const float* bias, void* y) {
  const Conv2dProblem& p = problem_;
  const DepthwisePlanesBlocking& b = blocking_;
  note_path(p.stride_h == 1 ? Path::depthwise_planes_stride1 : Path::depthwise_planes_stride2, *target_);
  const auto bytes = static_cast<std::int64_t>(size_of(p.dtype));
  const auto* x_bytes = static_cast<const char*>(x);
  const auto function = kernels_->run[static_cast<int>(p.dtype)][p.stride_h - 1];
  parallel_units(threads_, p.n * b.plane_blocks * b.row_blocks, [&](std::int64_t unit, int thread) {
    const std::int64_t row = unit % b.row_blocks * b.unit_rows;
    const std::int64_t image = unit / b.row_blocks / b.plane_blocks;
    const std::int64_t channel = unit / b.row_blocks % b.plane_blocks * b.unit_planes;
    const std::int64_t plane = image * p.c + channel;
    DepthwisePlanesCall call{};
    call.input = {.x = x_bytes + plane * p.h * p.w * bytes,
                  .end = x_bytes + p.n * p.c * p.h * p.w * bytes,
                  .height = p.h,
                  .width = p.w,
                  .first_row = row * p.stride_h - p.pad_top,
                  .pad_left = p.pad_left};
    call.output = {.y = static_cast<char*>(y) + (plane * p.ho + row) * p.wo * bytes,
                   .rows = std::min(b.unit_rows, p.ho - row),
                   .columns = p.wo,
                   .height = p.ho};
    call.weights = static_cast<const float*>(packed) + channel * kPlaneTaps * kPlaneTaps;
    call.bias = p.bias ? bias + channel : nullptr;
    call.relu = p.activation == Activation::relu;
    call.planes = std::min(b.unit_planes, p.c - channel);
    call.workspace = workspace_.data() + thread * b.thread_floats;
    call.blocking = &b;
    function(call);
  });
}

Conv2dDescription DepthwisePlanesPlan::description() const {
  Conv2dDescription d;
  d.kernel = "depthwise_planes";
  d.target = target_->name;
  d.tile = text(kernels_->run_lanes) + " pixels of one channel, on from row to row";
  d.blocking = "unit " + text(blocking_.unit_planes) + " channels x " + text(blocking_.unit_rows) + " rows, " +
               text(problem_.n * blocking_.plane_blocks * blocking_.row_blocks) + " units";
  d.fusion = "input staged, " + describe_epilogue(problem_, true, true);
  d.threads = threads_;
  return d;
}

}  // namespace gable::cpu
