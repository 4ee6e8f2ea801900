// See estimate.h.
#include "cuda/wgmma/estimate.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "cuda/common/clusters.h"

namespace gable::cuda {
namespace {

/// What several things take that overlap in part: from as long as their sum with power 1 to as long as the slowest.
double overlapped(std::initializer_list<double> cycles, double power) {
  const double slowest = std::max(cycles);
  double sum = 0;
  for (const double each : cycles) sum += std::pow(each / slowest, power);
  return slowest * std::pow(sum, 1 / power);
}

// The parts of an estimate: cycles and bytes a cycle, fitted to an H200 (see Wgmma::seconds()). "Of two" is where a
// multiprocessor has two blocks.

struct ByBlocks {
  double of_one_block, of_two;

  double of(int residents) const { return residents > 1 ? of_two : of_one_block; }
};

/// Factors on the time of products of tiles with few pixels.
struct ProductCosts {
  double smallest, of_96;  // of 64 and of 96 pixels
  double smallest_alone;   // of 64 pixels where a block has a multiprocessor to itself

  double factor(int pixels, bool alone) const {
    if (pixels == 64) return alone ? smallest_alone : smallest;
    return pixels == 96 ? of_96 : pixels == 112 ? (1 + of_96) / 2 : 1;
  }
};

struct ConsumerCosts {
  double turn;           // the matrix unit idles while the consumers change turns
  double between_items;  // of a consumer
};

struct EpilogueCosts {
  double chunk, chunk_f32;  // of a chunk of outputs, of 16 bits and of f32
  double of_two;            // factors: with two blocks a multiprocessor; consumers side by side
  double side_by_side;

  double of_chunk(const WgmmaGeometry& g, DType type) const {
    const double times = wgmma_resident_blocks(g.tile.pixels) > 1 ? of_two
                         : g.schedule == WgmmaSchedule::own_tiles ? 1
                                                                  : side_by_side;
    return times * (type == DType::f32 ? chunk_f32 : chunk);
  }
};

/// Of partial sums between the blocks of a cluster.
struct ExchangeCosts {
  double start, bytes;
};

/// Bytes a cycle.
struct Bandwidths {
  double l2;             // to one multiprocessor
  double l2_of_all;      // the same while all load
  double device;         // of device memory
  double device_of_two;  // factor on its time
};

/// How well the products of the busiest multiprocessor, all loads from L2 and device memory overlap: see overlapped().
struct OverlapPowers {
  double two_blocks, in_turns, side_by_side;

