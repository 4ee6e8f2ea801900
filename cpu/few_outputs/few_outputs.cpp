// Which problems it takes, its packing, its units, and its estimated time.
#include "cpu/few_outputs/few_outputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
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

/// Of a unit: its row's sums stay in L1, and so do the rows of its strips.
constexpr std::int64_t kMaxRowPixels = 512, kMaxRows = 8;
/// A strip has at most this many times L2's bytes: beyond, other kernels are faster.
constexpr double kMostStrips = 4;

/// Costs in cycles of the estimates' clock.
struct Costs {
  double product;      // a share of fma_cycles()
  double pair;         // of a product of pairs
  double input;        // a vector of inputs, besides the products
  double rest_input;   // more, of a run's last vector with fewer channels
  double f16, bf16;    // to convert a vector
  double four_sums;    // over a vector's lanes
  double staged_line;  // copied to a strip
};
/// Fitted on Zen 4, and on Emerald Rapids, which multiplies pairs every other cycle.
constexpr Costs kCosts{0.7, 0.75, 0.68, 1.2, 0.05, 0.05, 5.8, 3}, kBesideAmx{1, 2, 1, 2, 0.4, 1, 10, 5};
constexpr double kStoredVector = 3, kRow = 40, kRun = 250;
/// To load a vector from L1, and one of weights that L1 does not keep.
constexpr double kNearLoad = 0.5, kWeightOfL2 = 1.35;

/// Without dilation the columns of a window's row are neighbours: one run of channels.
std::int64_t runs_of(const Conv2dProblem& p) { return p.dilation_w == 1 ? 1 : p.s; }
std::int64_t run_channels(const Conv2dProblem& p) { return p.s * p.c / runs_of(p); }

/// Vectors of channels of a window's row.
std::int64_t row_steps(const Conv2dProblem& p, const FewOutputsKernels& kernels) {
  return runs_of(p) * ceil_div(run_channels(p), std::int64_t{kernels.step});
}

std::int64_t tile_pixels(const Conv2dProblem& p, const FewOutputsKernels& kernels) {
  return kernels.pixels[static_cast<std::size_t>(p.k)];
}

/// The pixels [begin, end) of a row whose windows reach beyond neither end of the image's rows.
struct InnerPixels {
  std::int64_t begin, end;
};
InnerPixels inner_pixels(const Conv2dProblem& p) {
  const WindowAxis axis = column_axis(p);
  const std::int64_t last_tap = (axis.taps - 1) * axis.dilation - axis.pad;
  return {std::min(p.wo, ceil_div(axis.pad, axis.stride)), taps_before(last_tap, p.w, axis.stride, p.wo)};
}

/// The pixels [begin, end) of a unit whose tiles read the image in place; empty where one strip is for all of them.
InnerPixels in_place_of(const Conv2dProblem& p, const UnitWindow& unit, std::int64_t tile) {
  const std::int64_t first = unit.first_pixel, last = first + unit.pixels;
  const InnerPixels inner = inner_pixels(p);
  const std::int64_t begin = first + round_up(std::max<std::int64_t>(0, inner.begin - first), tile);
  const std::int64_t end =
      inner.end >= last ? last : first + std::max<std::int64_t>(0, inner.end - first) / tile * tile;
  return begin < end ? InnerPixels{begin, end} : InnerPixels{last, last};
}

/// Rows or columns of input under so many of output.
std::int64_t span_of(const WindowAxis& axis, std::int64_t outputs) {
  return (outputs - 1) * axis.stride + (axis.taps - 1) * axis.dilation + 1;
}

