// The time of the loops of DepthwisePlan and DepthwisePlanesPlan: see estimate.h. With several outputs a channel it was
// fitted on Zen 4, with one on Zen 5, where both kernels and `reordered` take the layer.
#include <algorithm>

#include "cpu/common/cache.h"
#include "cpu/common/core.h"
#include "cpu/common/estimate.h"
#include "cpu/depthwise/depthwise.h"
#include "cpu/depthwise/depthwise_planes.h"
#include "cpu/depthwise/depthwise_tile.h"

namespace gable::cpu {
namespace {

// Cycles besides the products.
constexpr double kProduct = 0.85;
constexpr double kTile = 28;
constexpr double kRun = 14;
constexpr double kSpreadVector = 5;  // of input, repeated for its outputs
constexpr double kSpreadVectorOf16Bits = 6;
constexpr ConversionCost kStored{0, 5};

/// One output a channel, from and to the image. Cycles.
struct SingleCosts {
  double product, row_tile_product, pair_product, row_tile_pair_product;
  double tile, run, row;
  double far_line, far_line_of_16_bits;  // of a tensor that L2 does not keep
  double part_pixel;                     // of fewer channels than the narrowest vector has lanes
  double call;
};
/// Fitted on Zen 5, for the choice between depthwise_planes and reordered on cores that do not halve vectors. The
/// others are older: the choice on Xeons with AMX is fitted to them.
constexpr SingleCosts kSingleWhole{0.357, 0.432, 0.282, 0.534, 9.6, 4.5, 43, 1.25, 1.25, 3.6, 187};
constexpr SingleCosts kSingle{0.48, 0.69, 0.41, 0.61, 11, 8.4, 20, 1.6, 3.5, 13, 240};

/// 64 bytes each of tensors that exceed L2, less those that L2 keeps.
double far_lines(const Conv2dProblem& p) {
  const std::int64_t bytes = (p.x_elements() + p.y_elements()) * static_cast<std::int64_t>(size_of(p.dtype));
  return static_cast<double>(std::max<std::int64_t>(0, bytes - l2_bytes())) / 64;
}

double single_output_seconds(const Conv2dProblem& p, const Target& target, int threads) {
  const DepthwiseBlocking b = choose_depthwise_blocking(p, target, threads);
  const SingleCosts& cost = core_kind(depthwise_tiles(target).lanes) == CoreKind::whole_512 ? kSingleWhole : kSingle;
  const Conv2dProblem& q = b.problem;
  const AxisCut columns(column_axis(q));
  const bool row_tiles = b.row_tile_outputs > 0;
  const auto rows = static_cast<double>(q.n * q.ho);
  const double kernel_rows = static_cast<double>(q.n) * kernel_rows_inside(q);
  const auto tiles = static_cast<double>(ceil_div(q.wo, kMaxTileOutputs));
  const double runs = row_tiles ? 0 : kernel_rows * tiles * static_cast<double>(columns.runs()) * cost.run;
  double cycles = cost.call + rows * static_cast<double>(b.sections.size()) * cost.row +
                  far_lines(p) * (p.dtype == DType::f32 ? cost.far_line : cost.far_line_of_16_bits);
  for (const ChannelSection& section : b.sections) {
    const double product = section.paired ? (row_tiles ? cost.row_tile_pair_product : cost.pair_product)
                                          : (row_tiles ? cost.row_tile_product : cost.product);
    const double products = kernel_rows * static_cast<double>(q.s * q.wo) * product;
    cycles += static_cast<double>(section.vectors()) * (products + runs + rows * tiles * cost.tile);
    if (q.k < section.lanes) {
      const std::int64_t apart = std::min(q.n * q.ho, q.n * b.row_blocks + q.r / 2);  // rows that may not reach
      const std::int64_t pixels =
          b.reaches ? apart * (std::min(q.h, q.r) * q.w + q.wo) : q.n * (std::min(q.h, q.ho * q.r) * q.w + q.ho * q.wo);
      cycles += static_cast<double>(pixels) * cost.part_pixel;
    }
  }
  // Fitted where an FMA takes half a cycle.
  return estimated_seconds(p, cycles * fma_cycles(target, b.sections.front().lanes) / 0.5, b.units(), threads);
}

/// Planes of a 1x1 window, fitted on Zen 5.
double scaled_planes_seconds(const Conv2dProblem& p, const Target& target, int threads) {
  constexpr double kPlane = 1.8, kVector = 0.25, kVectorOf16Bits = 0.4;  // nanoseconds
  constexpr double kFarLine = 0.7, kFarLineOf16Bits = 1.6, kCall = 60;
  const bool f32 = p.dtype == DType::f32;
  const std::int64_t vectors = ceil_div(p.h * p.w, depthwise_plane_kernels(target).lanes);
  const double plane = kPlane + static_cast<double>(vectors) * (f32 ? kVector : kVectorOf16Bits);
  const double nanoseconds =
      static_cast<double>(p.n * p.k) * plane + kCall + far_lines(p) * (f32 ? kFarLine : kFarLineOf16Bits);
  return nanoseconds * 1e-9 / threads + region_seconds(threads);
}

double share_of(std::int64_t part, std::int64_t all) {
  return static_cast<double>(std::min(part, all)) / static_cast<double>(all);
}

double single_output_planes_seconds(const Conv2dProblem& p, const Target& target, int threads) {
  // Nanoseconds on Zen 5. Pixels as rows: of a vector's product, a run, a tile, an element that is copied or spread
  // over the phases of a stride, a row of them, a plane. Channels as lanes: besides them of an input, an output and a
  // weight that is transposed, and of a group of planes.
  constexpr double kVector = 0.15, kVectorRun = 2, kVectorTile = 0.7, kPlane = 40;
  constexpr double kCopied = 0.01, kWidened = 0.033, kSpread = 0.055, kSpreadPixel = 0.9, kSpreadPixelOf16Bits = 0.45,
                   kStagedRow = 2.2;
  constexpr double kManyPhasesOfHalved = 6;  // times kSpread, of strides above 2 on Zen 4
  constexpr double kLanes = 0.095, kLanesRun = 1.6, kLanesTile = 11, kGroup = 25;
  constexpr double kInput = 0.09, kInputOf16Bits = 0.12, kOutputElement = 0.08, kWeight = 0.09;
  constexpr double kFarLine = 0.7, kFarLineOf16Bits = 1.6, kCall = 60;
  const PlanesBlocking b = depthwise_planes_blocking(p, target, threads);
  const Conv2dProblem& q = b.problem;
  const bool f32 = p.dtype == DType::f32;
  const auto inputs = static_cast<double>(q.h * q.w);
  const auto tiles = static_cast<double>(ceil_div(q.ho, kMaxTileOutputs));
  const auto row_runs = static_cast<double>(b.row_runs);
  double nanoseconds = 0;  // of an image
  if (b.transposes) {
    double columns = 0;
    for (const TapRange& taps : b.columns) columns += static_cast<double>(taps.end - taps.begin);
    const double outputs = static_cast<double>(q.ho * q.wo);
    const double group = columns * (static_cast<double>(q.ho * q.r) * kLanes + tiles * row_runs * kLanesRun) +
                         tiles * static_cast<double>(q.wo) * kLanesTile + kGroup;
    nanoseconds = group * static_cast<double>(b.plane_blocks) +
                  static_cast<double>(q.k) * (inputs * (f32 ? kInput : kInputOf16Bits) + outputs * kOutputElement +
                                              static_cast<double>(q.r * q.s) * kWeight);
  } else {
    double vectors = 0;
    for (const RowSection& section : b.sections) vectors += static_cast<double>(section.vectors);
    const double pixel = f32 ? kSpreadPixel : kSpreadPixelOf16Bits;
    const bool many_phases = q.stride_w > 2 && core_kind() == CoreKind::halved_512;
    const double element_spread = kSpread * (many_phases ? kManyPhasesOfHalved : 1);
    const double spread = b.channels > 1 ? pixel / static_cast<double>(b.channels) : element_spread;
    const double element = b.in_place ? 0 : q.stride_w > 1 ? spread : f32 ? kCopied : kWidened;
    const double staged = inputs * element + (b.in_place ? 0 : static_cast<double>(q.h) * kStagedRow);
    const double taps =
        static_cast<double>(q.s) * (static_cast<double>(q.ho * q.r) * kVector + row_runs * tiles * kVectorRun);
    nanoseconds = static_cast<double>(q.k) * (vectors * (taps + tiles * kVectorTile) + staged + kPlane);
  }
  nanoseconds = nanoseconds * static_cast<double>(q.n) + kCall + far_lines(p) * (f32 ? kFarLine : kFarLineOf16Bits);
  // Measured on cores that do not halve vectors since tiles read and store 16 bits and planes are transposed without a
  // copy.
  constexpr double kRowsNow = 0.88, kRowsNowOf16Bits = 0.72, kLanesNow = 0.84, kLanesNowOf16Bits = 0.7;
  constexpr double kFoldedOf16Bits = 0.88;
  if (p.nhwc) {
    nanoseconds *= f32 ? 1 : kFoldedOf16Bits;
  } else if (core_kind() != CoreKind::amx) {
    nanoseconds *= b.transposes ? (f32 ? kLanesNow : kLanesNowOf16Bits) : (f32 ? kRowsNow : kRowsNowOf16Bits);
  }
  // Zen 4 beside `reordered`, read off 35 layers: planes with strides that are transposed in L1 and beyond it, and
  // rows.
  constexpr double kStridedLanesOfHalved = 0.8, kStridedLanesBeyondL1OfHalved = 1.1, kStridedRowsOfHalved = 0.85;
  if (f32 && !p.nhwc && q.stride_w > 1 && core_kind() == CoreKind::halved_512) {
    const bool far = transposed_planes_exceed_l1(q, depthwise_plane_kernels(target).lanes);
    nanoseconds *= !b.transposes ? kStridedRowsOfHalved : far ? kStridedLanesBeyondL1OfHalved : kStridedLanesOfHalved;
  }
  // CPUs with AMX have one port for shuffles. Chosen by 32 layers in f32 and by `reordered`'s times of them.
  constexpr double kSpreadAmx = 1.8, kLanesBeyondL1Amx = 1.7;
  const std::int64_t lanes = depthwise_plane_kernels(target).lanes;
  if (f32 && !p.nhwc && core_kind(lanes) == CoreKind::amx) {
    if (!b.transposes && q.stride_w > 1) nanoseconds *= kSpreadAmx;
    if (b.transposes && transposed_planes_exceed_l1(q, lanes)) nanoseconds *= kLanesBeyondL1Amx;
  }
  constexpr double kFittedShare = 0.55;
  const std::int64_t units = q.n * b.plane_blocks * b.row_blocks;
  const double unit = share_of(b.unit_planes, q.k) * share_of(b.unit_rows, q.ho) / static_cast<double>(q.n);
  const double longest = std::min(1.0, static_cast<double>(ceil_div(units, std::int64_t{threads})) * unit);
  const double region = units > 1 ? region_seconds(threads) : 0;
  return nanoseconds * 1e-9 * whole_vector_share(16) / kFittedShare * longest + region;
}

}  // namespace

double depthwise_seconds(const Conv2dProblem& p, const Target& target, int threads) {
  if (!has_estimate(p)) return kNoEstimate;
  if (p.k == p.c) return single_output_seconds(p, target, threads);
  const DepthwiseBlocking b = choose_depthwise_blocking(p, target, threads);
  const AxisCut columns(column_axis(p));
  const double kernel_rows = kernel_rows_inside(p);
  const auto pixels = static_cast<double>(p.wo);
  const auto tiles = static_cast<double>(ceil_div(p.wo, kMaxTileOutputs));
  const double spread_vector = p.dtype == DType::f32 ? kSpreadVector : kSpreadVectorOf16Bits;
  const auto spread = static_cast<double>(std::min(p.h, p.ho * p.r) * p.w);
  double cycles = 0;
  for (const ChannelSection& section : b.sections) {
    const double row = pixels * static_cast<double>(p.s) * kProduct * fma_cycles(target, section.lanes) +
                       tiles * static_cast<double>(columns.runs()) * kRun;
    cycles += static_cast<double>(section.vectors()) *
              (kernel_rows * row + static_cast<double>(p.ho) * tiles * kTile + spread * spread_vector);
  }
  cycles += conversion_cycles(p, p.ho * p.wo, p.k, kStored);
  constexpr double kWholeVectors = 0.9;    // beside narrow_groups, measured on Zen 5
  constexpr double kHalvedStrides = 1.45;  // the same on Zen 4, of bf16 with strides
  const CoreKind kind = core_kind(depthwise_tiles(target).lanes);
  if (kind == CoreKind::whole_512) cycles *= kWholeVectors;
  if (kind == CoreKind::halved_512 && p.dtype == DType::bf16 && p.stride_w > 1) cycles *= kHalvedStrides;
  return estimated_seconds(p, cycles * static_cast<double>(p.n), b.units(), threads);
}

double depthwise_planes_seconds(const Conv2dProblem& p, const Target& target, int threads) {
  if (!p.pool.none()) return kNoEstimate;
  if (is_pointwise(p)) return scaled_planes_seconds(p, target, threads);
  if (p.k == p.c) return single_output_planes_seconds(p, target, threads);
  // Nanoseconds of a vector's product, of an output, of an input that is staged, of a row of them, of an output plane.
  constexpr double kVector = 0.23, kOutput = 0.08, kOutputOf16Bits = 0.18, kStage = 0.14, kRow = 0.6, kPlane = 40;
  constexpr double kWholeVectors = 1.12;  // what the share of whole vectors leaves out, measured on Zen 5
  const std::int64_t lanes = depthwise_plane_kernels(target).lanes;
  const double share = whole_vector_share(lanes);
  const double output = (p.dtype == DType::f32 ? kOutput : kOutputOf16Bits) * share;
  const auto vectors = static_cast<double>(ceil_div(p.wo, lanes));
  const double sums = kernel_rows_inside(p) * static_cast<double>(p.s) * vectors * kVector * share;
  const double staged = static_cast<double>(p.h) * (static_cast<double>(p.w) * kStage + kRow);
  const double nanoseconds = static_cast<double>(p.k) * (sums + static_cast<double>(p.ho * p.wo) * output + kPlane) +
                             static_cast<double>(p.c) * staged;
  return static_cast<double>(p.n) * nanoseconds * 1e-9 * (core_kind(lanes) == CoreKind::whole_512 ? kWholeVectors : 1) /
         threads;
}

}  // namespace gable::cpu
