// See pointwise_blocking.h.
#include "cpu/pointwise/pointwise_blocking.h"

#include <algorithm>

#include "cpu/common/cache.h"
#include "cpu/common/tiling.h"

namespace gable::cpu {
namespace {

constexpr std::int64_t kFloat = sizeof(float);
constexpr std::int64_t kTilesPerGroup = 16;
constexpr std::int64_t kWideVectors = 4;
constexpr std::int64_t kFewPanels = 2;  // of four vectors

/// Eight vectors where the pixels of a tile of them are all there are. Four where there are one or two such panels, and
/// one panel of weights nearly fits L1; else two.
std::int64_t choose_vectors(const Conv2dProblem& p, const PointwiseKernels& kernels, bool copies_input) {
  if (is_matrix_by_vector(p, kernels)) return kMaxPointwiseVectors;
  const std::int64_t lanes = kWideVectors * kernels.lanes;
  const bool exists = kernels.most_pixels[kWideVectors] > 0;
  const bool few = p.k >= lanes && p.k <= kFewPanels * lanes;
  return exists && !copies_input && few && p.c * lanes * kFloat <= l1_bytes() * 3 / 2 ? kWideVectors : kPanelVectors;
}

/// Makes enough units for the threads. First cuts pixels into blocks, of at least kLeastTilesPerGroup tiles where
/// panels are outside; then cuts lanes.
void feed_threads(const Conv2dProblem& p, const PointwiseKernels& kernels, int threads, PointwiseBlocking& b) {
  const std::int64_t wanted = units_wanted(threads);
  const std::int64_t whole = b.copies_input || is_pointwise(p) ? b.tile.pixels : b.row_pixels;
  b.units.pixels = std::min(b.pixels, round_up(ceil_div(b.pixels, wanted), whole));
  if (b.panels_outside) {
    const std::int64_t most = std::clamp(b.units.pixels, kLeastTilesPerGroup * b.tile.pixels, b.group_pixels);
    b.units.pixels = ceil_div(b.pixels, ceil_div(b.pixels, most));
  }
  b.units.pixel_blocks = ceil_div(b.pixels, b.units.pixels);
  // A matrix times a vector has no other parallelism: narrower panels than the tile's feed more threads.
  std::int64_t panel = b.tile.vectors * kernels.lanes;
  while (panel > kPanelVectors * kernels.lanes && ceil_div(p.k, panel) < threads) panel /= 2;
  b.units.lanes = std::min(p.k, round_up(ceil_div(p.k, ceil_div(wanted, b.units.pixel_blocks)), panel));
  b.units.lane_blocks = ceil_div(p.k, b.units.lanes);
}

}  // namespace

bool is_matrix_by_vector(const Conv2dProblem& p, const PointwiseKernels& kernels) {
  return p.n * p.ho * p.wo <= kernels.most_pixels[kMaxPointwiseVectors];
}

bool l2_keeps_weights(const Conv2dProblem& p) { return p.c * p.k * kFloat <= l2_bytes() / 2; }

std::int64_t cached_pixels(const Conv2dProblem& p) { return l2_bytes() / 2 / (p.c * kFloat); }

PointwiseBlocking pointwise_blocking(const Conv2dProblem& p, const PointwiseKernels& kernels, int threads) {
  PointwiseBlocking b{};
  b.pixels = p.n * p.ho * p.wo;
  b.row_pixels = is_pointwise(p) ? b.pixels : p.wo;
  b.panels_outside = !l2_keeps_weights(p) && !is_matrix_by_vector(p, kernels);
  const int most_pixels = kernels.most_pixels[kPanelVectors];
  const bool aliased = p.stride_w * p.c * kFloat % kL1WayBytes == 0 && most_pixels > l1_bytes() / kL1WayBytes;
  const bool short_rows = b.row_pixels < std::min<std::int64_t>(b.pixels, most_pixels);
  b.copies_input = !is_matrix_by_vector(p, kernels) && (b.panels_outside || aliased || short_rows);
  b.non_temporal = p.k % kernels.lanes == 0 && beyond_last_level(b.pixels * p.k * kFloat);
  b.tile.vectors = choose_vectors(p, kernels, b.copies_input);
  b.tile.pixels = kernels.most_pixels[static_cast<std::size_t>(b.tile.vectors)];
  b.strip_pixel = round_up(p.c, kPointwiseRun) + kPointwiseRun;
  const std::int64_t tiles = std::min(cached_pixels(p) / b.tile.pixels, kTilesPerGroup);
  b.group_pixels = (b.panels_outside ? tiles : 1) * b.tile.pixels;
  feed_threads(p, kernels, threads, b);
  return b;
}

}  // namespace gable::cpu