/// Bytes of the longest strip of units of so many rows and pixels: it has rows of the image alone. A double, since a
/// far dilation has many columns.
double strip_bytes(const Conv2dProblem& p, std::int64_t rows, std::int64_t unit_pixels, std::int64_t tile) {
  const InnerPixels inner = inner_pixels(p);
  if (inner.begin == 0 && inner.end == p.wo) return 0;
  const std::int64_t pixels = std::min(unit_pixels, round_up(inner.begin, tile) + tile + p.wo - inner.end);
  return static_cast<double>(std::min(p.h, span_of(row_axis(p), rows))) *
         static_cast<double>(span_of(column_axis(p), pixels)) * static_cast<double>(p.c) *
         static_cast<double>(size_of(p.dtype));
}

bool has_pairs(const FewOutputsKernels& kernels) { return kernels.step > kernels.lanes; }

/// Cycles of a tile's products with a vector of each input and weight, or of the loads that they wait for.
double step_cycles(const Conv2dProblem& p, const FewOutputsKernels& kernels, const Target& target, const Costs& costs) {
  const auto inputs = static_cast<double>(tile_pixels(p, kernels)), outputs = static_cast<double>(p.k);
  const std::int64_t weight_bytes =
      p.r * row_steps(p, kernels) * p.k * kernels.lanes * static_cast<std::int64_t>(sizeof(float));
  const double weight = weight_bytes <= l1_bytes() * 3 / 4 ? kNearLoad : kWeightOfL2;
  const double loads = costs.product * (inputs * kNearLoad + outputs * weight);
  const double product = has_pairs(kernels) ? costs.pair : costs.product * fma_cycles(target, kernels.lanes);
  const double converted = p.dtype == DType::f32 || has_pairs(kernels) ? 0
                           : p.dtype == DType::f16                     ? costs.f16
                                                                       : costs.bf16;
  return std::max(inputs * outputs * product, loads) + inputs * (costs.input + converted);
}

/// Lines that a row of units copies to its strips, for each row of input.
double staged_lines(const Conv2dProblem& p, std::int64_t tile) {
  const WindowAxis axis = column_axis(p);
  const InnerPixels inner = inner_pixels(p);
  const std::int64_t left = std::min(p.wo, round_up(inner.begin, tile)),
                     right = std::min(p.wo - left, round_up(p.wo - inner.end, tile));
  const std::int64_t columns = (left > 0 ? span_of(axis, left) : 0) + (right > 0 ? span_of(axis, right) : 0);
  return static_cast<double>(columns * p.c * static_cast<std::int64_t>(size_of(p.dtype))) / 64;
}

/// The cycles of all pixels.
double cycles_of(const Conv2dProblem& problem, const FewOutputsKernels& kernels, const Target& target) {
  const Costs& costs = core_kind(kernels.lanes) == CoreKind::amx ? kBesideAmx : kCosts;
  const Conv2dProblem p = with_pixels_in_a_row(problem);
  const std::int64_t tile = tile_pixels(p, kernels), runs = runs_of(p);
  const auto rows = static_cast<double>(p.n * p.ho), tiles_of_row = static_cast<double>(ceil_div(p.wo, tile));
  const double rest = run_channels(p) % kernels.step == 0 ? 0 : static_cast<double>(runs * tile) * costs.rest_input;
  const double kernel_row = static_cast<double>(row_steps(p, kernels)) * step_cycles(p, kernels, target, costs) + rest;
  const double products = static_cast<double>(p.n) * kernel_rows_inside(p) * kernel_row;
  const double sums = rows * costs.four_sums * static_cast<double>(ceil_div(tile * p.k, std::int64_t{4}));
  const auto stored = static_cast<double>(ceil_div(p.y_elements(), std::int64_t{kernels.lanes}));
  const auto staged_rows =
      static_cast<double>(p.n * ceil_div(p.ho, kMaxRows) * std::min(p.h, span_of(row_axis(p), kMaxRows)));
  return tiles_of_row * (products + sums) + stored * kStoredVector + rows * kRow +
         staged_rows * staged_lines(p, tile) * costs.staged_line + kRun;
}

/// A short run would take longer with the region of several threads.
int threads_of(const Conv2dProblem& p, const FewOutputsKernels& kernels, const Target& target, int threads) {
  return threads == 1 || cycles_of(p, kernels, target) < break_even_cycles(threads) ? 1 : threads;
}

