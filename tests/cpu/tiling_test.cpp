// The parts that cut problems: tiles, taps, units, strips, and the input of a unit.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "cpu/common/aligned.h"
#include "cpu/common/grid_time.h"
#include "cpu/common/parallel.h"
#include "cpu/common/strips.h"
#include "cpu/common/tiling.h"
#include "cpu/common/unit_description.h"
#include "cpu/common/unit_input.h"
#include "cpu/common/unit_window.h"
#include "tests/cpu/oracle.h"

namespace gable::cpu::test {

TEST_CASE("tiles cover the pixels once, in multiples of their step and nearly equal") {
  for (const std::int64_t step : {1, 2}) {
    for (std::int64_t pixels = step; pixels <= 60; pixels += step) {
      for (const std::int64_t most : {2, 6, 14}) {
        const Tiles tiles(pixels, most, step);
        std::int64_t next = 0;
        for (std::int64_t tile = 0; tile < tiles.count; ++tile) {
          CHECK(tiles.begin(tile) == next);
          CHECK(tiles.width(tile) % step == 0);
          CHECK(tiles.width(tile) <= most);
          CHECK(tiles.width(0) - tiles.width(tile) <= step);
          next += tiles.width(tile);
        }
        CHECK(next == pixels);
      }
    }
  }
}

TEST_CASE("what two threads write lies 32 KiB apart, in cache lines of their own") {
  static_assert(thread_part_floats(1) == 16 + kApartFloats);
  static_assert(thread_part_floats(32) == 32 + kApartFloats);
  CHECK((thread_part_floats(3 * 10 * 14) * sizeof(float)) % 64 == 0);
}

TEST_CASE("parallel units: each unit runs once, by a thread that exists") {
  for (const int threads : {1, 2, 3, UnitShares::kMost + 6}) {
    for (const std::int64_t units : {0, 1, 2, 5, 300}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(units));
      std::atomic<bool> known{true};
      const auto work = [&](std::int64_t unit, int thread) {
        ++runs[static_cast<std::size_t>(unit)];
        if (thread < 0 || thread >= threads) known = false;
      };
      RunTimes times;
      parallel_units(threads, units, work);
      parallel_units(threads, units, times, work);
      parallel_shares(threads, units, work);
      CHECK(known);
      for (const std::atomic<int>& count : runs) CHECK(count == 3);
    }
  }
}

TEST_CASE("parallel units: each unit runs once where fewer threads run than were asked for") {
  for (const std::int64_t units : {2, 5, 9, 300}) {
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(units));
    const auto count = [&](std::int64_t unit, int) { ++runs[static_cast<std::size_t>(unit)]; };
#pragma omp parallel num_threads(2)
    {
#pragma omp single
      {
        parallel_units(4, units, count);
        parallel_shares(4, units, count);
      }
    }
    for (const std::atomic<int>& found : runs) CHECK(found == 2);
  }
}

TEST_CASE("shares of units: share_of() is the share whose units hold a unit") {
  for (const int shares : {1, 2, 3, 7, 12}) {
    for (const std::int64_t units : {1, 2, 5, 12, 31}) {
      for (std::int64_t unit = 0; unit < units; ++unit) {
        const auto share = static_cast<int>(share_of(units, unit, shares));
        CHECK(first_of_share(units, share, shares) <= unit);
        CHECK(unit < first_of_share(units, share + 1, shares));
      }
    }
  }
}

TEST_CASE("blocks that a share of units reads: as counted one by one") {
  for (const bool weights_outermost : {false, true}) {
    const UnitOrder order{5, 3, weights_outermost};
    for (std::int64_t first = 0; first < 15; ++first) {
      for (std::int64_t end = first + 1; end <= 15; ++end) {
        std::set<std::int64_t> inputs, weights;
        for (std::int64_t unit = first; unit < end; ++unit) {
          inputs.insert(weights_outermost ? unit % 5 : unit / 3);
          weights.insert(weights_outermost ? unit / 5 : unit % 3);
        }
        const BlocksRead read = blocks_read(order, first, end);
        CHECK(read.inputs == static_cast<std::int64_t>(inputs.size()));
        CHECK(read.weights == static_cast<std::int64_t>(weights.size()));
      }
    }
  }
}

