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

  double factor(int pixels) const {
    return pixels == 64 ? smallest : pixels == 96 ? of_96 : pixels == 112 ? (1 + of_96) / 2 : 1;
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
constexpr WgmmaCosts kTwoRings{.start = {.of_one_block = 867, .of_two = 867},
                               .products = {.smallest = 2.64, .of_96 = 1},
                               .consumers = {.turn = 328, .between_items = 729},
                               .epilogue = {.chunk = 294, .chunk_f32 = 568, .of_two = 1, .side_by_side = 1},
                               .exchange = {.start = 376, .bytes = 9.86},
                               .boxes = {.of_one_block = 137, .of_two = 164},
                               .bandwidth = {.l2 = 69.3, .l2_of_all = 177, .device = 7756, .device_of_two = 1},
                               .overlap = {.two_blocks = 1.86, .in_turns = 1.26, .side_by_side = 1.28},
                               .own_ring_of_weights = 1};
/// Where each step has a box of its own: of 16-bit types, of tf32.
constexpr WgmmaCosts kOfBoxEachStep16{
    .start = {.of_one_block = 1092, .of_two = 1222},
    .products = {.smallest = 1.8, .of_96 = 1.07},
    .consumers = {.turn = 82, .between_items = 445},
    .epilogue = {.chunk = 339, .chunk_f32 = 0, .of_two = 0.4, .side_by_side = 1.39},
    .exchange = {.start = 100, .bytes = 7.04},
    .boxes = {.of_one_block = 137, .of_two = 164},
    .bandwidth = {.l2 = 92.5, .l2_of_all = 70.8, .device = 2511, .device_of_two = 0.41},
    .overlap = {.two_blocks = 1.61, .in_turns = 2.46, .side_by_side = 3.05},
    .own_ring_of_weights = 1};
constexpr WgmmaCosts kOfBoxEachStep32{.start = {.of_one_block = 1162, .of_two = 1068},
                                      .products = {.smallest = 2.01, .of_96 = 1.1},
                                      .consumers = {.turn = 0, .between_items = 613},
                                      .epilogue = {.chunk = 0, .chunk_f32 = 568, .of_two = 0.8, .side_by_side = 1.33},
                                      .exchange = {.start = 206, .bytes = 8.99},
                                      .boxes = {.of_one_block = 137, .of_two = 164},
                                      .bandwidth = {.l2 = 93, .l2_of_all = 74.6, .device = 2634, .device_of_two = 1.15},
                                      .overlap = {.two_blocks = 3.19, .in_turns = 2.32, .side_by_side = 3.06},
                                      .own_ring_of_weights = 1.03};

/// Cycles that the kernel of blocks with one item each takes less. On 552 layers, 282 of them of no fit, 500 to 1300
/// pick tiles that take 1.013 to 1.015 of the best one's time; with more a few layers that are bound by memory get it
/// and lose.
constexpr double kSavedByOneItem = 500;

/// Copies of pixels whose channels are no whole sectors of the L2, or odd ones, take so many times as long where each
/// step has its own. Fitted to 30 layers; the tiles picked for 31 others of half sectors take 1.017 of the best tile's
/// time, without it 1.124.
double straddling(const Conv2dProblem& p) {
  constexpr std::int64_t kSector = 32;  // bytes
  const std::int64_t bytes = p.c * static_cast<std::int64_t>(size_of(p.dtype));
  return bytes % kSector != 0 ? 1.8 : bytes % (2 * kSector) != 0 ? 1.4 : 1;
}

/// The least cycles of a pixel of a box, where windows have several taps and pixels begin within 64 bytes of each
/// other's: those of a box of one tap, which may begin anywhere in a row of the image, and of one for all taps. By
/// every tile of 297 layers on an H200: fitted to 121 of them, picks of the others take 1.044 of the best tile's time
/// (1.057 without), fitted to the others, those of the 121 take 1.043 (1.062).
double pixel_cycles(const Conv2dProblem& p, const WgmmaGeometry& g) {
  constexpr std::int64_t kSector = 32;  // bytes
  constexpr double kOdd = 5.2, kOddSectors = 3, kOddOfAllTaps = 7.4;
  if (g.steps.parts > 1) return 0;  // its input is a copy of whole sectors
  const std::int64_t bytes = p.c * static_cast<std::int64_t>(size_of(p.dtype));
  if (!g.tile.by_tap) return bytes % kSector != 0 ? kOddOfAllTaps : 0;
  return bytes % kSector != 0 ? kOdd : bytes % (2 * kSector) != 0 ? kOddSectors : 0;
}

}  // namespace

