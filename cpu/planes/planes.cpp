// See planes.h.
#include "cpu/planes/planes.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <stdexcept>

#include "cpu/common/cache.h"
#include "cpu/common/core.h"
#include "cpu/common/coverage.h"
#include "cpu/common/estimate.h"
#include "cpu/common/parallel.h"
#include "cpu/common/tiling.h"
#include "cpu/planes/packing.h"

namespace gable::cpu {
namespace {

constexpr std::int64_t kMaxThreadBytes = 8 << 20;
constexpr std::int64_t kMaxTaps = 1 << 20;  // of the table of a plan, which a query makes too

std::size_t strip_floats(const planes::Blocking& b, const planes::TileUnit&) {
  // In place, the last work unit may stage fewer positions than a vector.
  return line_floats(b.in_place ? b.terms.steps * 2 * planes::kMaxPositions + planes::kMaxPositions : b.strip.floats);
}
std::size_t thread_floats(const planes::Blocking& b, const planes::TileUnit& unit) {
  return strip_floats(b, unit) + line_floats(b.sums_floats);
}

}  // namespace

std::string planes_refusal(const Conv2dProblem& p, int products, const planes::TileUnit& unit) {
  if (!unit.missing.empty()) return unit.missing;
  if (p.nhwc) return "layout nhwc: its lanes are pixels of a channel's plane";
  if (is_depthwise(p))
    return "one input and one output channel in each of several groups: the depthwise kernels take these";
  if (p.r * p.s > kMaxTaps) return text(p.r * p.s) + " filter taps; its table holds " + text(kMaxTaps);
  const planes::Blocking b = planes::blocking_of(p, products, unit, 1);
  const auto bytes = static_cast<std::int64_t>(thread_floats(b, unit) * sizeof(float));
  if (bytes > kMaxThreadBytes) {
    return "its smallest unit of work takes " + text(bytes) + " bytes; at most " + text(kMaxThreadBytes) +
           " a thread are allowed";
  }
  return unit.refusal();  // asks the system, so last
}

namespace {

/// Costs in nanoseconds. Fitted on Zen 4; more than two phases on a Xeon with AMX; cores that do not halve vectors on
/// Zen 5, where a tile of pixels by lanes counts once and not for each pixel.
struct PlaneCosts {
  double stage, stage_phase, stage_phases;  // a staged element: with one phase of the stride, with two, with more
  double staged_row;
  double output, output_by_lanes;  // of tiles of lanes by pixels, of pixels by lanes
  double finished_row;             // a row of outputs that is finished from sums
  double tile, unit;               // a tile; a work unit's input
};
constexpr PlaneCosts kOfVectors{0.27, 0.26, 2.2, 3.5, 0.065, 0.065, 0, 16, 100};
constexpr PlaneCosts kOfConvertedVectors{0.09, 0.15, 3.5, 4.5, 0.24, 0.24, 0, 18, 100};  // 16 bits in f32 vectors
constexpr PlaneCosts kOfPairs{0.19, 0.4, 3.2, 7.5, 0.04, 0.04, 0, 18, 100};
constexpr PlaneCosts kOfWholeVectors{0.05, 0.08, 1.65, 3.65, 0.011, 0.21, 1.44, 25, 88};  // of any dtype
constexpr PlaneCosts kOfWholePairs{0.09, 0.105, 3.1, 6.75, 0.011, 0.21, 1.5, 25, 88};

/// Whole vectors: of products; of a vector of pixels that a step loads, mostly across two cache lines, however few
/// lanes use it; of a byte of weights beyond L2, which every work unit's input reads.
constexpr double kWholeProduct = 0.127, kLoadedVector = 0.7, kLoadedPairs = 0.79, kFarWeight = 0.01;

/// On a Xeon with AMX also: a vector of products of pixels, one of lanes, and a vector of pixels that a step loads for
/// all lanes of a tile. Fitted there with the other kernels' times on the same layers, as its clock changes.
struct XeonCosts {
  PlaneCosts costs;
  double pixel_product, lane_product, loaded;
};
constexpr XeonCosts kOfVectorsOnXeon{{0.1, 0.32, 1.5, 7, 0.13, 0.13, 5, 7, 155}, 0.165, 0.22, 0.65};
constexpr XeonCosts kOfConvertedVectorsOnXeon{{0.1, 0.22, 1.2, 5.5, 0.16, 0.16, 3.5, 7, 145}, 0.12, 0.185, 0.8};
constexpr XeonCosts kOfPairsOnXeon{{0.3, 0.5, 4.3, 8, 0.064, 0.064, 6, 10, 115}, 0.68, 0.69, 0.45};
constexpr XeonCosts kOfWholeTiles{{0.42, 0.6, 4.2, 8.7, 0.16, 0.16, 4, 42, 270}, 0.031, 0, 0};
constexpr XeonCosts kOfWholeTilesOfParts{{0.29, 0.4, 3.4, 10, 0.175, 0.175, 7, 34, 425}, 0.029, 0, 0};  // f16 and f32

/// Products of whole tiles with several taps and whole blocks of channels, over those of one tap: a tap's rows of
/// positions begin anywhere in a cache line, so that a tile load reads 32 lines for 16.
constexpr double kShiftedTiles = 1.5;

/// A parallel region of twelve threads, in seconds.
constexpr double kRegionOnXeon = 3e-6;

bool in_whole_vectors(const planes::TileUnit& unit) { return core_kind(unit.positions) == CoreKind::whole_512; }

const PlaneCosts& costs_of(const Conv2dProblem& p, const planes::TileUnit& unit) {
  if (in_whole_vectors(unit)) return unit.multiplies_pairs() ? kOfWholePairs : kOfWholeVectors;
  if (unit.multiplies_pairs()) return kOfPairs;
  return p.dtype == DType::f32 ? kOfVectors : kOfConvertedVectors;
}

/// Null where cores have no AMX.
const XeonCosts* xeon_costs_of(const Conv2dProblem& p, const planes::TileUnit& unit) {
  if (unit.whole_tiles) return p.dtype == DType::bf16 ? &kOfWholeTiles : &kOfWholeTilesOfParts;
  if (core_kind(unit.positions) != CoreKind::amx) return nullptr;
  if (unit.multiplies_pairs()) return &kOfPairsOnXeon;
  return p.dtype == DType::f32 ? &kOfVectorsOnXeon : &kOfConvertedVectorsOnXeon;
}

/// Rows of outputs of a channel that tiles leave as sums, as their positions are no run of outputs.
double finished_rows(const planes::Blocking& b, const planes::TileUnit& unit) {
  const Conv2dProblem& p = b.problem;
  const planes::Outputs outputs{b.work.images, b.work.rows, b.work.columns};
  if (b.by_lanes || b.strip.columns == p.wo || planes::prefers_rows(b, unit, outputs)) return 0;
  return static_cast<double>(p.n * p.ho * p.k);
}

/// A vector of products on cores that do not halve vectors.
double whole_product(const planes::Blocking& b, const planes::TileUnit& unit) {
  const double loaded = unit.multiplies_pairs() ? kLoadedPairs : kLoadedVector;
  return b.by_lanes ? kWholeProduct : std::max(kWholeProduct, loaded / static_cast<double>(b.panels.lanes));
}
double far_weights(const planes::Blocking& b, const planes::TileUnit& unit) {
  const std::int64_t bytes = b.problem.groups * planes::group_elements(b, unit) * std::int64_t{sizeof(std::uint32_t)};
  return bytes > l2_bytes() ? static_cast<double>(bytes * b.work.inputs()) * kFarWeight : 0;
}

}  // namespace

double planes_seconds(const Conv2dProblem& problem, int products, const planes::TileUnit& unit, int threads) {
  const planes::Blocking b = planes::blocking_of(problem, products, unit, threads);
  const Conv2dProblem& p = b.problem;
  const XeonCosts* xeon = xeon_costs_of(p, unit);
  const PlaneCosts& cost = xeon != nullptr ? xeon->costs : costs_of(p, unit);
  const std::int64_t steps = unit.whole_tiles ? b.terms.blocks() * planes::kBlockSteps : b.terms.steps;
  const auto sums = static_cast<double>(steps * p.r * p.s * std::max(1, b.terms.products));
  const auto outputs = static_cast<double>(p.n * p.k * p.ho * p.wo);
  const auto strips = static_cast<double>(b.work.inputs() * p.groups * b.work.panel_blocks);
  const auto elements = b.in_place ? 0.0 : static_cast<double>(b.terms.steps * b.terms.parts * b.strip.step);
  const bool whole = in_whole_vectors(unit);
  const auto rows = whole && b.in_place ? 0.0
                                        : static_cast<double>(b.terms.steps * b.strip.rows * b.work.images) *
                                              static_cast<double>(b.phases.rows.size() * b.phases.columns.size());
  const double element = p.stride_w > 2 ? cost.stage_phases : p.stride_w > 1 ? cost.stage_phase : cost.stage;
  const double stage = elements * element + rows * cost.staged_row;
  const double vectors = planes::vectors_of(b, unit), share = whole_vector_share(unit.positions);
  const std::int64_t pixels = whole ? unit.most_pixels : 1;
  const double tiles = vectors / static_cast<double>(b.vectors * (b.by_lanes ? pixels : b.panels.lanes));
  const auto lanes = static_cast<double>(b.panels.lanes);
  double product = whole ? whole_product(b, unit) : unit.vector_ns;
  if (xeon != nullptr) product = b.by_lanes ? xeon->lane_product : xeon->pixel_product + xeon->loaded / lanes;
  const bool shifted = p.r * p.s > 1 && p.groups == 1 && b.terms.steps >= planes::kBlockSteps;
  if (unit.whole_tiles && shifted) product *= kShiftedTiles;
  const double output = b.by_lanes ? cost.output_by_lanes : cost.output;
  const double nanoseconds = vectors * sums * product + tiles * cost.tile + strips * (stage + cost.unit) +
                             outputs * output * share + finished_rows(b, unit) * cost.finished_row +
                             (whole ? far_weights(b, unit) : 0);
  const std::int64_t rounds = ceil_div(b.count(), static_cast<std::int64_t>(threads));
  const double region = xeon != nullptr && threads > 1 && b.count() > 1 ? kRegionOnXeon : 0;
  return nanoseconds * 1e-9 * static_cast<double>(rounds) / static_cast<double>(b.count()) + region;
}

PlanesPlan::PlanesPlan(const Conv2dProblem& problem, int products, const planes::TileUnit& unit, const Target& target,
                       int threads)
    : problem_(checked("planes", problem, target, threads)),
      unit_(&unit),
      target_(&target),
      threads_(threads),
      blocking_(planes::blocking_of(problem, products, unit, threads)),
      workspace_(static_cast<std::size_t>(threads) * thread_floats(blocking_, unit)),
      scratch_(static_cast<std::size_t>(threads)) {
  if (const std::string refusal = unit.refusal(); !refusal.empty()) throw std::invalid_argument("planes: " + refusal);
  for (std::size_t thread = 0; thread < scratch_.size(); ++thread) {
    planes::Scratch& scratch = scratch_[thread];
    scratch.reserve(blocking_);
    scratch.strip = workspace_.data() + thread * thread_floats(blocking_, unit);
    scratch.sums = scratch.strip + strip_floats(blocking_, unit);
    clear_leftovers(scratch.sums, static_cast<std::size_t>(blocking_.sums_floats));
  }
}

std::size_t PlanesPlan::packed_bytes() const {
  return static_cast<std::size_t>(problem_.groups * planes::group_elements(blocking_, *unit_)) * sizeof(std::uint32_t);
}

Packing PlanesPlan::packing() const { return planes::packing_key(blocking_, *unit_); }

void PlanesPlan::pack(const void* weights, const WeightStrides& strides, void* packed) const {
  planes::pack_weights(blocking_, *unit_, {weights, strides}, static_cast<std::uint32_t*>(packed));
}

void PlanesPlan::run(const void* x, const void* packed, const float* bias, void* y) {
  const bool non_temporal =
      beyond_last_level(problem_.y_elements() * static_cast<std::int64_t>(size_of(problem_.dtype)));
  const planes::Run run{.blocking = blocking_,
                        .unit = *unit_,
                        .target = *target_,
                        .x = x,
                        .packed = static_cast<const float*>(packed),
                        .bias = problem_.bias ? bias : nullptr,
                        .y = y,
                        .non_temporal = non_temporal,
                        .panel_elements = planes::panel_elements(blocking_, *unit_),
                        .group_elements = planes::group_elements(blocking_, *unit_)};
  const int steps = static_cast<int>(std::min(blocking_.terms.steps, planes::kBlockSteps));
  parallel_units(threads_, blocking_.count(), [&](std::int64_t index, int thread) {
    if (unit_->begin != nullptr) unit_->begin(unit_->most_lanes, steps);
    planes::compute_work_unit(run, index, scratch_[static_cast<std::size_t>(thread)]);
    if (unit_->end != nullptr) unit_->end();
    if (non_temporal) hwy::FlushStream();
  });
}

Conv2dDescription PlanesPlan::description() const {
  const planes::Blocking& b = blocking_;
  const planes::Outputs outputs{b.work.images, b.work.rows, b.work.columns};
  Conv2dDescription d;
  d.kernel = unit_->name;
  d.target = target_->name;
  d.tile = b.by_lanes ? text(std::min<std::int64_t>(unit_->most_pixels, b.work.columns)) + " pixels x " +
                            text(std::min(b.panels.lanes, round_up(b.problem.group_k(), unit_->positions))) + " lanes"
                      : text(b.panels.lanes) + " lanes x " + text(b.vectors * unit_->positions) + " pixels";
  d.blocking =
      (b.terms.parts > 1 ? text(b.terms.parts) + " bf16 parts, " + text(b.terms.products) + " products, " : "") +
      (b.work.images > 1 ? text(b.work.images) + " x " : "") + text(b.work.rows) + "x" + text(b.work.columns) +
      " outputs a unit, " + text(b.work.panels) + " panels, " + text(b.count()) + " units, tiles " +
      (b.by_lanes || planes::prefers_rows(b, *unit_, outputs) ? "row by row" : "flat");
  d.fusion = std::string(b.in_place ? "input in place" : "input staged by planes") + ", pool, bias and activation " +
             (b.problem.pool.none() ? "by tile" : "by panel");
  d.threads = threads_;
  return d;
}

}  // namespace gable::cpu
