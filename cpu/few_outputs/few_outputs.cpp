// Which problems it takes, its packing, its units, and its estimated time.
#include "cpu/few_outputs/few_outputs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/common/cache.h"
#include "cpu/common/core.h"
#include "cpu/common/coverage.h"
#include "cpu/common/estimate.h"
#include "cpu/common/half.h"
#include "cpu/common/parallel.h"
#include "cpu/common/strides.h"

namespace gable::cpu {
namespace {

constexpr std::int64_t kMaxUnitPixels = 512;

/// Costs in cycles: of a product's share of fma_cycles(), of a converted vector, of four sums over a vector's lanes, of
/// a stored vector, of a row of pixels, and of a run. Fitted on Zen 5.
constexpr double kProduct = 0.9, kConverted = 0.15, kFourSums = 5.8, kStoredVector = 3, kRow = 20, kRun = 250;
/// A converted vector of bf16 on a Xeon with AMX, by which its pick between this kernel and AMX is best.
constexpr double kConvertedBesideAmx = 2;
/// To load a vector from L1, and one of weights that L1 does not keep.
constexpr double kNearLoad = 0.5, kWeightOfL2 = 1.35;

std::int64_t steps_of(const Conv2dProblem& p, const FewOutputsKernels& kernels) {
  return ceil_div(p.c, std::int64_t{kernels.lanes});
}

/// Cycles to convert a vector of inputs.
double converted_cycles(DType type) {
  if (type == DType::f32) return 0;
  return type == DType::bf16 && core_kind() == CoreKind::amx ? kConvertedBesideAmx : kConverted;
}

/// The cycles of all pixels.
double cycles_of(const Conv2dProblem& p, const Target& target) {
  const FewOutputsKernels& kernels = few_outputs_kernels(target);
  const std::int64_t tile = kernels.pixels[static_cast<std::size_t>(p.k)];
  const Conv2dProblem row = with_pixels_in_a_row(p);
  const auto rows = static_cast<double>(row.n * row.ho);
  const double tiles = rows * static_cast<double>(ceil_div(row.wo, tile));
  const auto sums = static_cast<double>(tile * p.k), inputs = static_cast<double>(tile);
  // Products, or loads of inputs and weights.
  const std::int64_t weight_bytes = p.c * p.k * static_cast<std::int64_t>(sizeof(float));
  const double weight = weight_bytes <= l1_bytes() * 3 / 4 ? kNearLoad : kWeightOfL2;
  const double loads = inputs * kNearLoad + static_cast<double>(p.k) * weight;
  const double step =
      kProduct * std::max(sums * fma_cycles(target, kernels.lanes), loads) + inputs * converted_cycles(p.dtype);
  const double of_tile = static_cast<double>(steps_of(p, kernels)) * step + kFourSums * std::ceil(sums / 4);
  const auto stored = static_cast<double>(ceil_div(p.y_elements(), std::int64_t{kernels.lanes}));
  return tiles * of_tile + stored * kStoredVector + rows * kRow + kRun;
}

/// A short run is one unit: threads would take longer to begin.
std::int64_t unit_pixels(const Conv2dProblem& p, const Target& target, int threads) {
  const std::int64_t pixels = p.n * p.ho * p.wo;
  if (threads == 1 || cycles_of(p, target) < break_even_cycles(threads)) return std::min(pixels, kMaxUnitPixels);
  const std::int64_t tile = few_outputs_kernels(target).pixels[static_cast<std::size_t>(p.k)];
  const std::int64_t most = std::min(kMaxUnitPixels, ceil_div(pixels, units_wanted(threads)));
  return std::min(pixels, round_up(even_part(pixels, most), tile));
}

}  // namespace

std::string few_outputs_refusal(const Conv2dProblem& p, const Target& target) {
  if (!target.supported) return "target " + std::string(target.name) + " is not supported by this CPU";
  if (p.r * p.s != 1) return "kernel " + text(p.r) + "x" + text(p.s) + ": it is made for 1x1";
  if (p.groups != 1) return text(p.groups) + " groups: it takes one";
  if (p.k > kMaxFewOutputs) return text(p.k) + " output channels; it takes at most " + text(kMaxFewOutputs);
  if (!p.nhwc) return "layout nchw: it reads a pixel's channels as neighbours";
  if (!p.pool.none()) return "it fuses no max-pool";
  if (p.activation == Activation::tanh) return "it fuses relu, not tanh";
  if (p.pad_top != 0 || p.pad_left != 0 || (p.ho - 1) * p.stride_h >= p.h || (p.wo - 1) * p.stride_w >= p.w) {
    return "it takes no padding";
  }
  return "";
}

double few_outputs_seconds(const Conv2dProblem& p, const Target& target, int threads) {
  const std::int64_t units = ceil_div(p.n * p.ho * p.wo, unit_pixels(p, target, threads));
  return estimated_seconds(p, cycles_of(p, target), units, threads);
}

FewOutputsPlan::FewOutputsPlan(const Conv2dProblem& problem, const Target& target, int threads)
    : problem_(with_pixels_in_a_row(checked("few_outputs", problem, target, threads))),
      target_(&target),
      kernels_(&few_outputs_kernels(target)),
      threads_(threads),
      unit_pixels_(unit_pixels(problem, target, threads)),
      workspace_(bias_floats() + static_cast<std::size_t>(threads) * sums_floats(), bias_floats()) {
  clear_leftovers(workspace_.data() + bias_floats(), workspace_.size() - bias_floats());
}

std::size_t FewOutputsPlan::packed_bytes() const {
  return static_cast<std::size_t>(steps_of(problem_, *kernels_) * problem_.k * kernels_->lanes) * sizeof(float);
}

Packing FewOutputsPlan::packing() const { return packing_of(problem_, "few_outputs", {kernels_->lanes}); }

void FewOutputsPlan::pack(const void* weights, const WeightStrides& strides, void* packed) const {
  auto* out = static_cast<float*>(packed);
  for (std::int64_t step = 0; step < steps_of(problem_, *kernels_); ++step) {
    for (std::int64_t output = 0; output < problem_.k; ++output) {
      for (std::int64_t lane = 0; lane < kernels_->lanes; ++lane) {
        const std::int64_t channel = step * kernels_->lanes + lane;
        const std::int64_t source = output * strides.out + channel * strides.in;
        *out++ = channel < problem_.c ? element_as_f32(weights, problem_.dtype, source) : 0.0f;
      }
    }
  }
}

void FewOutputsPlan::run(const void* x, const void* packed, const float* bias, void* y) {
  const Conv2dProblem& p = problem_;
  const auto type = static_cast<std::size_t>(p.dtype);
  const std::int64_t period = p.k * kernels_->lanes, pixels = p.n * p.ho * p.wo;
  float* const biases = workspace_.data();
  for (std::int64_t i = 0; p.bias && i < period; i += p.k) std::copy_n(bias, p.k, biases + i);
  note_path(Path::few_outputs, *target_);
  parallel_units(threads_, ceil_div(pixels, unit_pixels_), [&](std::int64_t unit, int thread) {
    const std::int64_t first = unit * unit_pixels_, end = std::min(pixels, first + unit_pixels_);
    float* const sums = biases + bias_floats() + static_cast<std::size_t>(thread) * sums_floats();
    FewOutputsCall call{.x = nullptr,
                        .x_pixel = p.stride_w * p.c,
                        .pixels = 0,
                        .channels = p.c,
                        .weights = static_cast<const float*>(packed),
                        .sums = sums};
    for (std::int64_t pixel = first; pixel < end; pixel += call.pixels) {
      const std::int64_t column = pixel % p.wo, row = pixel / p.wo % p.ho, image = pixel / p.wo / p.ho;
      call.pixels = std::min(end - pixel, p.wo - column);
      call.x = advance(x, p.dtype, ((image * p.h + row * p.stride_h) * p.w + column * p.stride_w) * p.c);
      call.sums = sums + (pixel - first) * p.k;
      kernels_->sum[type][p.k](call);
    }
    kernels_->finish[type]({.sums = sums,
                            .count = (end - first) * p.k,
                            .bias = biases,
                            .period = period,
                            .least = p.activation == Activation::relu ? 0.0f : -std::numeric_limits<float>::infinity(),
                            .y = advance(y, p.dtype, first * p.k)});
  });
}

Conv2dDescription FewOutputsPlan::description() const {
  const Conv2dProblem& p = problem_;
  Conv2dDescription d;
  d.kernel = "few_outputs";
  d.target = target_->name;
  d.tile = text(kernels_->pixels[static_cast<std::size_t>(p.k)]) + " pixels x " + text(p.k) + " outputs, " +
           text(kernels_->lanes) + " channels a step";
  d.blocking = "each pixel read once, unit " + text(unit_pixels_) + " pixels, " +
               text(ceil_div(p.n * p.ho * p.wo, unit_pixels_)) + " units";
  d.fusion = "input in place, no pool, bias and activation from L1";
  d.threads = threads_;
  return d;
}

}  // namespace gable::cpu