  double of(const WgmmaGeometry& g) const {
    if (wgmma_resident_blocks(g.tile.pixels) > 1) return two_blocks;
    return g.schedule == WgmmaSchedule::own_tiles ? in_turns : side_by_side;
  }
};

struct WgmmaCosts {
  ByBlocks start;  // to the first product
  ProductCosts products;
  ConsumerCosts consumers;
  EpilogueCosts epilogue;
  ExchangeCosts exchange;
  ByBlocks boxes;  // least cycles from box to box
  Bandwidths bandwidth;
  OverlapPowers overlap;
  double own_ring_of_weights;  // factor on all where boxes and weights have no common stages
};
// Fitted together to 1220 layers, of networks and random, with the sixteen tiles of the least estimates of each. A
// constant far from the fit before, to every tile of 987 layers, counts against a fit. Of 392 other layers picks take
// 1.018 of the best tile's time, at most 1.29 (before 1.026, 1.44).

/// Of windows whose boxes serve many taps.
constexpr WgmmaCosts kTwoRings{.start = {.of_one_block = 2380, .of_two = 940},
                               .products = {.smallest = 3.38, .of_96 = 1, .smallest_alone = 2.89},
                               .consumers = {.turn = 547, .between_items = 1050},
                               .epilogue = {.chunk = 350, .chunk_f32 = 496, .of_two = 1.14, .side_by_side = 0.962},
                               .exchange = {.start = 402, .bytes = 8.13},
                               .boxes = {.of_one_block = 137, .of_two = 164},
                               .bandwidth = {.l2 = 55.4, .l2_of_all = 80, .device = 11000, .device_of_two = 1},
                               .overlap = {.two_blocks = 1.77, .in_turns = 1.29, .side_by_side = 1.13},
                               .own_ring_of_weights = 0.935};
/// Of windows where each step has a box of its own: of 16-bit types, of tf32.
constexpr WgmmaCosts kOfBoxEachStep16{
    .start = {.of_one_block = 954, .of_two = 1230},
    .products = {.smallest = 1.26, .of_96 = 1.09, .smallest_alone = 1.57},
    .consumers = {.turn = 80.6, .between_items = 517},
    .epilogue = {.chunk = 581, .chunk_f32 = 0, .of_two = 0.416, .side_by_side = 1.62},
    .exchange = {.start = 94.1, .bytes = 10.9},
    .boxes = {.of_one_block = 236, .of_two = 225},
    .bandwidth = {.l2 = 102, .l2_of_all = 71.7, .device = 3470, .device_of_two = 0.404},
    .overlap = {.two_blocks = 2.85, .in_turns = 1.75, .side_by_side = 4.03},
    .own_ring_of_weights = 1};
constexpr WgmmaCosts kOfBoxEachStep32{
    .start = {.of_one_block = 852, .of_two = 1320},
    .products = {.smallest = 1.57, .of_96 = 1.08, .smallest_alone = 1.46},
    .consumers = {.turn = 0, .between_items = 638},
    .epilogue = {.chunk = 0, .chunk_f32 = 833, .of_two = 0.634, .side_by_side = 1.64},
    .exchange = {.start = 190, .bytes = 12.7},
    .boxes = {.of_one_block = 258, .of_two = 164},
    .bandwidth = {.l2 = 76.2, .l2_of_all = 74.7, .device = 3320, .device_of_two = 1.19},
    .overlap = {.two_blocks = 2.8, .in_turns = 2.05, .side_by_side = 3.43},
    .own_ring_of_weights = 1.03};
/// Of one tap: of 16-bit types, of tf32.
constexpr WgmmaCosts kOfOneTap16{.start = {.of_one_block = 1520, .of_two = 1350},
                                 .products = {.smallest = 1.49, .of_96 = 1.21, .smallest_alone = 1.33},
                                 .consumers = {.turn = 77.9, .between_items = 546},
                                 .epilogue = {.chunk = 370, .chunk_f32 = 0, .of_two = 0.339, .side_by_side = 1.33},
                                 .exchange = {.start = 100, .bytes = 9.34},
                                 .boxes = {.of_one_block = 137, .of_two = 164},
                                 .bandwidth = {.l2 = 84.5, .l2_of_all = 82.9, .device = 3330, .device_of_two = 0.366},
                                 .overlap = {.two_blocks = 2.01, .in_turns = 2.35, .side_by_side = 3.91},
                                 .own_ring_of_weights = 1.19};
constexpr WgmmaCosts kOfOneTap32{.start = {.of_one_block = 1610, .of_two = 1140},
                                 .products = {.smallest = 2.17, .of_96 = 1.16, .smallest_alone = 1.5},
                                 .consumers = {.turn = 0, .between_items = 552},
                                 .epilogue = {.chunk = 0, .chunk_f32 = 568, .of_two = 0.455, .side_by_side = 1.43},
                                 .exchange = {.start = 193, .bytes = 13.7},
                                 .boxes = {.of_one_block = 137, .of_two = 164},
                                 .bandwidth = {.l2 = 67.1, .l2_of_all = 82, .device = 3040, .device_of_two = 0.815},
                                 .overlap = {.two_blocks = 3.19, .in_turns = 2.32, .side_by_side = 3.26},
                                 .own_ring_of_weights = 1.19};

/// Cycles that the kernel of blocks with one item each takes less.
constexpr double kSavedByOneItem = 891;

constexpr std::int64_t kSector = 32;  // bytes of the L2

/// Copies of pixels whose channels are no whole sectors of the L2, or odd ones, take so many times as long where each
/// step has its own. Fitted to 30 layers; the tiles picked for 31 others of half sectors take 1.017 of the best tile's
/// time, without it 1.124.
double straddling(const Conv2dProblem& p) {
  const std::int64_t bytes = p.c * static_cast<std::int64_t>(size_of(p.dtype));
  return bytes % kSector != 0 ? 1.8 : bytes % (2 * kSector) != 0 ? 1.4 : 1;
}

/// Whether some pixels begin in the middle of a sector of the L2: what a box loads of such a pixel lies in two lines.
bool pixels_in_two_lines(const Conv2dProblem& p, const WgmmaGeometry& g) {
  // Parts of values are read from a copy whose pixels are whole sectors.
  return g.steps.parts == 1 && p.c * static_cast<std::int64_t>(size_of(p.dtype)) % kSector != 0;
}

/// Bytes that a block loads for an item.
struct LoadedBytes {
  double weights, pixels;
};

/// Bytes through the port that two neighbouring multiprocessors share. A pixel in two lines of the L2 counts twice.
/// Both have neighbouring items: what both load, pixels or weights, counts once, but not pixels in two lines, nor
/// anything where depths are split. With work for at most half of the multiprocessors, none shares its port. By every
/// tile of 530 layers on an H200.
double bytes_of_port(const WgmmaGeometry& g, const LoadedBytes& b, bool in_two_lines, int multiprocessors) {
  const double pixels = b.pixels * (in_two_lines ? 2 : 1);
  if (std::int64_t{g.grid.items} * g.steps.split <= multiprocessors / 2) return b.weights + pixels;
  double shared = 0;
  if (g.steps.split == 1) {
    const int tiles = g.grid.items / g.grid.channel_tiles;
    const bool same_pixels = g.grid.channel_tiles > 1 && (!g.grid.pixels_first || tiles == 1);
    if (same_pixels && !in_two_lines) shared = pixels;
    if (!same_pixels && tiles > 1) shared = b.weights;
  }
  return 2 * (b.weights + pixels) - shared;
}

/// Cycles of the weights that L2 does not keep from the run before, as those of fully connected layers with tens of
/// millions of them. The streams of h200/fully-connected-short-boxes: 33.5 MB stay, of 51 MB nothing does.
double weights_from_memory(const Conv2dProblem& p, const WgmmaGeometry& g) {
  constexpr double kKept = 32 << 20, kNothingKept = 48 << 20, kBytes = 2440;  // a cycle
  const auto weights = static_cast<double>(p.k * p.r * p.s * (p.c / p.groups));
  const double bytes = weights * static_cast<double>(size_of(p.dtype)) * g.steps.parts;
  return bytes * std::clamp((bytes - kKept) / (kNothingKept - kKept), 0.0, 1.0) / kBytes;
}

}  // namespace

int wgmma_blocks_of_multiprocessor(const WgmmaGeometry& g, int multiprocessors) {
  const bool alone = g.grid.one_item || (g.steps.box_each_step() && g.grid.items * g.steps.split <= multiprocessors);
  return alone ? 1 : wgmma_resident_blocks(g.tile.pixels);
}

bool estimate_wgmma(const Conv2dProblem& p, int multiprocessors, double limit, WgmmaGeometry& g) {
  const bool one_tap = g.steps.boxes.size() == 1 && g.steps.taps.size() == 1;
  const bool each_step_has_a_box = one_tap || g.stages.common;
  const bool f32 = p.dtype == DType::f32;
  const WgmmaCosts& costs = !each_step_has_a_box ? kTwoRings
                            : one_tap            ? (f32 ? kOfOneTap32 : kOfOneTap16)
                            : f32                ? kOfBoxEachStep32
                                                 : kOfBoxEachStep16;
  const bool one_tile = g.schedule != WgmmaSchedule::own_tiles;  // nothing overlaps with the epilogue
  const int residents = wgmma_blocks_of_multiprocessor(g, multiprocessors);
  const int clusters = clusters_at_once(multiprocessors, g.steps.split);
  const int workers = residents * clusters;
  // A split item has its own cluster.
  g.grid.ctas = g.steps.split > 1 ? g.grid.items * g.steps.split : std::min(g.grid.items, workers);
  const auto element = static_cast<double>(size_of(p.dtype));
  const double start = costs.start.of(residents);
  const double waves = static_cast<double>(ceil_div(g.grid.items, workers));
  const double steps =
      g.steps.parts > 1 ? g.steps.of_greatest_share() : g.steps.per_item() / static_cast<double>(g.steps.split);
  const bool one_pixel_tile = g.grid.items == g.grid.channel_tiles;
  const bool alone = residents == 1 && (f32 || !g.grid.one_item || one_pixel_tile);
  const double products =
      steps * g.tile.pixels * 2 * wgmma_slices_of_tile(g) * costs.products.factor(g.tile.pixels, alone);
  const double boxes = steps * g.steps.loads_per_block() / static_cast<double>(g.steps.taps.size());
  constexpr double kPortBytes = 105;           // a cycle, of boxes that serve one step
  constexpr double kOddPixelOfAllTaps = 6.09;  // the least cycles of a pixel of a box for all taps
  const bool in_two_lines = !one_tap && pixels_in_two_lines(p, g), gathers = !one_tap && each_step_has_a_box;
  const LoadedBytes loaded{.weights = steps * kWgmmaWeightBytes * wgmma_slices_of_tile(g),
                           .pixels = boxes * g.box.pixels() * kWgmmaPixelBytes * (one_tap ? straddling(p) : 1)};
  const double port = gathers ? bytes_of_port(g, loaded, in_two_lines, multiprocessors) / kPortBytes : 0;
  const double bytes = loaded.weights + loaded.pixels * (in_two_lines && g.tile.by_tap ? 2 : 1);
  const double box =
      std::max(costs.boxes.of(residents), in_two_lines && !g.tile.by_tap ? g.box.pixels() * kOddPixelOfAllTaps : 0);
  constexpr double kUnsharedWeights = 40;  // bytes a cycle, of weights that no other block reads
  const double unshared = one_tap && one_pixel_tile ? loaded.weights / kUnsharedWeights : 0;
  const double main = std::max({products, bytes / costs.bandwidth.l2, port, boxes * box, unshared});
  const double epilogue = costs.epilogue.of_chunk(g, p.dtype) * (p.pool.none() ? 1 : 0.5) * g.tile.pixels / kWgmmaChunk;
  const double both = main + epilogue + costs.consumers.between_items;
  const double sent =  // by a consumer
      (each_step_has_a_box ? 1 : wgmma_slices_of_tile(g)) * g.tile.pixels * kWgmmaChannels * 4.0 * (g.steps.split - 1) /
      g.steps.split;
  constexpr double kClusterOf8 = 2000;  // until all of its blocks run
  const double together = each_step_has_a_box && g.steps.split == kWgmmaMaxSplit ? kClusterOf8 : 0;
  const double exchange = g.steps.split > 1 ? costs.exchange.start + together + sent / costs.exchange.bytes : 0;
  const double item = one_tile ? both : std::max(main + costs.consumers.turn, both / 2);
  double busiest = waves * (item + exchange) + (g.steps.split > 1 ? (waves - 1) * costs.start.of_one_block : 0) +
                   (one_tile ? 0 : epilogue);
  if (residents > 1) {  // what a block does besides products overlaps with the other's
    const double of_one = static_cast<double>(ceil_div(g.grid.items, clusters));
    busiest = of_one * main + waves * (epilogue + costs.consumers.between_items + exchange);
  }
  const auto outputs = static_cast<double>(p.n * p.out_h() * p.out_w() * p.k);
  const double l2 =
      (bytes * g.grid.items * g.steps.split + outputs * element) / (costs.bandwidth.l2_of_all * multiprocessors);
  // With strides, windows may skip pixels.
  const auto inputs = static_cast<double>(p.n * std::min(p.h * p.w, p.ho * p.wo * p.r * p.s) * p.c);
  const double device =
      (inputs + outputs) * element / costs.bandwidth.device * (residents > 1 ? costs.bandwidth.device_of_two : 1) +
      weights_from_memory(p, g);
  const auto in_all = [&](double parts) {
    return (start + parts) * (g.stages.common ? 1 : costs.own_ring_of_weights) -
           (g.grid.one_item ? kSavedByOneItem : 0);
  };
  if (in_all(std::max({busiest, l2, device})) >= limit) return false;
  g.cycles = in_all(overlapped({busiest, l2, device}, costs.overlap.of(g)));
  return true;
}

}  // namespace gable::cuda