bool estimate_wgmma(const Conv2dProblem& p, int multiprocessors, double limit, WgmmaGeometry& g) {
  const bool one_tap = g.steps.boxes.size() == 1 && g.steps.taps.size() == 1;
  const bool each_step_has_a_box = one_tap || g.stages.common;
  const WgmmaCosts& costs = !each_step_has_a_box    ? kTwoRings
                            : p.dtype == DType::f32 ? kOfBoxEachStep32
                                                    : kOfBoxEachStep16;
  const bool one_tile = g.schedule != WgmmaSchedule::own_tiles;  // nothing overlaps with the epilogue
  const int residents = g.grid.one_item ? 1 : wgmma_resident_blocks(g.tile.pixels);
  const int clusters = clusters_at_once(multiprocessors, g.steps.split);
  const int workers = residents * clusters;
  // A split item has its own cluster.
  g.grid.ctas = g.steps.split > 1 ? g.grid.items * g.steps.split : std::min(g.grid.items, workers);
  const auto element = static_cast<double>(size_of(p.dtype));
  const double start = costs.start.of(residents);
  const double waves = static_cast<double>(ceil_div(g.grid.items, workers));
  const double steps =
      g.steps.parts > 1 ? g.steps.of_greatest_share() : g.steps.per_item() / static_cast<double>(g.steps.split);
  const double products = steps * g.tile.pixels * 2 * wgmma_slices_of_tile(g) * costs.products.factor(g.tile.pixels);
  const double boxes = steps * g.steps.loads_per_block() / static_cast<double>(g.steps.taps.size());
  const double bytes = steps * kWgmmaWeightBytes * wgmma_slices_of_tile(g) +
                       boxes * g.box.pixels() * kWgmmaPixelBytes * (one_tap ? straddling(p) : 1);
  const double box = std::max(costs.boxes.of(residents), one_tap ? 0 : g.box.pixels() * pixel_cycles(p, g));
  const double main = std::max({products, bytes / costs.bandwidth.l2, boxes * box});
  const double epilogue = costs.epilogue.of_chunk(g, p.dtype) * (p.pool.none() ? 1 : 0.5) * g.tile.pixels / kWgmmaChunk;
  const double both = main + epilogue + costs.consumers.between_items;
  const double sent =  // by a consumer
      (each_step_has_a_box ? 1 : wgmma_slices_of_tile(g)) * g.tile.pixels * kWgmmaChannels * 4.0 * (g.steps.split - 1) /
      g.steps.split;
  const double exchange = g.steps.split > 1 ? costs.exchange.start + sent / costs.exchange.bytes : 0;
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
      (inputs + outputs) * element / costs.bandwidth.device * (residents > 1 ? costs.bandwidth.device_of_two : 1);
  const auto in_all = [&](double parts) {
    return (start + parts) * (g.stages.common ? 1 : costs.own_ring_of_weights) -
           (g.grid.one_item ? kSavedByOneItem : 0);
  };
  if (in_all(std::max({busiest, l2, device})) >= limit) return false;
  g.cycles = in_all(overlapped({busiest, l2, device}, costs.overlap.of(g)));
  return true;
}

}  // namespace gable::cuda