/// How many of `runs` runs keep to shares, if these take `keeping` microseconds and others `taking`.
int runs_with_shares(RunTimes& times, int runs, int keeping, int taking) {
  int found = 0;
  for (int run = 0; run < runs; ++run) {
    const bool keeps = times.keeps_shares();
    found += keeps ? 1 : 0;
    times.add(std::chrono::microseconds(keeps ? keeping : taking));
  }
  return found;
}

TEST_CASE("a plan's threads keep to their shares in short runs, as long as these are faster so") {
  RunTimes times;
  CHECK(!times.keeps_shares());
  CHECK(runs_with_shares(times, 256, 6, 9) == 252);
  CHECK(runs_with_shares(times, 256, 12, 9) == 4);
  CHECK(runs_with_shares(times, 256, 100, 300) == 0);
  CHECK(runs_with_shares(times, 256, 6, 9) == 252);
}

TEST_CASE("parallel units of a plan: each thread computes a share of consecutive units where shares are kept") {
  RunTimes times;
  while (!times.keeps_shares()) times.add(std::chrono::microseconds(5));
  std::vector<int> owner(9, -1);
  parallel_units(3, 9, times, [&](std::int64_t unit, int thread) { owner[static_cast<std::size_t>(unit)] = thread; });
  for (std::size_t unit = 0; unit < 9; ++unit) CHECK(owner[unit] == owner[unit / 3 * 3]);
}

TEST_CASE("the time of parallel units is that of the last thread, which takes what others have left") {
  const auto rounded = [](double time) { return static_cast<int>(time); };  // without the part of the longest unit
  const auto one = [](std::int64_t) { return 1.0; };
  CHECK(rounded(parallel_time(2, 8, one)) == 4);
  CHECK(rounded(parallel_time(2, 7, one)) == 4);
  CHECK(rounded(parallel_time(3, 1, one)) == 1);
  CHECK(rounded(parallel_time(2, 200, one)) == 100);
  CHECK(rounded(parallel_time(200, 100, one)) == 1);
  // Shares of 4 + 4 and 1 + 1: the second thread takes a unit of the first.
  CHECK(rounded(parallel_time(2, 4, [](std::int64_t unit) { return unit < 2 ? 4.0 : 1.0; })) == 6);
  // Of equal cuts the finer one is better.
  CHECK(parallel_time(2, 8, [](std::int64_t) { return 0.25; }) < parallel_time(2, 2, one));
}

TEST_CASE("the time of a grid of units is that of its units, or infinite where it is not below what is enough") {
  constexpr double kAny = std::numeric_limits<double>::infinity();
  for (const int threads : {1, 2, 3, 5, 16, 65}) {
    for (const UnitAxes<3>& blocks : {UnitAxes<3>{1, 1, 1}, UnitAxes<3>{7, 1, 3}, UnitAxes<3>{2, 5, 4},
                                      UnitAxes<3>{1, 33, 1}, UnitAxes<3>{16, 1, 4}, UnitAxes<3>{3, 3, 9}}) {
      for (const double part : {1.0, 0.5, 0.1}) {  // of the last block of an axis
        const auto work = [&](std::int64_t unit) {
          const auto time = [&](std::int64_t at, std::int64_t count) { return at + 1 == count ? part : 1; };
          return (0.3 + time(unit / blocks[2] / blocks[1], blocks[0])) * time(unit / blocks[2] % blocks[1], blocks[1]) *
                 (0.7 + time(unit % blocks[2], blocks[2]));
        };
        const double each = parallel_time(threads, blocks[0] * blocks[1] * blocks[2], work);
        CHECK(grid_time(threads, blocks, work, kAny) == doctest::Approx(each).epsilon(1e-12));
        CHECK(grid_time(threads, blocks, work, each * 1.001) == doctest::Approx(each).epsilon(1e-12));
        CHECK(grid_time(threads, blocks, work, each * 0.999) >= each * 0.999);
      }
    }
  }
}

