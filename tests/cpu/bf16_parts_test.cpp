// The parts of the bf16 kernels, each alone: packed weights and their key, a plan's description, work units,
// regions, prefetches and the queue of tiles.
#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <set>
#include <vector>

#include "cpu/bf16/conv2d.h"
#include "cpu/bf16/description.h"
#include "cpu/bf16/pack.h"
#include "cpu/bf16/prefetch.h"
#include "cpu/bf16/regions.h"
#include "cpu/bf16/staging.h"
#include "cpu/bf16/tile_queue.h"
#include "cpu/bf16/work_unit.h"
#include "cpu/common/half.h"
#include "tests/cpu/bf16_emulated.h"
#include "tests/cpu/oracle.h"

namespace gable::cpu::test {
namespace {

using namespace bf16;

/// The geometry and rates of AVX512-BF16's unit, whether this machine has it or not.
Bf16Unit pair_unit() {
  static const EpilogueFunction epilogue = [](const Epilogue&) {};
  Bf16Unit unit = emulated_unit();
  unit.name = "pairs";
  unit.positions = 14;
  unit.loads_full_halves = false;
  unit.runs_epilogue_in_registers = true;
  unit.windows = WindowInput::strip;
  unit.epilogues = {.bf16 = epilogue, .f16 = nullptr};
  return unit;
}

struct Packed {
  Packing key;
  std::vector<std::uint16_t> bytes;
};
/// Of the same weights, element by element of OIHW.
Packed packed_by(const Conv2dProblem& p, int products, const Bf16Unit& unit, int threads) {
  const Bf16Conv2dPlan plan(p, products, unit, best_target(), threads);
  std::mt19937 random(5);
  const Elements weights = random_elements(p.dtype, p.k * p.group_c() * p.r * p.s, random);
  std::vector<std::uint16_t> bytes(plan.packed_bytes() / 2);
  plan.pack(weights.data(), dense_strides(p), bytes.data());
  return {plan.packing(), bytes};
}

Conv2dProblem bf16_problem(Conv2dProblem p) {
  p.dtype = DType::bf16;
  return p;
}

std::string fusion_of(const Conv2dProblem& p, const Bf16Unit& unit) {
  return Bf16Conv2dPlan(p, 1, unit, best_target(), 1).description().fusion;
}
bool has(const std::string& words, const char* part) { return words.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("bf16 packing: one key for every batch, image, epilogue and number of threads, with the same bytes") {
  for (const std::int64_t channels : {3, 40, 64}) {
    const Conv2dProblem layer = bf16_problem(same_padded({.c = channels, .h = 9, .w = 17, .k = 70, .r = 3, .s = 3}));
    const Packed first = packed_by(layer, 1, emulated_unit(), 1);
    for (const std::int64_t n : {1, 3, 16, 40}) {
      for (const std::int64_t width : {4, 17, 60}) {
        for (const int threads : {1, 5}) {
          Conv2dProblem p = layer;
          p.n = n;
          p.w = width;
          p.bias = n > 1;
          p.activation = width > 17 ? Activation::relu : Activation::none;
          p = same_padded(p);
          const Packed other = packed_by(p, 1, emulated_unit(), threads);
          CHECK(first.key == other.key);
          CHECK(first.bytes == other.bytes);
        }
      }
    }
  }
}

TEST_CASE("bf16 packing: keys are equal exactly where the bytes are") {
  std::vector<Packed> all;
  for (const std::int64_t channels : {3, 4, 6, 64}) {
    for (const std::int64_t dilation : {1, 2}) {
      for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
        Conv2dProblem p{.c = channels, .h = 12, .w = 12, .k = 40, .r = 3, .s = 3, .dilation_w = dilation};
        p.dtype = type;
        p = same_padded(p);
        for (const int products : {1, 3, 4, 6}) {
          if ((products == 1) != (type == DType::bf16)) continue;
          if (products == 4 && type == DType::f32) continue;
          if (products == 6 && type == DType::f16) continue;
          all.push_back(packed_by(p, products, emulated_unit(), 1));
          if (products == 1) all.push_back(packed_by(p, products, pair_unit(), 1));
        }
      }
    }
  }
  int equal = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      CHECK((all[i].key == all[j].key) == (all[i].bytes == all[j].bytes));
      equal += all[i].bytes == all[j].bytes ? 1 : 0;
    }
  }
  CHECK(equal > 0);
}