UnitGrid grid_of(const Conv2dProblem& p, const FewOutputsKernels& kernels, int threads) {
  const std::int64_t tile = tile_pixels(p, kernels);
  const std::int64_t most = ceil_div(p.n * p.ho * p.wo, units_wanted(threads));
  const std::int64_t pixels = round_up(even_part(p.wo, std::min(kMaxRowPixels, most)), tile);
  const std::int64_t rows = std::clamp<std::int64_t>(most / pixels, 1, kMaxRows);
  UnitGrid grid = unit_grid(p, 1, rows, std::min(p.wo, pixels));
  // Whole tiles, which unit_grid() would even out.
  grid.pixels = std::min(p.wo, pixels);
  grid.pixel_blocks = ceil_div(p.wo, grid.pixels);
  return grid;
}

double seconds_of(const Conv2dProblem& problem, const FewOutputsKernels& kernels, const Target& target, int threads) {
  const Conv2dProblem p = with_pixels_in_a_row(problem);
  const int used = threads_of(p, kernels, target, threads);
  return estimated_seconds(p, cycles_of(p, kernels, target), grid_of(p, kernels, used).count(), used);
}

}  // namespace

std::string few_outputs_refusal(const Conv2dProblem& p, const Target& target) {
  if (!target.supported) return "target " + std::string(target.name) + " is not supported by this CPU";
  if (p.groups != 1) return text(p.groups) + " groups: it takes one";
  if (p.k > kMaxFewOutputs) return text(p.k) + " output channels; it takes at most " + text(kMaxFewOutputs);
  if (!p.nhwc) return "layout nchw: it reads a pixel's channels as neighbours";
  if (!p.pool.none()) return "it fuses no max-pool";
  if (p.activation == Activation::tanh) return "it fuses relu, not tanh";
  const std::int64_t tile = few_outputs_kernels(target).pixels[static_cast<std::size_t>(p.k)];
  const double strip = strip_bytes(with_pixels_in_a_row(p), kMaxRows, kMaxRowPixels, tile);
  if (strip > kMostStrips * static_cast<double>(l2_bytes())) {
    return "the edges of its rows with their padding take " + text(static_cast<std::int64_t>(strip / 1e6)) +
           " MB, more than a core's caches hold";
  }
  return "";
}

double few_outputs_seconds(const Conv2dProblem& problem, const Target& target, int threads) {
  return seconds_of(problem, few_outputs_kernels(target), target, threads);
}

std::string few_outputs_dot_refusal(const Conv2dProblem& p, const Target& target) {
  const std::string reason = few_outputs_refusal(p, target);
  return reason.empty() && p.dtype != DType::bf16 ? "it multiplies bf16" : reason;
}

double few_outputs_dot_seconds(const Conv2dProblem& problem, const Target& target, int threads) {
  return seconds_of(problem, few_outputs_dot_kernels(), target, threads);
}

FewOutputsPlan::FewOutputsPlan(const Conv2dProblem& problem, const FewOutputsKernels& kernels, const Target& target,
                               int threads)
    : problem_(with_pixels_in_a_row(checked("few_outputs", problem, target, threads))),
      target_(&target),
      kernels_(&kernels),
      threads_(threads_of(problem_, kernels, target, threads)),
      grid_(grid_of(problem_, kernels, threads_)),
      strip_floats_(line_floats(ceil_div(
          static_cast<std::int64_t>(strip_bytes(problem_, grid_.rows, grid_.pixels, tile_pixels(problem_, *kernels_))),
          std::int64_t{sizeof(float)}))),
      workspace_(bias_floats() + static_cast<std::size_t>(threads_) * thread_floats(), bias_floats()) {
  clear_leftovers(workspace_.data() + bias_floats(), workspace_.size() - bias_floats());
}

