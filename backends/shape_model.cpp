// See shape_model.h.
#include "backends/shape_model.h"

#include <gable/ceilings.h>

#include <algorithm>
#include <cmath>

#include "backends/problems.h"
#include "common/bf16_units.h"

namespace gable {
namespace {

/// f32 multiply-adds a second of one core: the nominal rate of the fits, and the measured rate (core_multiply_adds())
/// of the Zen 4 on which the fits for CPUs without AMX were made.
constexpr double kMultiplyAdds = 56e9, kFittedCore = 58.6e9;
constexpr double kWide = 1.46;           // times that: between the Zen 4 (1) and the Zen 5 (2.14) of the fits
constexpr double kFittedAmxCore = 90e9;  // the same rate of the CPU with AMX, when its fits were made
constexpr double kMaxSlowness = 4;       // and its inverse: what a disturbed measurement may do
constexpr double kHostBytes = 30e9;      // bytes a second of one core
constexpr int kCoresPerMemory = 6;       // more cores find no more bandwidth
constexpr double kHostCall = 0.5e-6;     // seconds
constexpr double kHostThreads = 3e-6;    // seconds to start and join threads
constexpr std::int64_t kFewChannels = 8;

/// The greatest extents that were measured. Fits hold up to these; larger extents are clamped to them.
constexpr double kMaxMicroseconds = 2e4, kMaxPixels = 65536, kMaxChannels = 4096, kMaxTaps = 121;
constexpr int kMaxThreads = 12;

/// How many times as fast as f32 a core multiplies 16-bit types. AMX does 512 bf16 multiply-adds a cycle; f16 takes
/// four products of its parts.
double half_factor(DType dtype, bool amx) {
  if (!amx) return 2;
  return dtype == DType::bf16 ? 32 : 8;
}

std::size_t type_index(DType dtype) { return dtype == DType::f32 ? 0 : dtype == DType::bf16 ? 1 : 2; }

/// log of the lanes that are computed over the lanes that are used.
double log_waste(std::int64_t count, std::int64_t lanes) {
  return std::log(static_cast<double>(round_up(count, lanes)) / static_cast<double>(count));
}

/// log of what a panel of 32 outputs that is half empty adds to the products. Up to 16 outputs take half a panel.
double log_half_panel(std::int64_t outputs) {
  return outputs > 16 ? log_waste(outputs, 32) - log_waste(outputs, 16) : 0;
}

/// 0 up to 64 input channels, whose weights the tiles of cpu's AMX kernel can keep; beyond, what is lost weighs less
/// the more channels share it. With 65 to 256 channels, 1x1 in bf16 takes up to 1.25 times oneDNN's time there.
double share_beyond_tiles(std::int64_t inputs, std::int64_t outputs) {
  return inputs > 64 && outputs > 16 ? 64 / static_cast<double>(inputs) : 0;
}

/// Whether a pixel has fewer channels than a vector has lanes. Depthwise kernels compute such pixels one by one, unless
/// two fill a vector.
bool has_part_of_a_vector(const Conv2dProblem& p) {
  return shape_class(p) == ShapeClass::depthwise && p.k < 16 && p.k != 8;
}

/// What decides the time of a first layer beside its size. A window that no other overlaps is read once, as a matrix;
/// one that is shorter than its stride leaves pixels out. Rows of a window, all channels of them, fill vectors in part.
struct FirstLayer {
  double leaves_out = 0, is_patch = 0, waste_16 = 0, waste_32 = 0;
};

FirstLayer first_layer(const Conv2dProblem& p) {
  if (shape_class(p) != ShapeClass::few_channels) return {};
  const std::int64_t row = p.c * p.s;
  return {.leaves_out = p.r < p.stride_h || p.s < p.stride_w ? 1.0 : 0.0,
          .is_patch = p.r == p.stride_h && p.r > 1 ? 1.0 : 0.0,
          .waste_16 = log_waste(row, 16),
          .waste_32 = log_waste(row, 32)};
}

/// Whether all groups have 16 channels or multiples, in and out, or 4, 8 or 12. oneDNN's jit kernel for f32 takes such
/// groups; others go to its brgemm kernels, more than half of them to that for AVX2.
struct GroupBlocks {
  double whole = 0, parts = 0;
};

GroupBlocks group_blocks(const Conv2dProblem& p) {
  if (shape_class(p) != ShapeClass::grouped) return {};
  const auto in = p.group_c(), out = p.group_k();
  return {.whole = in % 16 == 0 && out % 16 == 0 ? 1.0 : 0.0,
          .parts = in % 4 == 0 && out % 4 == 0 && in < 16 && out < 16 ? 1.0 : 0.0};
}

/// How much of what a layer reads and writes are weights: with few pixels, they are nearly all.
double weights_share(const Conv2dProblem& p) {
  const auto weights = static_cast<double>(p.k * p.group_c() * p.r * p.s);
  return std::log1p(weights / static_cast<double>(p.x_elements() + p.conv_elements()) * static_cast<double>(p.n));
}

/// log of a window's taps over the pixels of the image that it can read at once: the others read padding. A window of
/// twice the image's size or more has taps that no output reads the image with: no law was fitted to these.
double taps_beyond(const Conv2dProblem& p) {
  const auto beyond = [](std::int64_t taps, std::int64_t size) {
    return std::clamp(static_cast<double>(taps) / static_cast<double>(size), 1.0, 2.0);
  };
  return std::log(beyond(p.r, p.h) * beyond(p.s, p.w));
}

/// Whether cpu's depthwise kernel for NCHW takes rows apart by phases of a stride above 2: with interleaved loads for
/// strides 3 and 4, else one by one. Smaller planes are transposed, so that lanes are channels.
bool gathers_pixels(const Conv2dProblem& p) {
  const bool large = p.h * p.w > 1024 || p.wo >= 32;
  return shape_class(p) == ShapeClass::depthwise && p.stride_w > 2 && large;
}

double log_of(std::int64_t count, double most) { return std::log(std::min(static_cast<double>(count), most)); }

double roof_of(double multiply_adds, double bytes, const Rates& rates) {
  return std::max(multiply_adds / rates.multiply_adds, bytes / rates.bytes) + rates.call;
}

double roof_of(const Conv2dProblem& p, const Rates& rates) {
  const auto weights = static_cast<double>(p.k * p.group_c() * p.r * p.s);
  const double multiply_adds = static_cast<double>(p.n * p.ho * p.wo) * weights;
  const double element = p.dtype == DType::f32 ? 4 : 2;
  const double elements = static_cast<double>(p.x_elements() + p.conv_elements()) + weights;
  return roof_of(multiply_adds, element * elements, rates);
}

}  // namespace

bool is_wide(double speed) { return speed > kWide; }

double host_speed(bool amx) { return amx ? 1 : core_multiply_adds() / kFittedCore; }

double host_slowness(bool amx) {
  return amx ? std::clamp(kFittedAmxCore / core_multiply_adds(), 1 / kMaxSlowness, kMaxSlowness) : 1;
}

Rates host_rates(DType dtype, int threads, bool amx, double speed) {
  return {.multiply_adds = kMultiplyAdds * speed * (dtype == DType::f32 ? 1 : half_factor(dtype, amx)) * threads,
          .bytes = kHostBytes * std::min(threads, kCoresPerMemory),
          .call = threads > 1 ? kHostThreads : kHostCall,
          .threads = threads};
}

ShapeClass shape_class(const Conv2dProblem& p) {
  if (p.groups > 1) return p.group_c() == 1 ? ShapeClass::depthwise : ShapeClass::grouped;
  if (p.ho * p.wo * p.r * p.s == 1) return ShapeClass::vectors;
  if (p.c <= kFewChannels) return ShapeClass::few_channels;
  return p.r * p.s == 1 ? ShapeClass::pointwise : ShapeClass::spatial;
}

double modelled_seconds(const Conv2dProblem& p, const Rates& rates, const ShapeFits& fits) {
  const double roof = roof_of(p, rates);
  const double size = std::log(std::min(roof * 1e6, kMaxMicroseconds));
  const double pixels = log_of(p.ho * p.wo, kMaxPixels);
  const FirstLayer first = first_layer(p);
  const GroupBlocks blocks = group_blocks(p);
  const std::array<double, kShapeFeatures> features{1,
                                                    size,
                                                    size * size / 10,
                                                    log_of(p.group_c(), kMaxChannels),
                                                    log_of(p.group_k(), kMaxChannels),
                                                    pixels,
                                                    pixels * pixels / 10,
                                                    log_of(p.r * p.s, kMaxTaps),
                                                    p.stride_h > 1 || p.stride_w > 1 ? 1.0 : 0.0,
                                                    log_waste(p.group_c(), 16),
                                                    log_waste(p.group_c(), 4),
                                                    log_waste(p.group_k(), 16),
                                                    log_waste(p.group_k(), 8),
                                                    log_waste(p.k, 16),
                                                    log_waste(p.wo, 16),
                                                    log_of(p.groups, kMaxChannels),
                                                    std::log(static_cast<double>(std::min(rates.threads, kMaxThreads))),
                                                    has_part_of_a_vector(p) ? 1.0 : 0.0,
                                                    log_waste(p.group_k(), 32),
                                                    p.r > p.s ? 1.0 : 0.0,
                                                    first.leaves_out,
                                                    first.is_patch,
                                                    first.waste_16,
                                                    first.waste_32,
                                                    blocks.whole,
                                                    blocks.parts,
                                                    weights_share(p),
                                                    taps_beyond(p),
                                                    gathers_pixels(p) ? 1.0 : 0.0,
                                                    log_half_panel(p.group_k()),
                                                    share_beyond_tiles(p.group_c(), p.group_k())};
  const auto load = static_cast<std::size_t>(p.n > 1 ? 3 : std::clamp(rates.threads, 1, 3) - 1);
  const ShapeFit& fit = fits[load][p.nhwc ? 0 : 1][type_index(p.dtype)][static_cast<std::size_t>(shape_class(p))];
  double log_inefficiency = 0;
  for (std::size_t i = 0; i < features.size(); ++i) log_inefficiency += fit.weights[i] * features[i];
  return roof * std::exp(std::clamp(log_inefficiency, fit.least, fit.most));
}

double roof_seconds(const Op& op, const Rates& rates) {
  const Work least = work(op);
  return roof_of(least.flop / 2, least.bytes(), rates);
}

double modelled_host_seconds(const Op& op, int threads, const HostFits& fits) {
  if (has_weights(op)) return modelled_host_seconds(upright_problem(op), threads, fits);
  const bool amx = amx_state() == AmxState::usable;
  return host_slowness(amx) * roof_seconds(op, host_rates(dtype_of(op), threads, amx, host_speed(amx)));
}

double modelled_host_seconds(const Conv2dProblem& problem, int threads, const HostFits& fits) {
  const bool amx = amx_state() == AmxState::usable;
  const double speed = host_speed(amx);
  const ShapeFits& fit = amx ? fits.amx : is_wide(speed) ? fits.wide : fits.vectors;
  return host_slowness(amx) * modelled_seconds(problem, host_rates(problem.dtype, threads, amx, speed), fit);
}

}  // namespace gable