TEST_CASE("bf16 description: epilogues run in registers where the unit does so, else in an L1 tile") {
  const Bf16Unit pairs = pair_unit();
  Conv2dProblem p = bf16_problem(same_padded({.c = 32, .h = 28, .w = 28, .k = 64, .r = 3, .s = 3, .bias = true}));
  p.activation = Activation::relu;
  CHECK(has(fusion_of(p, pairs), "no pool, bias and relu in registers"));
  CHECK_FALSE(has(fusion_of(p, pairs), "L1"));
  CHECK(has(fusion_of(p, emulated_unit()), "no pool, bias and relu in an L1 tile"));
  p.activation = Activation::tanh;  // which the unit's epilogue does not take
  CHECK(has(fusion_of(p, pairs), "bias and tanh in an L1 tile"));
  p.activation = Activation::none;
  p.pool = {2, 2, 2, 2};
  CHECK(has(fusion_of(p, pairs), "max-pool in an L1 tile, bias in an L1 tile"));
  p.pool = {};
  p.k = 40;  // the second panel has 8 lanes
  CHECK(has(fusion_of(p, pairs), "bias in registers"));
  CHECK_FALSE(has(fusion_of(p, pairs), "L1"));
  p.bias = false;
  p.k = 32;
  CHECK(has(fusion_of(p, pairs), "conversion in registers"));
  // Several rows of few columns are taken flat, and a tile's pixels are then not one run of y.
  const Conv2dProblem narrow = bf16_problem(same_padded({.c = 32, .h = 7, .w = 4, .k = 32, .r = 3, .s = 1}));
  CHECK(has(fusion_of(narrow, pairs), "conversion in an L1 tile"));
}

TEST_CASE("bf16 description: epilogue places are those that the loops choose") {
  const Bf16Unit pairs = pair_unit();
  const Conv2dProblem p = bf16_problem(same_padded({.c = 32, .h = 28, .w = 28, .k = 40, .r = 3, .s = 3}));
  const Blocking b = blocking_of(p, 1, pairs, 1);
  const EpiloguePlaces places = epilogue_places(p, b, pairs);
  CHECK(places.in_registers == 2 * b.work.count);
  CHECK(places.in_l1 == 0);
}

TEST_CASE("bf16 description: of 10^8 work units only some are looked at") {
  const Conv2dProblem p =
      bf16_problem(sized({.n = 490'399'576, .c = 1, .h = 150, .w = 4, .k = 1, .stride_h = 3, .stride_w = 3}, 0, 0));
  const std::clock_t start = std::clock();
  CHECK(has(fusion_of(p, pair_unit()), "no pool, conversion in "));
  CHECK(std::clock() - start < CLOCKS_PER_SEC / 4);  // it took 9 s
}

TEST_CASE("bf16 description: panels in turn and input in place are claimed only where they happen") {
  const Conv2dProblem rows =
      bf16_problem(sized({.c = 96, .h = 57, .w = 57, .k = 96, .stride_h = 2, .stride_w = 2}, 0, 0));
  const Bf16Unit pairs = pair_unit();
  const Blocking b = blocking_of(rows, 1, pairs, 1);
  REQUIRE(b.weights.chunk == b.work.panels);
  const std::string blocking = Bf16Conv2dPlan(rows, 1, pairs, best_target(), 1).description().blocking;
  CHECK(has(blocking, "in turn") == prefers_flat(b, pairs, b.work.rows, b.work.columns));
  // 17 pixels in halves of 16 or 14: a unit that loads full halves would read beyond x, and stages its last work unit.
  // Tiles of panels start their last half earlier.
  Conv2dProblem ragged = bf16_problem(sized({.c = 64, .w = 17, .k = 64}, 0, 0));
  CHECK(has(fusion_of(ragged, emulated_unit()), "input in place"));
  ragged.activation = Activation::tanh;
  CHECK(has(fusion_of(ragged, emulated_unit()), "input staged in L2"));
  CHECK(has(fusion_of(bf16_problem(sized({.c = 64, .w = 16, .k = 64}, 0, 0)), emulated_unit()), "input in place"));
}