std::size_t FewOutputsPlan::packed_bytes() const {
  return static_cast<std::size_t>(problem_.r * row_steps(problem_, *kernels_) * problem_.k * kernels_->lanes) *
         sizeof(float);
}

Packing FewOutputsPlan::packing() const {
  return packing_of(problem_, "few_outputs", {kernels_->lanes, kernels_->step, runs_of(problem_)});
}

void FewOutputsPlan::pack(const void* weights, const WeightStrides& strides, void* packed) const {
  const Conv2dProblem& p = problem_;
  const std::int64_t channels = run_channels(p), step = kernels_->step;
  auto* out = static_cast<float*>(packed);
  auto* bits = static_cast<std::uint16_t*>(packed);  // of pairs
  const auto put = [&](std::int64_t source, bool inside) {
    if (has_pairs(*kernels_)) {
      *bits++ = inside ? static_cast<const std::uint16_t*>(weights)[source] : std::uint16_t{0};
    } else {
      *out++ = inside ? element_as_f32(weights, p.dtype, source) : 0.0f;
    }
  };
  const auto pack_step = [&](std::int64_t row, std::int64_t first_column, std::int64_t first) {
    for (std::int64_t output = 0; output < p.k; ++output) {
      for (std::int64_t channel = first; channel < first + step; ++channel) {
        const std::int64_t column = first_column + channel / p.c;
        const std::int64_t source =
            output * strides.out + channel % p.c * strides.in + row * strides.row + column * strides.column;
        put(source, channel < channels);
      }
    }
  };
  for (std::int64_t row = 0; row < p.r; ++row) {
    for (std::int64_t run = 0; run < runs_of(p); ++run) {
      for (std::int64_t channel = 0; channel < channels; channel += step) pack_step(row, run, channel);
    }
  }
}

void FewOutputsPlan::run(const void* x, const void* packed, const float* bias, void* y) {
  const std::int64_t k = problem_.k, period = k * kernels_->lanes, tile = tile_pixels(problem_, *kernels_);
  float* const biases = workspace_.data();
  for (std::int64_t i = 0; problem_.bias && i < period; i += k) std::copy_n(bias, k, biases + i);
  note_path(Path::few_outputs, *target_, has_pairs(*kernels_) ? PathUnit::bf16_dot : PathUnit::vectors);
  parallel_units(threads_, grid_.count(), [&](std::int64_t index, int thread) {
    const UnitPlace place = grid_.at(index);
    const UnitWindow unit = unit_window(problem_, grid_, place);
    const std::int64_t end = unit.first_pixel + unit.pixels;
    const InnerPixels in_place = in_place_of(problem_, unit, tile);
    const Operands operands{.x = advance(x, problem_.dtype, place.first_image * problem_.h * problem_.w * problem_.c),
                            .packed = static_cast<const float*>(packed),
                            .y = advance(y, problem_.dtype, place.first_image * problem_.ho * problem_.wo * k),
                            .sums = biases + bias_floats() + static_cast<std::size_t>(thread) * thread_floats()};
    run_staged(unit, unit.first_pixel, in_place.begin, operands);
    run_in_place(unit, in_place.begin, in_place.end, operands);
    run_staged(unit, in_place.end, end, operands);
  });
}

void FewOutputsPlan::run_in_place(const UnitWindow& unit, std::int64_t begin, std::int64_t end, const Operands& o) {
  if (begin >= end) return;
  const Conv2dProblem& p = problem_;
  const std::int64_t column = column_axis(p).first(begin);
  run_rows(unit, begin, end, {.x = o.x, .origin = column * p.c, .pitch = p.w * p.c}, o);
}