TEST_CASE("the taps of an output that read the image are those whose coordinate is inside") {
  for (const std::int64_t dilation : {1, 2, 3}) {
    for (const std::int64_t pad : {0, 1, 4}) {
      const WindowAxis axis{.size = 5, .outputs = 7, .taps = 4, .stride = 2, .dilation = dilation, .pad = pad};
      bool padded = false;
      std::array<std::int64_t, 4> outputs{};  // that read the image, of each tap
      for (std::int64_t output = 0; output < axis.outputs; ++output) {
        const TapRange inside = axis.inside(output);
        for (std::int64_t tap = 0; tap < axis.taps; ++tap) {
          const std::int64_t x = output * axis.stride + tap * dilation - pad;
          CHECK((tap >= inside.begin && tap < inside.end) == (x >= 0 && x < axis.size));
          padded |= x < 0 || x >= axis.size;
          outputs[static_cast<std::size_t>(tap)] += x >= 0 && x < axis.size ? 1 : 0;
        }
      }
      for (std::int64_t tap = 0; tap < axis.taps; ++tap) {
        CHECK(axis.outputs_inside(tap) == outputs[static_cast<std::size_t>(tap)]);
      }
      CHECK(axis.padded() == padded);
    }
  }
}

TEST_CASE("an axis map keeps the coordinate of every tap, in no more positions than either way needs") {
  for (const std::int64_t stride : {1, 2, 5}) {
    for (const std::int64_t dilation : {1, 3}) {
      const AxisMap map = smaller_axis_map(6, 3, stride, dilation);
      for (std::int64_t output = 0; output < 6; ++output) {
        for (std::int64_t tap = 0; tap < 3; ++tap) {
          const std::int64_t position = output * map.output_step + tap * map.tap_step;
          CHECK(position < map.positions(6));
          CHECK(map.source(position) == output * stride + tap * dilation);
        }
      }
      CHECK(map.positions(6) <= 18);
      CHECK(map.positions(0) == 0);
    }
  }
  CHECK(smaller_axis_map(6, 1, 5, 1).gather);
  CHECK(!smaller_axis_map(6, 3, 1, 1).gather);
}

TEST_CASE("units cover images, groups, out tiles, rows and pixels once, in either order") {
  const Conv2dProblem p = sized({.n = 5, .c = 6, .h = 7, .w = 11, .k = 6}, 0, 0);
  for (const bool weights_once : {false, true}) {
    UnitGrid grid = unit_grid(p, 2, 3, 4);
    grid.groups = 3;
    grid.out_tiles = 2;
    grid.weights_once = weights_once;
    std::set<std::vector<std::int64_t>> outputs;
    std::size_t visits = 0;
    for (std::int64_t unit = 0; unit < grid.count(); ++unit) {
      const UnitPlace place = grid.at(unit);
      const UnitWindow window = unit_window(p, grid, place);
      for (std::int64_t i = 0; i < std::min(grid.images, p.n - place.first_image); ++i) {
        for (std::int64_t row = 0; row < window.rows; ++row) {
          for (std::int64_t pixel = 0; pixel < window.pixels; ++pixel, ++visits) {
            outputs.insert({place.first_image + i, place.group, place.out_tile, window.first_row + row,
                            window.first_pixel + pixel});
          }
        }
      }
    }
    CHECK(visits == 5 * 3 * 2 * 7 * 11);
    CHECK(outputs.size() == visits);
    // Neighbours share weights or input.
    const UnitPlace first = grid.at(0), second = grid.at(1);
    CHECK((first.group == second.group && first.out_tile == second.out_tile) == weights_once);
  }
}

TEST_CASE("a unit's window before and under its pool") {
  const Conv2dProblem p = same_padded({.h = 20, .w = 20, .r = 3, .s = 3, .pool = {3, 2, 2, 2}});
  const UnitGrid grid = unit_grid(p, 1, 4, 5);
  const UnitPlace place{
      .first_image = 0, .group = 0, .out_tile = 0, .first_row = grid.rows, .first_pixel = grid.pixels};
  const UnitWindow window = unit_window(p, grid, place);
  CHECK(window.conv_rows == 2 * (window.rows - 1) + 3);
  CHECK(window.conv_pixels == 2 * window.pixels);
  CHECK(window.x_row == 2 * grid.rows - 1);
  CHECK(window.x_column == 2 * grid.pixels - 1);
}