TEST_CASE("bf16 description: the pair product stages pixels that share a set of L1") {
  const auto input_of = [](std::int64_t channels) {
    const Conv2dProblem p = bf16_problem(sized({.c = channels, .h = 14, .w = 14, .k = 64}, 0, 0));
    return fusion_text(p, blocking_of(p, 1, pair_unit(), 1), pair_unit()).substr(0, 18);
  };
  CHECK(input_of(2048) == "input staged in L2");
  CHECK(input_of(2080) != "input staged in L2");
}

TEST_CASE("bf16 work units: each output is in exactly one, whichever operand is outermost") {
  const Conv2dProblem p = bf16_problem(same_padded({.n = 3, .c = 64, .h = 13, .w = 50, .k = 200, .r = 3, .s = 3}));
  Blocking b = blocking_of(p, 1, emulated_unit(), 16);
  for (const bool weights_outermost : {false, true}) {
    b.work.weights_outermost = weights_outermost;
    std::vector<int> covered(
        static_cast<std::size_t>(b.geometry.n * b.geometry.rows * b.geometry.columns * b.geometry.panels));
    for (std::int64_t index = 0; index < b.work.count; ++index) {
      const WorkUnit work = work_unit_at(b, index);
      CHECK(work.index == index);
      for (std::int64_t row = work.first_row; row < work.first_row + work.rows; ++row) {
        for (std::int64_t column = work.first_column; column < work.first_column + work.columns; ++column) {
          for (std::int64_t panel = work.first_panel; panel < work.end_panel; ++panel) {
            const std::int64_t pixel = (work.image * b.geometry.rows + row) * b.geometry.columns + column;
            ++covered[static_cast<std::size_t>(pixel * b.geometry.panels + panel)];
          }
        }
      }
    }
    CHECK(std::all_of(covered.begin(), covered.end(), [](int times) { return times == 1; }));
    if (b.work.count == 1) continue;
    const WorkUnit first = work_unit_at(b, 0), second = work_unit_at(b, 1);
    if (weights_outermost) CHECK(first.first_panel == second.first_panel);
  }
}

TEST_CASE("bf16 work units of two threads are even where halving is not") {
  const Bf16Unit& unit = bf16_dot_unit();
  if (!unit.missing.empty()) {
    MESSAGE("skipped: ", unit.missing);
    return;
  }
  const Conv2dProblem p = bf16_problem(sized({.c = 672, .h = 7, .w = 7, .k = 184}, 0, 0));
  const Blocking b = blocking_of(p, 1, unit, 2);
  double all = 0;
  const auto work_of = [&](std::int64_t index) {
    const WorkUnit work = work_unit_at(b, index);
    return static_cast<double>(work.rows * work.columns * (work.end_panel - work.first_panel));
  };
  for (std::int64_t index = 0; index < b.work.count; ++index) all += work_of(index);
  INFO(b.work.count << " work units");
  CHECK(parallel_time(2, b.work.count, work_of) < 0.6 * all);
}

TEST_CASE("bf16 work units of several threads: panels that write to the same cache lines stay together") {
  const auto panels_of_a_unit = [](std::int64_t lanes) {
    const Conv2dProblem p = bf16_problem(sized({.c = 128, .h = 49, .w = 32, .k = lanes}, 0, 0));
    return blocking_of(p, 1, emulated_unit(), 2).work.panels;
  };
  CHECK(panels_of_a_unit(64) == 1);
  CHECK(panels_of_a_unit(40) == 2);  // 80 bytes a pixel
  const Conv2dProblem small = bf16_problem(sized({.n = 8, .c = 80, .h = 10, .w = 10, .k = 80}, 0, 0));
  CHECK(blocking_of(small, 1, emulated_unit(), 12).work.panel_blocks == 1);
}

TEST_CASE("bf16 work units of several threads: panels are cut before rows where weights exceed L2") {
  constexpr int kThreads = 4;
  const Bf16Unit unit = emulated_unit();
  for (const std::int64_t images : {1, 3}) {
    const Conv2dProblem p =
        bf16_problem(same_padded({.n = images, .c = 1024, .h = 7, .w = 7, .k = 512, .r = 3, .s = 3}));
    const Blocking b = blocking_of(p, 1, unit, kThreads);
    INFO(b.work.count << " work units");
    CHECK(b.work.row_blocks == 1);
    CHECK(b.work.panel_blocks >= kThreads);
    std::set<std::int64_t> panels;  // of the first thread
    for (std::int64_t index = 0; index < first_of_share(b.work.count, 1, kThreads); ++index) {
      const WorkUnit work = work_unit_at(b, index);
      for (std::int64_t panel = work.first_panel; panel < work.end_panel; ++panel) panels.insert(panel);
    }
    CHECK(2 * panels.size() <= static_cast<std::size_t>(b.geometry.panels));
  }
  const Conv2dProblem few = bf16_problem(same_padded({.c = 64, .h = 13, .w = 13, .k = 64, .r = 3, .s = 3}));
  CHECK(blocking_of(few, 1, unit, kThreads).work.row_blocks > 1);
}