void FewOutputsPlan::run_staged(const UnitWindow& unit, std::int64_t begin, std::int64_t end, const Operands& o) {
  if (begin >= end) return;
  const Conv2dProblem& p = problem_;
  // Taps outside the image's rows are skipped, so the strip has none of them.
  const std::int64_t above = row_axis(p).first(unit.first_row), first_row = std::max<std::int64_t>(0, above);
  const std::int64_t last_row = std::min(p.h, above + span_of(row_axis(p), unit.rows));
  const std::int64_t first_column = column_axis(p).first(begin), columns = span_of(column_axis(p), end - begin);
  const auto pixel = static_cast<std::size_t>(p.c) * size_of(p.dtype);
  const std::int64_t inside = std::clamp<std::int64_t>(-first_column, 0, columns);
  const std::int64_t beyond = std::clamp(p.w - first_column, inside, columns);
  void* const strip = o.sums + sums_floats();
  for (std::int64_t row = first_row; row < last_row; ++row) {
    auto* to = static_cast<char*>(strip) + static_cast<std::size_t>((row - first_row) * columns) * pixel;
    const auto at = [&](std::int64_t c) { return to + static_cast<std::size_t>(c) * pixel; };
    std::memset(to, 0, static_cast<std::size_t>(inside) * pixel);
    if (beyond > inside) {
      std::memcpy(at(inside), advance(o.x, p.dtype, (row * p.w + first_column + inside) * p.c),
                  static_cast<std::size_t>(beyond - inside) * pixel);
    }
    std::memset(at(beyond), 0, static_cast<std::size_t>(columns - beyond) * pixel);
  }
  run_rows(unit, begin, end, {.x = strip, .origin = -first_row * columns * p.c, .pitch = columns * p.c}, o);
}

void FewOutputsPlan::run_rows(const UnitWindow& unit, std::int64_t begin, std::int64_t end, const Input& input,
                              const Operands& o) {
  const Conv2dProblem& p = problem_;
  const auto type = static_cast<std::size_t>(p.dtype);
  const std::int64_t weights_row = row_steps(p, *kernels_) * p.k * kernels_->lanes;
  FewOutputsCall call{.x = nullptr,
                      .x_pixel = p.stride_w * p.c,
                      .pixels = end - begin,
                      .x_row = p.dilation_h * input.pitch,
                      .rows = 0,
                      .x_run = p.dilation_w * p.c,
                      .runs = runs_of(p),
                      .channels = run_channels(p),
                      .weights = nullptr,
                      .sums = o.sums};
  FinishOutputsCall finish{.sums = o.sums,
                           .count = (end - begin) * p.k,
                           .bias = workspace_.data(),
                           .period = p.k * kernels_->lanes,
                           .least = p.activation == Activation::relu ? 0.0f : -std::numeric_limits<float>::infinity(),
                           .y = nullptr};
  for (std::int64_t row = unit.first_row; row < unit.first_row + unit.rows; ++row) {
    const TapRange taps = row_axis(p).inside(row);
    call.rows = taps.end - taps.begin;
    call.weights = o.packed + taps.begin * weights_row;
    call.x =
        advance(input.x, p.dtype, input.origin + (row_axis(p).first(row) + taps.begin * p.dilation_h) * input.pitch);
    kernels_->sum[type][p.k](call);
    finish.y = advance(o.y, p.dtype, (row * p.wo + begin) * p.k);
    kernels_->finish[type](finish);
  }
}

Conv2dDescription FewOutputsPlan::description() const {
  const Conv2dProblem& p = problem_;
  Conv2dDescription d;
  d.kernel = has_pairs(*kernels_) ? "few_outputs_bf16_dot" : "few_outputs";
  d.target = target_->name;
  d.tile = text(tile_pixels(p, *kernels_)) + " pixels x " + text(p.k) + " outputs, " + text(kernels_->step) +
           " channels a step";
  d.blocking =
      "unit " + text(grid_.rows) + " rows x " + text(grid_.pixels) + " pixels, " + text(grid_.count()) + " units";
  d.fusion = std::string(strip_floats_ == 0 ? "input in place" : "input in place but for the edges") +
             ", no pool, bias and activation from L1";
  d.threads = threads_;
  return d;
}

}  // namespace gable::cpu
