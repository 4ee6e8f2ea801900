// See estimate.h.
#include "cuda/wgmma/estimate.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

namespace gable::cuda {
namespace {

/// What several things take that overlap in part: from as long as their sum with power 1 to as long as the slowest.
double overlapped(std::initializer_list<double> cycles, double power) {
  const double slowest = std::max(cycles);
  double sum = 0;
  for (const double each : cycles) sum += std::pow(each / slowest, power);
  return slowest * std::pow(sum, 1 / power);
}

/// Cycles and bytes a cycle, fitted to an H200: see Wgmma::seconds().
struct WgmmaCosts {
  double start, start_of_two;                     // to the first product; where a multiprocessor has two blocks
  double turn;                                    // the matrix unit idles while the consumers change turns
  double epilogue, epilogue_f32;                  // of a chunk of outputs, of 16 bits and of f32
  double epilogue_of_two, epilogue_side_by_side;  // factors: with two blocks a multiprocessor; consumers side by side
  double between_items;                           // of a consumer
  double exchange, exchange_bytes;                // of partial sums between the blocks of a cluster
  double load_bytes;                              // from L2 to one multiprocessor
  double load_bytes_of_all;                       // the same while all load
  double device_bytes, device_of_two;  // of device memory; factor on its time where a multiprocessor has two blocks
  double box, box_of_two;              // least cycles from box to box
  double smallest, of_96;              // factors on the time of products: tiles of 64 and of 96 pixels
  double own_ring_of_weights;          // factor on all where boxes and weights have no common stages
  // How well the products of the busiest multiprocessor, all loads from L2 and device memory overlap: see overlapped().
  double two_blocks, in_turns, side_by_side;