TEST_CASE("bf16 work units of several threads: a small image of many channels has a panel for each thread") {
  const auto panels_of_a_unit = [](std::int64_t channels, int threads) {
    const Conv2dProblem p = bf16_problem(same_padded({.c = channels, .h = 4, .w = 4, .k = 64, .r = 3, .s = 3}));
    return blocking_of(p, 1, emulated_unit(), threads).work.panels;
  };
  CHECK(panels_of_a_unit(288, 12) == 1);
  CHECK(panels_of_a_unit(288, 1) == 2);
  CHECK(panels_of_a_unit(16, 12) == 2);  // L1 keeps all weights
}

TEST_CASE("bf16 staging: position, block and tap offsets lead to each output's input, and to zero in padding") {
  std::mt19937 random(8);
  Conv2dProblem strided = sized(
      {.n = 2, .c = 70, .h = 9, .w = 13, .k = 32, .r = 3, .s = 4, .stride_h = 2, .stride_w = 3, .pad_top = 1}, 2, 1);
  strided.dilation_w = 2;
  strided = sized(strided, 2, 1);
  for (const Conv2dProblem& layer : {same_padded({.c = 33, .h = 7, .w = 30, .k = 32, .r = 3, .s = 3}), strided}) {
    const Conv2dProblem p = bf16_problem(layer);
    const Bf16Unit unit = pair_unit();
    const Elements x = random_elements(p.dtype, p.x_elements(), random);  // in NHWC
    const Blocking b = blocking_of(p, 1, unit, 3);
    REQUIRE(b.input == InputPath::staged);
    const Run run{p, unit, bf16_kernels(best_target()), best_target(), b, x.data(), nullptr, nullptr, nullptr, false,
                  1, 1};
    std::vector<std::uint16_t> strip(static_cast<std::size_t>(b.work.groups * strip_elements(b.strip, b.terms)),
                                     0x7fc0);
    int wrong = 0;
    const auto check_output = [&](const WorkUnit& work, const InputView& view, std::int64_t row, std::int64_t column) {
      for (std::int64_t tap = 0; tap < b.terms.tap_count(); ++tap) {
        const std::int64_t y = (work.first_row + row) * p.stride_h - p.pad_top + tap / p.s * p.dilation_h;
        const std::int64_t z = (work.first_column + column) * p.stride_w - p.pad_left + tap % p.s * p.dilation_w;
        const bool inside = y >= 0 && y < p.h && z >= 0 && z < p.w;
        for (std::int64_t c = 0; c < p.c; ++c) {
          const std::int64_t source = ((work.image * p.h + y) * p.w + z) * p.c + c;
          const float expected = inside ? x.at(static_cast<std::size_t>(source)) : 0.0f;
          const std::int64_t place = row * view.row + column * view.position + c / kChannels * view.block +
                                     b.tap_offsets[static_cast<std::size_t>(tap)] + c % kChannels;
          wrong += bf16_to_f32(view.first[place]) == expected ? 0 : 1;
        }
      }
    };
    for (std::int64_t index = 0; index < b.work.count; ++index) {
      const WorkUnit work = work_unit_at(b, index);
      stage_strip(run, work, strip.data());
      const InputView view = view_of_strip(run, strip.data());
      for (std::int64_t row = 0; row < work.rows; ++row) {
        for (std::int64_t column = 0; column < work.columns; ++column) check_output(work, view, row, column);
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("bf16 staging: groups that are staged together have the strips that each has alone") {
  std::mt19937 random(9);
  Conv2dProblem p = sized({.c = 56, .h = 9, .w = 11, .k = 56, .r = 3, .s = 3, .stride_h = 2, .stride_w = 2}, 2, 2);
  p.groups = 7;
  p = bf16_problem(p);
  Bf16Unit unit = pair_unit();
  unit.merged_width = 8;
  const Elements x = random_elements(p.dtype, p.x_elements(), random);
  const Blocking b = blocking_of(p, 1, unit, 1);
  REQUIRE(b.input == InputPath::staged);
  REQUIRE(b.work.groups == 4);  // of 8 channels in 64 bytes
  const Run run{p, unit, bf16_kernels(best_target()), best_target(), b, x.data(), nullptr, nullptr, nullptr, false,
                1, 1};
  const auto elements = static_cast<std::size_t>(strip_elements(b.strip, b.terms));
  for (std::int64_t index = 0; index < b.work.count; ++index) {
    const WorkUnit work = work_unit_at(b, index);
    std::vector<std::uint16_t> together(4 * elements), alone(4 * elements);
    stage_strip(run, work, together.data());
    for (std::int64_t group = 0; group < work.groups; ++group) {
      WorkUnit one = work;
      one.group += group;
      one.groups = 1;
      stage_strip(run, one, alone.data() + static_cast<std::size_t>(group) * elements);
    }
    CHECK(together == alone);
  }
}

TEST_CASE("bf16 staging: phases of strides and windows of any size are found at once") {
  Conv2dProblem p = sized({.n = 1, .c = 8, .h = 1, .w = 1 << 18, .k = 8, .r = 1, .s = 6, .stride_w = 4}, 1, 3);
  p.dilation_w = 6;
  p = sized(p, 1, 3);
  Terms terms{};
  terms.tap_rows = 1;
  terms.tap_columns = 6;
  CHECK(phases_of(p, terms).columns == std::vector<std::int64_t>{0, 2});
  p.stride_w = 1 << 18;
  p.dilation_w = 1;
  terms.tap_columns = 1 << 18;
  CHECK(phases_of(p, terms).columns.size() == 1 << 18);  // comparing each with all before takes half a minute
}

TEST_CASE("bf16 terms: blocks of channels are cut where rows of tiles cross the fewest cache lines") {
  // Channels, and those of a block. Of 72, blocks of 24 end with lines as often as they can; of 104 and 64 none are
  // better than the smallest.
  const std::int64_t cuts[][2] = {{64, 32}, {72, 24}, {80, 32}, {104, 26}, {112, 32}, {144, 32}, {20, 20}};
  for (const auto& [channels, block] : cuts) {
    CAPTURE(channels);
    const Conv2dProblem p = sized({.n = 1, .c = channels, .h = 8, .w = 8, .k = 32}, 0, 0);
    const Terms terms = terms_of(p, geometry_of(p, emulated_unit()), 1, emulated_unit());
    CHECK(terms.block_channels == block);
    CHECK(terms.last_block == channels - block);
  }
}

TEST_CASE("bf16 axis: source ranges hold what the taps of some outputs read, and nothing outside the image") {
  for (const Axis& axis : {Axis{20, 3, 1, 1, 1, 1}, Axis{20, 3, 2, 1, 2, 1}, Axis{20, 1, 3, 0, 1, 1}}) {
    for (std::int64_t first = 0; first < 4; ++first) {
      std::vector<std::int64_t> read;
      for (std::int64_t out = first; out < first + 3; ++out) {
        const TapRange taps = axis.taps_of(out);
        for (std::int64_t tap = taps.begin; tap < taps.end; ++tap) {
          read.push_back(out * axis.stride - axis.pad + tap * axis.dilation);
        }
      }
      const SourceRange range = source_range(axis, first, 3);
      const std::int64_t last = range.first + (range.count - 1) * range.step;
      CHECK(range.first >= 0);
      CHECK(range.first <= *std::min_element(read.begin(), read.end()));
      CHECK(last >= *std::max_element(read.begin(), read.end()));
      CHECK(last < axis.size);
      for (const std::int64_t pixel : read) CHECK((pixel - range.first) % range.step == 0);
    }
  }
}

TEST_CASE("bf16 regions: consecutive outputs of equal taps, all of them inside the image") {
  const Axis axis{.size = 11, .taps = 3, .stride = 2, .pad = 3, .dilation = 2, .pitch = 7};
  const std::int64_t outs = 8;  // the last ones read padding only
  std::int64_t begin = 0;
  int regions = 0;
  while (begin < outs) {
    const Region region = region_at(axis, begin, outs);
    CHECK(region.begin == begin);
    CHECK(region.end > begin);
    CHECK(region.pitch == 14);
    for (std::int64_t out = region.begin; out < region.end; ++out) {
      for (std::int64_t tap = 0; tap < axis.taps; ++tap) {
        const std::int64_t source = out * axis.stride - axis.pad + tap * axis.dilation;
        const bool inside = source >= 0 && source < axis.size;
        const bool taken = tap >= region.first_tap && tap < region.first_tap + region.taps;
        CHECK(inside == taken);
      }
    }
    begin = region.end;
    ++regions;
  }
  CHECK(regions > 2);
}

TEST_CASE("bf16 positions: fewer in a half only where tiles then read a window in the image") {
  const auto blocking = [](const Conv2dProblem& p) { return blocking_of(bf16_problem(p), 1, emulated_unit(), 1); };
  // Halves of 12 divide 36 columns, and the image need not be staged for a single panel.
  const Blocking divided = blocking(sized(
      {.c = 64, .h = 72, .w = 72, .k = 16, .r = 3, .s = 3, .stride_h = 2, .stride_w = 2, .pad_top = 1, .pad_left = 1},
      1, 1));
  CHECK(divided.input == InputPath::in_image);
  CHECK(divided.positions < 14);
  // Rows of 17: no number divides them, and weights take as long as ever.
  const Blocking rows = blocking(sized({.c = 192, .h = 17, .w = 17, .k = 224, .r = 1, .s = 7, .pad_left = 3}, 0, 3));
  CHECK(rows.input == InputPath::staged);
  CHECK(rows.positions == 16);
  // Windows that halves of 14 read in the image keep them.
  CHECK(blocking(same_padded({.c = 64, .h = 28, .w = 28, .k = 128, .r = 3, .s = 3})).positions == 14);
}

TEST_CASE("bf16 prefetch: tensors of which L2 does not hold a thread's share") {
  const Conv2dProblem small = bf16_problem(same_padded({.c = 32, .h = 20, .w = 20, .k = 64, .r = 3, .s = 3}));
  const Conv2dProblem large = bf16_problem(same_padded({.c = 32, .h = 400, .w = 400, .k = 8, .r = 3, .s = 3}));
  CHECK_FALSE(blocking_of(small, 1, emulated_unit(), 1).prefetched.input);
  CHECK_FALSE(blocking_of(small, 1, emulated_unit(), 1).prefetched.output);
  CHECK(blocking_of(large, 1, emulated_unit(), 1).prefetched.input);
  CHECK(blocking_of(large, 1, emulated_unit(), 1).prefetched.output);
  CHECK_FALSE(blocking_of(large, 1, emulated_unit(), 64).prefetched.output);
}

TEST_CASE("bf16 prefetch: the lines of the next work unit's input, each once") {
  Conv2dProblem p = bf16_problem(same_padded({.n = 2, .c = 32, .h = 30, .w = 20, .k = 32, .r = 3, .s = 3}));
  Bf16Unit unit = emulated_unit();
  Blocking b = blocking_of(p, 1, unit, 8);
  REQUIRE(b.work.count > 1);
  CHECK_FALSE(b.prefetched.input);  // L2 holds it
  b.prefetched.input = true;
  std::vector<std::uint16_t> x(static_cast<std::size_t>(p.x_elements()));
  const Run run{p, unit, bf16_kernels(best_target()), best_target(), b, x.data(), nullptr, nullptr, nullptr, false,
                1, 1};
  const WorkUnit current = work_unit_at(b, 0), next = work_unit_at(b, 1);
  Prefetch prefetch = prefetch_input(run, current, 1);
  const SourceRange rows = source_rows(p, b.geometry, next);
  CHECK(prefetch.rows == rows.count);
  const char* first = reinterpret_cast<const char*>(x.data()) + (next.image * p.h + rows.first) * p.w * 64;
  CHECK(prefetch.next_line == first);
  std::int64_t lines = 0;
  while (prefetch.lines_left > 0) {
    lines += prefetch.lines_left;
    prefetch.lines_left = 0;
    prefetch.begin_next_run();
    if (prefetch.rows == 0) break;
  }
  CHECK(lines == rows.count * p.w);  // a pixel is a line
  CHECK(prefetch_input(run, current, b.work.count).lines_left == 0);
  // A chunk's weights are one run of lines.
  std::vector<std::uint16_t> packed(static_cast<std::size_t>(packed_elements(b.geometry, b.terms)));
  const Run packed_run{p, unit, run.kernels, run.target, b, x.data(), packed.data(), nullptr, nullptr, false, 1, 1};
  const Prefetch weights = prefetch_weights(packed_run, current, {0, 1});
  CHECK(weights.next_line == reinterpret_cast<const char*>(packed.data()));
  CHECK(weights.lines_left * 64 == b.terms.panel_bytes());
  CHECK(weights.lines_per_step * tiles_of(b, current) * b.terms.steps() >= weights.lines_left);
  Bf16Unit pairs = pair_unit();
  const Run of_pairs{p, pairs, run.kernels, run.target, b, x.data(), nullptr, nullptr, nullptr, false, 1, 1};
  CHECK(prefetch_input(of_pairs, current, 1).lines_left == 0);
}

namespace {

// What a fake unit recorded, for the queue of tiles.
struct Seen {
  std::vector<int> next_counts, previous_counts;
  std::vector<const float*> accumulators;
  std::vector<std::int64_t> epilogues;  // the pixels of each that ran
};
Seen seen;

void fake_tile(const Tile& tile) {
  seen.next_counts.push_back(tile.overlap.next_count);
  seen.previous_counts.push_back(tile.overlap.previous->count);
  seen.accumulators.push_back(tile.accumulators);
}
void fake_epilogue(const Epilogue& call) { seen.epilogues.push_back(call.pixels); }

Epilogue epilogue_of(std::int64_t pixels) {
  Epilogue call{};
  call.pixels = pixels;
  call.run = fake_epilogue;
  return call;
}

}  // namespace

TEST_CASE("bf16 tile queue: a tile's epilogues overlap with the next tile, or run after it") {
  seen = {};
  std::vector<float> accumulators(kTilesAlive * kTileFloats);
  TileQueue queue(fake_tile, accumulators.data(), true);
  queue.add(epilogue_of(1));
  queue.add(epilogue_of(2));
  queue.multiply();
  CHECK(seen.epilogues.empty());
  queue.add(epilogue_of(3));
  queue.multiply();  // the unit does not overlap: the queue runs the first tile's epilogues
  CHECK(seen.epilogues == std::vector<std::int64_t>{1, 2});
  queue.drain();
  CHECK(seen.epilogues == std::vector<std::int64_t>{1, 2, 3});
  CHECK(seen.next_counts == std::vector<int>{2, 1});
  CHECK(seen.previous_counts == std::vector<int>{0, 2});
  CHECK(seen.accumulators[0] != seen.accumulators[1]);
}

TEST_CASE("bf16 tile queue: output lines are prefetched only where the plan says so") {
  seen = {};
  std::vector<float> accumulators(kTilesAlive * kTileFloats);
  TileQueue queue(fake_tile, accumulators.data(), false);
  queue.add(epilogue_of(1));
  queue.multiply();
  CHECK(seen.next_counts == std::vector<int>{0});
  queue.drain();
  CHECK(seen.epilogues.size() == 1);
}

TEST_CASE("bf16 estimate: a vector times a matrix takes the pair product, images take AMX's tiles") {
  const Bf16Unit tiles = emulated_unit();
  Bf16Unit pairs = pair_unit();
  pairs.costs.position = bf16_dot_unit().costs.position;
  pairs.costs.weights = bf16_dot_unit().costs.weights;
  pairs.costs.start = bf16_dot_unit().costs.start;
  if (pairs.costs.position == 0) {
    MESSAGE("skipped: the pair product was not compiled");
    return;
  }
  const auto seconds = [](const Conv2dProblem& p, const Bf16Unit& unit) { return bf16_seconds(p, 1, unit, 1); };
  const Conv2dProblem vector = bf16_problem(sized({.c = 24, .k = 96}, 0, 0));
  CHECK(seconds(vector, pairs) < seconds(vector, tiles));
  const Conv2dProblem image = bf16_problem(sized({.c = 24, .h = 14, .w = 14, .k = 96}, 0, 0));
  CHECK(seconds(image, tiles) < seconds(image, pairs));
  Conv2dProblem longer = image;
  longer.n = 2;  // a region of four threads costs as much as the one image saves
  CHECK(bf16_seconds(longer, 1, tiles, 4) < bf16_seconds(longer, 1, tiles, 1));
}

}  // namespace gable::cpu::test