namespace {

/// Checks every element that tiles would read of a unit which is the whole image: `channels` channels.
void check_reads(const Conv2dProblem& p, const Elements& logical, const UnitWindow& window, const UnitInput& input,
                 std::int64_t in_lanes) {
  std::size_t wrong = 0;
  for (std::int64_t row = 0; row < window.conv_rows; ++row) {
    for (std::int64_t pixel = 0; pixel < window.conv_pixels; ++pixel) {
      const InputTile tile = input.at(row, pixel);
      for (std::int64_t kh = 0; kh < p.r; ++kh) {
        const std::int64_t ih = row * p.stride_h + kh * p.dilation_h - p.pad_top;
        for (std::int64_t kw = 0; kw < p.s; ++kw) {
          const std::int64_t iw = pixel * p.stride_w + kw * p.dilation_w - p.pad_left;
          const bool inside = ih >= 0 && ih < p.h && iw >= 0 && iw < p.w;
          if (!inside && input.in_place(pixel)) continue;  // tiles skip these taps
          for (std::int64_t c = 0; c < p.c; ++c) {
            const float read =
                tile.x[kh * tile.kh + kw * tile.kw + c / in_lanes * tile.in_tile + c % in_lanes * tile.lane];
            const float expected = inside ? logical.at(offset(false, p.c, p.h, p.w, 0, c, ih, iw)) : 0.0F;
            wrong += read == expected ? 0 : 1;
          }
        }
      }
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("a unit's input: tiles read the image in place and strips with zeros for the padding, in both layouts") {
  std::mt19937 random(41);
  for (const std::int64_t stride : {1, 2, 4}) {
    Conv2dProblem p{.c = 20, .h = 9, .w = 40, .k = 1, .r = 3, .s = 3, .stride_h = stride, .stride_w = stride};
    p = same_padded(p);
    const Elements x = random_elements(DType::f32, p.x_elements(), random);
    const UnitGrid grid = unit_grid(p, 1, p.ho, p.wo);
    const UnitWindow window = unit_window(p, grid, grid.at(0));
    const StripAxes axes{smaller_axis_map(window.conv_rows, p.r, p.stride_h, p.dilation_h),
                         smaller_axis_map(window.conv_pixels, p.s, p.stride_w, p.dilation_w)};
    std::vector<float> strips(static_cast<std::size_t>(64 * 64 * 32), -7.0F);
    for (const bool nhwc : {true, false}) {
      p.nhwc = nhwc;
      const Elements image = in_layout(x, nhwc, p.n, p.c, p.h, p.w);
      for (const Target* target : supported_targets()) {
        const StripKernels& kernels = strip_kernels(*target);
        INFO(target->name << (nhwc ? " nhwc" : " nchw") << " stride " << stride);
        UnitInput staged(p, window, axes, all_staged(window));
        CHECK(staged.stages());
        CHECK(!staged.reads_in_place());
        staged.prepare(image.data(), p.c, {(nhwc ? kernels.stage_nhwc : kernels.stage_nchw)[0], 16, nhwc},
                       strips.data());
        check_reads(p, x, window, staged, 16);
        if (!nhwc) continue;
        const PixelRange inner = inner_tiles_in_place(column_axis(p), window, {window.conv_pixels, 3}, axes.columns);
        UnitInput edges(p, window, axes, inner);
        edges.prepare(image.data(), p.c, {kernels.stage_nhwc[0], 16, true}, strips.data());
        check_reads(p, x, window, edges, 16);
        CHECK(edges.reads_in_place());
      }
    }
  }
}

TEST_CASE("pixels are read in place between the tiles that touch padding") {
  const Conv2dProblem p = same_padded({.h = 9, .w = 40, .r = 3, .s = 3});
  const UnitGrid grid = unit_grid(p, 1, p.ho, p.wo);
  const UnitWindow window = unit_window(p, grid, grid.at(0));
  const AxisMap columns = smaller_axis_map(window.conv_pixels, p.s, p.stride_w, p.dilation_w);
  const PixelRange inner = inner_tiles_in_place(column_axis(p), window, {40, 10}, columns);
  CHECK(inner.begin == 10);
  CHECK(inner.end == 30);
  CHECK(!inner_tiles_in_place(column_axis(p), window, {40, 20}, columns).any());
  CHECK(all_in_place(window).all(window.conv_pixels));
  CHECK(!all_staged(window).any());
}

TEST_CASE("units are described by what they stage") {
  CHECK(describe_input({.any_in_place = true, .any_staged = false, .any_without_in_place = false}) == "input in place");
  CHECK(describe_input({.any_in_place = false, .any_staged = true, .any_without_in_place = true}) == "input staged");
  CHECK(describe_input({.any_in_place = true, .any_staged = true, .any_without_in_place = false}) ==
        "input staged where tiles touch padding");
}

}  // namespace gable::cpu::test