  double overlap(const WgmmaGeometry& g) const {
    if (wgmma_resident_blocks(g.tile.pixels) > 1) return two_blocks;
    return g.schedule == WgmmaSchedule::own_tiles ? in_turns : side_by_side;
  }
  double epilogue_of(const WgmmaGeometry& g, DType type) const {
    const double times = wgmma_resident_blocks(g.tile.pixels) > 1 ? epilogue_of_two
                         : g.schedule == WgmmaSchedule::own_tiles ? 1
                                                                  : epilogue_side_by_side;
    return times * (type == DType::f32 ? epilogue_f32 : epilogue);
  }
};
constexpr WgmmaCosts kTwoRings{.start = 867,
                               .start_of_two = 867,
                               .turn = 328,
                               .epilogue = 294,
                               .epilogue_f32 = 568,
                               .epilogue_of_two = 1,
                               .epilogue_side_by_side = 1,
                               .between_items = 729,
                               .exchange = 376,
                               .exchange_bytes = 9.86,
                               .load_bytes = 69.3,
                               .load_bytes_of_all = 177,
                               .device_bytes = 7756,
                               .device_of_two = 1,
                               .box = 137,
                               .box_of_two = 164,
                               .smallest = 2.64,
                               .of_96 = 1,
                               .own_ring_of_weights = 1,
                               .two_blocks = 1.86,
                               .in_turns = 1.26,
                               .side_by_side = 1.28};
/// Where each step has a box of its own: of 16-bit types, of tf32.
constexpr WgmmaCosts kOfBoxEachStep16{.start = 1092,
                                      .start_of_two = 1222,
                                      .turn = 82,
                                      .epilogue = 339,
                                      .epilogue_f32 = 0,
                                      .epilogue_of_two = 0.4,
                                      .epilogue_side_by_side = 1.39,
                                      .between_items = 445,
                                      .exchange = 100,
                                      .exchange_bytes = 7.04,
                                      .load_bytes = 92.5,
                                      .load_bytes_of_all = 70.8,
                                      .device_bytes = 2511,
                                      .device_of_two = 0.41,
                                      .box = 137,
                                      .box_of_two = 164,
                                      .smallest = 1.8,
                                      .of_96 = 1.07,
                                      .own_ring_of_weights = 1,
                                      .two_blocks = 1.61,
                                      .in_turns = 2.46,
                                      .side_by_side = 3.05};
constexpr WgmmaCosts kOfBoxEachStep32{.start = 1162,
                                      .start_of_two = 1068,
                                      .turn = 0,
                                      .epilogue = 0,
                                      .epilogue_f32 = 568,
                                      .epilogue_of_two = 0.8,
                                      .epilogue_side_by_side = 1.33,
                                      .between_items = 613,
                                      .exchange = 206,
                                      .exchange_bytes = 8.99,
                                      .load_bytes = 93,
                                      .load_bytes_of_all = 74.6,
                                      .device_bytes = 2634,
                                      .device_of_two = 1.15,
                                      .box = 137,
                                      .box_of_two = 164,
                                      .smallest = 2.01,
                                      .of_96 = 1.1,
                                      .own_ring_of_weights = 1.03,
                                      .two_blocks = 3.19,
                                      .in_turns = 2.32,
                                      .side_by_side = 3.06};

/// Large clusters leave a few multiprocessors of each processing cluster idle: of clusters of 4 blocks, 30 run at once
/// on 132 multiprocessors, of 8 blocks 14.
int idle_clusters(int split) { return split == 4 ? 3 : split == 8 ? 2 : 0; }

}  // namespace

void estimate_wgmma(const Conv2dProblem& p, int multiprocessors, WgmmaGeometry& g) {
  const bool each_step_has_a_box = g.steps.boxes.size() == 1 && g.steps.taps.size() == 1;
  const WgmmaCosts& costs = !each_step_has_a_box    ? kTwoRings
                            : p.dtype == DType::f32 ? kOfBoxEachStep32
                                                    : kOfBoxEachStep16;
  const bool one_tile = g.schedule != WgmmaSchedule::own_tiles;  // nothing overlaps with the epilogue
  const int residents = wgmma_resident_blocks(g.tile.pixels);
  const int clusters = std::max(1, multiprocessors / g.steps.split - idle_clusters(g.steps.split));
  const int workers = residents * clusters;
  g.grid.items = g.grid.tiles_x * g.grid.tiles_y * g.grid.tiles_n * g.grid.channel_tiles;
  // A split item has its own cluster.
  g.grid.ctas = g.steps.split > 1 ? g.grid.items * g.steps.split : std::min(g.grid.items, workers);
  const auto element = static_cast<double>(size_of(p.dtype));
  const double start = residents > 1 ? costs.start_of_two : costs.start;
  const double waves = static_cast<double>(ceil_div(g.grid.items, workers));
  const double steps =
      g.steps.parts > 1 ? g.steps.of_greatest_share() : g.steps.per_item() / static_cast<double>(g.steps.split);
  const double products = steps * g.tile.pixels * 2 * wgmma_slices_of_tile(g) *
                          (g.tile.pixels == 64    ? costs.smallest
                           : g.tile.pixels == 96  ? costs.of_96
                           : g.tile.pixels == 112 ? (1 + costs.of_96) / 2
                                                  : 1);
  const double boxes = steps * g.steps.loads_per_block() / static_cast<double>(g.steps.taps.size());
  const double bytes = steps * kWgmmaWeightBytes * wgmma_slices_of_tile(g) + boxes * g.box.pixels() * kWgmmaPixelBytes;
  const double main =
      std::max({products, bytes / costs.load_bytes, boxes * (residents > 1 ? costs.box_of_two : costs.box)});
  const double epilogue = costs.epilogue_of(g, p.dtype) * (p.pool.none() ? 1 : 0.5) * g.tile.pixels / kWgmmaChunk;
  const double both = main + epilogue + costs.between_items;
  const double sent =  // by a consumer
      (each_step_has_a_box ? 1 : wgmma_slices_of_tile(g)) * g.tile.pixels * kWgmmaChannels * 4.0 * (g.steps.split - 1) /
      g.steps.split;
  const double exchange = g.steps.split > 1 ? costs.exchange + sent / costs.exchange_bytes : 0;
  const double item = one_tile ? both : std::max(main + costs.turn, both / 2);
  double busiest =
      waves * (item + exchange) + (g.steps.split > 1 ? (waves - 1) * costs.start : 0) + (one_tile ? 0 : epilogue);
  if (residents > 1) {  // what a block does besides products overlaps with the other's
    const double of_one = static_cast<double>(ceil_div(g.grid.items, clusters));
    busiest = of_one * main + waves * (epilogue + costs.between_items + exchange);
  }
  const auto outputs = static_cast<double>(p.n * p.out_h() * p.out_w() * p.k);
  const double l2 =
      (bytes * g.grid.items * g.steps.split + outputs * element) / (costs.load_bytes_of_all * multiprocessors);
  // With strides, windows may skip pixels.
  const auto inputs = static_cast<double>(p.n * std::min(p.h * p.w, p.ho * p.wo * p.r * p.s) * p.c);
  const double device = (inputs + outputs) * element / costs.device_bytes * (residents > 1 ? costs.device_of_two : 1);
  g.cycles = start + overlapped({busiest, l2, device}, costs.overlap(g));
  if (!g.stages.common) g.cycles *= costs.own_ring_of_weights;
}

}  // namespace gable::cuda
