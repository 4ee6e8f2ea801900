// The wgmma kernel's tiles, without a GPU. For every tile that fits, checks the input that the loaded boxes hold where
// taps read them, and the output pixels that the tiles cover.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "cuda/wgmma/bf16_parts.cuh"
#include "cuda/wgmma/geometry.h"

namespace gable::cuda {
namespace {

constexpr int kMultiprocessors = 132, kSharedBytes = 232448;

Conv2dProblem problem(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w, std::int64_t k, std::int64_t r,
                      std::int64_t stride, std::int64_t pad, std::int64_t dilation) {
  const std::int64_t reach = dilation * (r - 1) + 1;
  return {.n = n,
          .c = c,
          .h = h,
          .w = w,
          .k = k,
          .r = r,
          .s = r,
          .ho = (h + 2 * pad - reach) / stride + 1,
          .wo = (w + 2 * pad - reach) / stride + 1,
          .stride_h = stride,
          .stride_w = stride,
          .pad_top = pad,
          .pad_left = pad,
          .dilation_h = dilation,
          .dilation_w = dilation,
          .dtype = DType::f16};
}

const std::vector<Conv2dProblem> kProblems = {
    problem(1, 64, 224, 224, 64, 3, 1, 1, 1), problem(5, 64, 7, 7, 128, 3, 1, 1, 1),
    problem(3, 128, 14, 14, 128, 3, 1, 1, 1), problem(2, 64, 20, 27, 64, 3, 1, 0, 1),
    problem(3, 64, 15, 15, 192, 3, 2, 1, 1),  problem(2, 64, 31, 29, 64, 3, 1, 2, 2),
    problem(7, 136, 14, 14, 128, 1, 2, 0, 1), problem(3, 136, 11, 11, 264, 1, 1, 0, 1),
    problem(2, 64, 40, 40, 128, 7, 3, 3, 1),  problem(9, 64, 3, 3, 64, 3, 1, 1, 1),
};

struct Pixel {
  std::int64_t n, y, x;
  auto operator<=>(const Pixel&) const = default;
};
constexpr Pixel kZero{-1, -1, -1};

bool inside(const Pixel& p, std::int64_t n, std::int64_t h, std::int64_t w) {
  return p.n >= 0 && p.n < n && p.y >= 0 && p.y < h && p.x >= 0 && p.x < w;
}

/// What a tensor copy leaves at a pixel of shared memory.
Pixel loaded(const Conv2dProblem& p, const WgmmaGeometry& g, const WgmmaBox& box, const Pixel& tile, int at) {
  const Pixel from{tile.n + at / (g.box.width * g.box.height),
                   tile.y * p.stride_h + box.dy + at / g.box.width % g.box.height * p.stride_h,
                   tile.x * p.stride_w + box.dx + at % g.box.width * p.stride_w};
  return at < g.box.pixels() && inside(from, p.n, p.h, p.w) ? from : kZero;
}

/// What the copy engine gathers: filters start at each stride between the corners, row by row and image by image.
Pixel gathered(const Conv2dProblem& p, const WgmmaBox& box, std::int64_t line) {
  const WgmmaCorners c = wgmma_corners(p);
  const std::int64_t columns = ceil_div(p.w + c.right - c.left, p.stride_w);
  const std::int64_t rows = ceil_div(p.h + c.bottom - c.top, p.stride_h);
  const Pixel from{line / columns / rows, c.top + line / columns % rows * p.stride_h + box.dy,
                   c.left + line % columns * p.stride_w + box.dx};
  return inside(from, p.n, p.h, p.w) ? from : kZero;
}

/// Counts how often each output pixel is computed; checks what its taps read.
std::map<Pixel, int> walk(const Conv2dProblem& p, const WgmmaGeometry& g) {
  std::map<Pixel, int> computed;
  for (int t = 0; t < g.grid.tiles_x * g.grid.tiles_y * g.grid.tiles_n; ++t) {
    const Pixel tile{t / g.grid.tiles_x / g.grid.tiles_y * g.tile.images,
                     t / g.grid.tiles_x % g.grid.tiles_y * g.tile.height, t % g.grid.tiles_x * g.tile.width};
    for (int n = 0; n < g.tile.pixels; ++n) {
      const int row = n / g.tile.row;
      const Pixel out{tile.n + row / g.tile.rows_per_image, tile.y + row % g.tile.rows_per_image,
                      tile.x + n % g.tile.row};
      if (!inside(out, p.n, p.ho, p.wo)) continue;
      ++computed[out];
      for (const WgmmaBox& box : g.steps.boxes) {
        for (int tap = box.first_tap; tap < box.first_tap + box.taps; ++tap) {
          const WgmmaTap& at = g.steps.taps[static_cast<std::size_t>(tap)];
          const int place = n / 8 * (g.box.group_pitch / 128) + n % 8 + at.shift;
          const Pixel wanted{out.n, out.y * p.stride_h + at.r * p.dilation_h - p.pad_top,
                             out.x * p.stride_w + at.s * p.dilation_w - p.pad_left};
          const Pixel expected = inside(wanted, p.n, p.h, p.w) ? wanted : kZero;
          REQUIRE(place * 128 < g.stages.box_stage_bytes);
          REQUIRE(loaded(p, g, box, tile, place) == expected);
        }
      }
    }
  }
  return computed;
}

/// The same for boxes by tap of the batch's line of output pixels.
void walk_gathered(const Conv2dProblem& p, const WgmmaGeometry& g) {
  CHECK(g.grid.tiles_x * g.tile.pixels >= p.n * p.ho * p.wo);
  CHECK(std::min<std::int64_t>(g.tile.pixels, p.n * p.ho * p.wo) * 128 <= g.stages.box_stage_bytes);
  for (std::int64_t line = 0; line < p.n * p.ho * p.wo; ++line) {
    for (const WgmmaBox& box : g.steps.boxes) {
      const WgmmaTap& at = g.steps.taps[static_cast<std::size_t>(box.first_tap)];
      const Pixel wanted{line / p.wo / p.ho, line / p.wo % p.ho * p.stride_h + at.r * p.dilation_h - p.pad_top,
                         line % p.wo * p.stride_w + at.s * p.dilation_w - p.pad_left};
      REQUIRE(gathered(p, box, line) == (inside(wanted, p.n, p.h, p.w) ? wanted : kZero));
    }
  }
}

/// The flat layout is checked as the one line of pixels that the kernel sees.
Conv2dProblem as_laid_out(const Conv2dProblem& p, const WgmmaGeometry& g) {
  if (!g.tile.flat) return p;
  Conv2dProblem line = p;
  line.n = line.h = line.ho = 1;
  line.w = line.wo = p.n * p.h * p.w;
  return line;
}

std::vector<WgmmaOverrides> all_overrides() {
  std::vector<WgmmaOverrides> list;
  for (const int pixels : {64, 96, 112, 128, 160, 192, 224, 256}) {
    for (const int row : {8, 16, pixels}) {
      for (const int box_per_tap : {0, 1}) {
        for (const int schedule : {0, 1}) {
          list.push_back({.pixels = pixels, .row = row, .box_per_tap = box_per_tap, .schedule = schedule});
        }
      }
    }
  }
  return list;
}

}  // namespace

TEST_CASE("wgmma tiles cover each output pixel once, and taps find its inputs in the boxes") {
  for (const Conv2dProblem& p : kProblems) {
    int fitting = 0;
    for (const WgmmaOverrides& overrides : all_overrides()) {
      const auto g = find_wgmma_geometry(p, kMultiprocessors, kSharedBytes, overrides);
      if (!g) continue;
      ++fitting;
      CAPTURE(g->tile_description());
      CAPTURE(g->staging_description());
      CHECK(wgmma_shared_bytes(*g) <= kSharedBytes);
      // A product reads all pixels of a tile, also of a box with fewer.
      const int last_box = 2048 + (g->stages.boxes - 1) * g->stages.box_stage_bytes;
      if (g->tile.flat) CHECK(last_box + g->tile.pixels * 128 <= wgmma_shared_bytes(*g));
      CHECK(g->steps.taps.size() == static_cast<std::size_t>(p.r * p.s));
      if (g->tile.by_tap) {
        walk_gathered(p, *g);
        continue;
      }
      const Conv2dProblem seen = as_laid_out(p, *g);
      const std::map<Pixel, int> computed = walk(seen, *g);
      CHECK(computed.size() == static_cast<std::size_t>(p.n * p.ho * p.wo));
      for (const auto& [pixel, times] : computed) REQUIRE(times == 1);
    }
    CHECK(fitting > 0);
  }
}

TEST_CASE("the tile that is picked has the least estimate of all, each estimated by itself") {
  for (const Conv2dProblem& p : kProblems) {
    double least = std::numeric_limits<double>::infinity();
    for (const int pixels : {256, 224, 192, 160, 128, 112, 96, 64}) {
      for (const int row : {pixels, 16, 8}) {
        for (const int split : {1, 2, 4, 8}) {
          for (const int schedule : {0, 1, 2}) {
            if ((schedule == 2) != (p.math == Math::split6)) continue;
            for (const int one_item : {0, 1}) {
              const WgmmaOverrides only{
                  .pixels = pixels, .row = row, .split = split, .schedule = schedule, .one_item = one_item};
              const auto g = find_wgmma_geometry(p, kMultiprocessors, kSharedBytes, only);
              if (g) least = std::min(least, g->cycles);
            }
          }
        }
      }
    }
    const auto picked = find_wgmma_geometry(p, kMultiprocessors, kSharedBytes);
    REQUIRE(picked.has_value() == std::isfinite(least));
    if (picked) CHECK(picked->cycles == least);
    for (const int bytes : {kSharedBytes, kSharedBytes / 4, 2048}) {
      CHECK(has_wgmma_geometry(p, kMultiprocessors, bytes) ==
            find_wgmma_geometry(p, kMultiprocessors, bytes).has_value());
    }
  }
}

TEST_CASE("wgmma has a tile and an estimate for GPUs of any number of multiprocessors, as parts of one have few") {
  for (const Conv2dProblem& p : kProblems) {
    for (const int multiprocessors : {1, 7, 8, 16, 20, 78, 114}) {
      for (const int split : {0, 1, 2, 4, 8}) {
        WgmmaOverrides overrides;
        overrides.split = split;
        const auto g = find_wgmma_geometry(p, multiprocessors, kSharedBytes, overrides);
        if (!g) continue;
        CHECK(g->grid.ctas >= 1);
        CHECK(g->cycles > 0);
      }
    }
  }
}

TEST_CASE("blocks with one item: as many as items, whose outputs fit in the place of stages") {
  int found = 0;
  for (const Conv2dProblem& p : kProblems) {
    for (WgmmaOverrides overrides : all_overrides()) {
      overrides.one_item = 1;
      for (const int multiprocessors : {5, kMultiprocessors}) {
        const auto g = find_wgmma_geometry(p, multiprocessors, kSharedBytes, overrides);
        if (!g) continue;
        ++found;
        CAPTURE(g->tile_description());
        CHECK(g->steps.box_each_step());
        CHECK(g->grid.ctas == g->grid.items);
        CHECK(g->grid.items <= multiprocessors);
        CHECK(g->steps.split == 1);
        const int stages = wgmma_shared_bytes(*g) - 2048;  // alignment, barriers
        CHECK(wgmma_consumers(*g) * wgmma_output_bytes(*g) <= stages);
      }
    }
  }
  CHECK(found > 20);
}

/// Part of x, part of the weights, row and column of the filter.
using Product = std::array<int, 4>;

/// Counts how often each product of a channel block is summed; checks that boxes are loaded and given back in pairs.
std::map<Product, int> products_of(const WgmmaGeometry& g) {
  std::map<Product, int> summed;
  bool loaded = false;
  int expected_tap = 0, part = 0;
  for (const WgmmaBox& box : g.steps.boxes) {
    CHECK(box.first != loaded);
    if (!box.first) CHECK(box.part == part);
    CHECK(box.first_tap == expected_tap);
    for (int tap = box.first_tap; tap < box.first_tap + box.taps; ++tap) {
      const WgmmaTap& at = g.steps.taps[static_cast<std::size_t>(tap)];
      ++summed[{box.part, at.part, at.r, at.s}];
    }
    expected_tap = box.first_tap + box.taps;
    part = box.part;
    loaded = !box.last;
  }
  CHECK_FALSE(loaded);
  CHECK(expected_tap == static_cast<int>(g.steps.taps.size()));
  return summed;
}

/// Great products in short chunks, without small ones among them.
void check_chunks(const WgmmaGeometry& g) {
  int great = 0, small = 0;
  for (const WgmmaBox& box : g.steps.boxes) {
    for (int tap = box.first_tap; tap < box.first_tap + box.taps; ++tap) {
      ++(box.part == 0 && g.steps.taps[static_cast<std::size_t>(tap)].part == 0 ? great : small);
    }
    if (!box.ends_chunk) continue;
    CHECK(great <= kWgmmaChunkTaps);
    CHECK((great == 0 || small == 0));
    great = small = 0;
  }
  CHECK(great + small == 0);
}

TEST_CASE("split maths sum each product of parts once, and find its inputs as other types do") {
  for (const Math math : {Math::split3, Math::split6}) {
    const int parts = math == Math::split3 ? 2 : 3;
    for (Conv2dProblem p : kProblems) {
      p.dtype = DType::f32;
      p.math = math;
      if (!wgmma_refusal(p).empty()) {
        CHECK(p.r * p.s * parts * (parts + 1) / 2 > kWgmmaMaxSteps);
        CHECK_FALSE(find_wgmma_geometry(p, kMultiprocessors, kSharedBytes));
        continue;
      }
      for (const int promoted : {0, 1}) {
        const WgmmaOverrides overrides{.schedule = promoted == 1 ? static_cast<int>(WgmmaSchedule::promoted) : 0};
        const auto g = find_wgmma_geometry(p, kMultiprocessors, kSharedBytes, overrides);
        REQUIRE(g);
        CAPTURE(g->tile_description());
        CHECK((g->schedule == WgmmaSchedule::promoted) == (promoted == 1));
        CHECK(g->steps.boxes.size() <= static_cast<std::size_t>(kWgmmaMaxBoxes));
        CHECK(g->steps.taps.size() <= static_cast<std::size_t>(kWgmmaMaxSteps));
        CHECK(g->steps.channel_blocks == (p.c + 63) / 64);
        const std::map<Product, int> summed = products_of(*g);
        CHECK(summed.size() == static_cast<std::size_t>(p.r * p.s * parts * (parts + 1) / 2));
        for (const auto& [product, times] : summed) {
          CHECK(times == 1);
          CHECK(product[0] + product[1] < parts);
        }
        if (promoted == 1) check_chunks(*g);
        if (g->tile.by_tap) {
          walk_gathered(p, *g);
          continue;
        }
        const std::map<Pixel, int> computed = walk(as_laid_out(p, *g), *g);
        CHECK(computed.size() == static_cast<std::size_t>(p.n * p.ho * p.wo));
      }
    }
  }
}

TEST_CASE("blocks of a cluster share the steps of an item as evenly as boxes allow") {
  for (const Math math : {Math::strict, Math::split3, Math::split6}) {
    for (Conv2dProblem p : kProblems) {
      if (math != Math::strict) p.dtype = DType::f32;
      p.math = math;
      for (const int split : {1, 2, 4, 8}) {
        if (!wgmma_refusal(p).empty()) continue;
        const auto g = find_wgmma_geometry(p, kMultiprocessors, kSharedBytes, {.split = split});
        if (!g) continue;
        CAPTURE(g->tile_description());
        int begin = 0, longest_box = 0;
        for (int share = 0; share < split; ++share) {
          const int end = g->steps.share_ends[static_cast<std::size_t>(share)];
          CHECK(end > begin);
          begin = end;
        }
        CHECK(begin == g->steps.channel_blocks * static_cast<int>(g->steps.boxes.size()));
        for (const WgmmaBox& box : g->steps.boxes) longest_box = std::max<int>(longest_box, box.taps);
        CHECK(g->steps.of_greatest_share() <= g->steps.per_item() / split + longest_box);
      }
    }
  }
}

/// A 1x1 layer and, of all its tiles, those that an H200 ran at most 4 % longer than the fastest.
struct MeasuredLayer {
  DType dtype;
  std::int64_t n, c, size, k, stride;
  std::vector<std::string> tiles;
};

TEST_CASE("the estimate picks a tile that was measured as fast: layers bound by memory, many channels, deep sums") {
  const std::vector<MeasuredLayer> layers{
      {DType::f32,
       64,
       256,
       56,
       128,
       1,
       {"128 pixels by 128 channels", "128 pixels by 64 channels", "160 pixels by 64 channels",
        "192 pixels by 128 channels", "192 pixels by 64 channels", "224 pixels by 64 channels",
        "256 pixels by 64 channels"}},
      {DType::f32,
       64,
       128,
       28,
       512,
       1,
       {"192 pixels by 128 channels", "192 pixels by 64 channels", "224 pixels by 128 channels",
        "224 pixels by 64 channels", "256 pixels by 128 channels", "256 pixels by 64 channels"}},
      {DType::f32, 64, 2048, 7, 512, 1, {"96 pixels by 128 channels"}},
      {DType::f16, 64, 256, 14, 1024, 1, {"192 pixels by 64 channels", "256 pixels by 64 channels"}},
      {DType::f16,
       64,
       256,
       56,
       512,
       2,
       {"192 gathered pixels by 64 channels", "224 gathered pixels by 64 channels",
        "256 gathered pixels by 64 channels"}},
      {DType::f16,
       32,
       1216,
       10,
       96,
       1,
       {"64 pixels by 64 channels", "96 pixels by 64 channels", "112 pixels by 64 channels"}},
      {DType::f16, 32, 1536, 8, 256, 1, {"64 pixels by 64 channels", "96 pixels by 64 channels"}},
      {DType::f16, 32, 1024, 7, 1024, 1, {"112 pixels by 128 channels"}}};
  for (const MeasuredLayer& layer : layers) {
    const std::int64_t out = (layer.size - 1) / layer.stride + 1;
    const Conv2dProblem p{.n = layer.n,
                          .c = layer.c,
                          .h = layer.size,
                          .w = layer.size,
                          .k = layer.k,
                          .ho = out,
                          .wo = out,
                          .stride_h = layer.stride,
                          .stride_w = layer.stride,
                          .dtype = layer.dtype,
                          .math = layer.dtype == DType::f32 ? Math::tf32 : Math::strict,
                          .bias = true,
                          .activation = Activation::relu};
    const std::string tile = find_wgmma_geometry(p, 132, kSharedBytes)->tile_description();
    CAPTURE(layer.c);
    CAPTURE(layer.k);
    CAPTURE(tile);
    CHECK(std::find(layer.tiles.begin(), layer.tiles.end(), tile) != layer.tiles.end());
  }
}

TEST_CASE("split6 asks for short chunks, split3 does not") {
  Conv2dProblem p = kProblems.front();
  p.dtype = DType::f32;
  p.math = Math::split6;
  CHECK(find_wgmma_geometry(p, kMultiprocessors, kSharedBytes)->schedule == WgmmaSchedule::promoted);
  p.math = Math::split3;
  CHECK(find_wgmma_geometry(p, kMultiprocessors, kSharedBytes)->schedule != WgmmaSchedule::promoted);
}

TEST_CASE("three bf16 parts hold all of an f32 value, two all but 2^-16 of it") {
  std::mt19937 random(7);
  for (int i = 0; i < 100000; ++i) {
    const auto significand = static_cast<float>(static_cast<std::int32_t>(random() % (1u << 25)) - (1 << 24));
    const float v = std::ldexp(significand, static_cast<int>(random() % 120) - 80);
    __nv_bfloat16 parts[3];
    cut(v, parts);
    const double hi = __bfloat162float(parts[0]), mid = __bfloat162float(parts[1]), lo = __bfloat162float(parts[2]);
    REQUIRE(hi + mid + lo == static_cast<double>(v));
    REQUIRE(std::abs(mid) <= 0x1p-8 * std::abs(v));
    REQUIRE(std::abs(lo) <= 0x1p-16 * std::abs(v));
    __nv_bfloat16 two[2];
    cut(v, two);
    REQUIRE(static_cast<double>(__bfloat162float(two[0])) == hi);
    REQUIRE(static_cast<double>(__bfloat162float(two[1])) == mid);
  }
  __nv_bfloat16 parts[3];
  cut(std::numeric_limits<float>::quiet_NaN(), parts);
  CHECK(std::isnan(__bfloat162float(parts[0])));
  cut(std::numeric_limits<float>::infinity(), parts);
  CHECK(std::isnan(__bfloat162float(parts[1])));
}

TEST_CASE("what the wgmma kernel refuses is named") {
  Conv2dProblem p = problem(1, 64, 8, 8, 64, 3, 1, 1, 1);
  CHECK(wgmma_refusal(p).empty());
  p.groups = 2;
  CHECK(wgmma_refusal(p).empty());
  p.c = 60;
  CHECK(wgmma_refusal(p) ==
        "2 groups of 60 input and 64 output channels in all; with groups it takes whole vectors of 8");
  p.c = 64;
  p.groups = 1;
  p.nhwc = false;
  CHECK(wgmma_refusal(p) == "layout nchw; it takes nhwc");
  p.nhwc = true;
  p.dtype = DType::f32;
  CHECK(wgmma_refusal(p).starts_with("f32 in strict math"));
  for (const Math math : {Math::tf32, Math::split3, Math::split6}) {
    p.math = math;
    CHECK(wgmma_refusal(p).empty());
  }
  p.r = p.s = 6;
  CHECK(wgmma_refusal(p) == "6x6 filter taps in 6 products each; its tables hold 160");
  p.math = Math::split3;
  CHECK(wgmma_refusal(p).empty());
}

TEST_CASE("a box with one step shares its stages with the step's weights, a box of many taps does not") {
  for (WgmmaOverrides overrides : all_overrides()) {
    overrides.one_item = 0;
    const auto pointwise =
        find_wgmma_geometry(problem(2, 256, 30, 30, 128, 1, 1, 0, 1), kMultiprocessors, kSharedBytes, overrides);
    if (!pointwise) continue;
    const bool large =
        pointwise->tile.pixels == 256 && pointwise->schedule == WgmmaSchedule::one_tile;  // three would fit
    CHECK(pointwise->stages.common != large);
    if (!large) {
      CHECK(pointwise->stages.boxes == pointwise->stages.weights);
      CHECK(pointwise->stages.boxes >= (wgmma_resident_blocks(pointwise->tile.pixels) > 1 ? 3 : 4));
    }
    CHECK(wgmma_shared_bytes(*pointwise) <= kSharedBytes);
  }
  const Conv2dProblem window = problem(2, 256, 30, 30, 128, 3, 1, 1, 1);
  for (const int pixels : {64, 128, 224}) {
    for (const int common : {0, 1}) {
      WgmmaOverrides overrides{.pixels = pixels, .row = 8, .common_stages = common, .one_item = 0};
      const auto halo = find_wgmma_geometry(window, kMultiprocessors, kSharedBytes, overrides);
      CHECK(halo.has_value() == (common == 0));
      if (halo) CHECK_FALSE(halo->stages.common);
      overrides.row = pixels;  // gathered by tap: either
      const auto gathered = find_wgmma_geometry(window, kMultiprocessors, kSharedBytes, overrides);
      REQUIRE(gathered);
      CHECK(gathered->stages.common == (common == 1));
    }
  }
}

TEST_CASE("a tile has no more pipeline stages than shared memory has barriers for, whatever the device's size") {
  int resident = 0;
  for (const int shared_bytes : {kSharedBytes, 4 * kSharedBytes, 64 * kSharedBytes}) {
    for (const std::int64_t filter : {1, 3, 5, 7, 8}) {
      for (const std::int64_t channels : {64, 256, 1024}) {
        for (const WgmmaOverrides& overrides : all_overrides()) {
          const auto g = find_wgmma_geometry(problem(2, channels, 30, 30, 64, filter, 1, filter / 2, 1),
                                             kMultiprocessors, shared_bytes, overrides);
          if (!g) continue;
          CAPTURE(g->staging_description());
          CHECK(g->stages.boxes + g->stages.weights <= kWgmmaMaxStages);
          CHECK(8 * (2 * (g->stages.boxes + g->stages.weights) + kWgmmaConsumers) <= kWgmmaBarrierBytes);
          resident += g->stages.resident_weights ? 1 : 0;
        }
      }
    }
  }
  CHECK(resident > 0);
}

TEST_CASE(
    "packed weights have the same tap order for every batch and image that shares a tile, and another for parts") {
  Conv2dProblem p = problem(1, 64, 28, 28, 64, 3, 2, 1, 1);
  const WgmmaOverrides halo{.pixels = 128, .row = 8, .schedule = 0}, gathered{.pixels = 128, .row = 128, .schedule = 0};
  const auto order = [](const Conv2dProblem& of, const WgmmaOverrides& overrides) {
    const auto g = find_wgmma_geometry(of, kMultiprocessors, kSharedBytes, overrides);
    REQUIRE(g);
    return wgmma_tap_order(*g);
  };
  Conv2dProblem larger = problem(32, 64, 56, 56, 64, 3, 2, 1, 1);
  CHECK(order(p, halo) == order(larger, halo));
  CHECK(order(p, gathered) == order(larger, gathered));
  CHECK(order(p, halo) != order(p, gathered));  // a stride's phases are loaded one after the other
  Conv2dProblem unit = problem(1, 64, 28, 28, 64, 3, 1, 1, 1);
  CHECK(order(unit, halo) == order(unit, gathered));
  unit.dtype = DType::f32;
  unit.math = Math::split3;
  CHECK(order(unit, halo) != order(unit, gathered));  // taps by part, or parts by tap
}

struct Groups {
  std::int64_t groups, c, k;  // channels of a group
};

/// Every output channel must be stored by a slice whose tile has all inputs of the channel's group.
void check_slices(const Conv2dProblem& p, const WgmmaGeometry& g) {
  const std::int64_t block = wgmma_channel_block(wgmma_operand(p));
  const int of_tile = wgmma_slices_of_tile(g), vector = 16 / static_cast<int>(size_of(p.dtype));
  std::vector<int> stored(static_cast<std::size_t>(p.k));
  for (int slice = 0; slice < wgmma_channel_slices(g); ++slice) {
    const std::int64_t first = g.slices.first_output(slice);
    const std::int64_t end = std::min(p.k, first + (g.slices.windows ? g.slices.width : kWgmmaChannels));
    const std::int64_t input = g.slices.first_input(g.slices.first_output(slice / of_tile * of_tile));
    CHECK(first % vector == 0);
    CHECK(input % vector == 0);
    if (g.steps.parts > 1) CHECK(input % block == 0);
    if (g.slices.windows) CHECK(first + g.slices.width <= p.k);
    for (std::int64_t k = first; k < end; ++k) {
      ++stored[static_cast<std::size_t>(k)];
      const std::int64_t group = k / p.group_k();
      REQUIRE(input <= group * p.group_c());
      REQUIRE((group + 1) * p.group_c() <= input + g.steps.channel_blocks * block);
    }
  }
  CHECK(std::count(stored.begin(), stored.end(), 0) == 0);
}

TEST_CASE("with groups, each output channel is stored by a slice that reads all inputs of its group") {
  const std::vector<Groups> all = {{32, 4, 4},   {32, 8, 8},    {32, 16, 16},   {32, 32, 32},  {16, 3, 3},
                                   {32, 6, 6},   {32, 12, 12},  {5, 24, 24},    {9, 24, 24},   {8, 40, 40},
                                   {7, 48, 48},  {4, 56, 56},   {3, 80, 80},    {6, 112, 112}, {2, 64, 128},
                                   {2, 32, 64},  {2, 128, 256}, {3, 192, 192},  {4, 20, 80},   {4, 68, 68},
                                   {3, 16, 240}, {45, 8, 8},    {2, 8, 8},      {8, 120, 120}, {1, 96, 96},
                                   {3, 8, 24},   {24, 1, 2},    {12, 232, 232}, {16, 2, 1},    {2, 36, 100}};
  for (const Groups& of : all) {
    for (const auto& [dtype, math] : {std::pair{DType::f16, Math::strict},
                                      {DType::f32, Math::tf32},
                                      {DType::f32, Math::split3},
                                      {DType::f32, Math::split6}}) {
      Conv2dProblem p = problem(2, of.groups * of.c, 12, 12, of.groups * of.k, 3, 1, 1, 1);
      p.groups = of.groups;
      p.dtype = dtype;
      p.math = math;
      CAPTURE(of.groups);
      CAPTURE(of.c);
      CAPTURE(of.k);
      if (!wgmma_refusal(p).empty()) {
        CHECK(
            ((p.c * static_cast<int>(size_of(dtype))) % 16 != 0 || (p.k * static_cast<int>(size_of(dtype))) % 16 != 0));
        continue;
      }
      for (const int schedule : {0, 1, 2}) {
        const auto g = find_wgmma_geometry(p, kMultiprocessors, kSharedBytes, {.schedule = schedule});
        REQUIRE(g);
        check_slices(p, *g);
      }
    }
  }
}

TEST_CASE("whole groups in a slice need as few channels as the groups have, also where they don't fill 64") {
  const auto cut = [](const Groups& of) {
    Conv2dProblem p = problem(2, of.groups * of.c, 12, 12, of.groups * of.k, 3, 1, 1, 1);
    p.groups = of.groups;
    const auto g = find_wgmma_geometry(p, kMultiprocessors, kSharedBytes, {.schedule = 0});
    REQUIRE(g);
    return std::array{g->grid.channel_tiles, g->steps.channel_blocks, g->slices.width};
  };
  CHECK(cut({32, 4, 4}) == std::array{2, 1, 64});
  CHECK(cut({32, 32, 32}) == std::array{16, 1, 64});
  CHECK(cut({32, 3, 3}) == std::array{2, 1, 48});
  CHECK(cut({8, 24, 24}) == std::array{4, 1, 48});
  CHECK(cut({9, 24, 24}) == std::array{5, 1, 48});    // the last slice overlaps with the one before
  CHECK(cut({4, 112, 112}) == std::array{8, 2, 64});  // a group's last slice overlaps with the one before
  CHECK(cut({2, 32, 64}) == std::array{2, 1, 64});
}

TEST_CASE("a fully connected layer is not estimated faster than its weights come from memory") {
  const auto cycles = [](std::int64_t pixels) {
    return find_wgmma_geometry(problem(pixels, 9216, 1, 1, 4096, 1, 1, 0, 1), kMultiprocessors, kSharedBytes)->cycles;
  };
  constexpr double kLeast = 9216.0 * 4096 * 2 / 2440;  // bytes, and bytes a cycle
  for (const std::int64_t pixels : {1, 8, 64, 200}) CHECK(cycles(pixels) > kLeast);
}

TEST_CASE("a batch shorter than a tile is one flat tile, whose weights stream through as many stages as fit") {
  for (const std::int64_t pixels : {1, 8, 40}) {
    for (const std::int64_t k : {400, 5400}) {
      const Conv2dProblem p = problem(pixels, 2560, 1, 1, k, 1, 1, 0, 1);
      const auto picked = find_wgmma_geometry(p, kMultiprocessors, kSharedBytes);
      REQUIRE(picked);
      CHECK(picked->tile.flat);
      CHECK(picked->box.pixels() < 64);
      const auto streams = find_wgmma_geometry(p, kMultiprocessors, kSharedBytes, {.pixels = 64, .one_item = 1});
      REQUIRE(streams);
      CHECK(2 * wgmma_shared_bytes(*streams) > kSharedBytes);  // no other block beside it
    }
  }
}

TEST_CASE("a block with one item may be the best of the last candidates, after clusters of the same tile") {
  for (const std::int64_t pixels : {1, 16, 49}) {
    for (const std::int64_t c : {64, 512, 4096}) {
      for (const std::int64_t k : {64, 4992, 10920}) {
        const Conv2dProblem p = problem(pixels, c, 1, 1, k, 1, 1, 0, 1);
        for (const WgmmaOverrides& overrides : {WgmmaOverrides{}, {.pixels = 64, .row = 64, .schedule = 1}}) {
          const auto g = find_wgmma_geometry(p, kMultiprocessors, kSharedBytes, overrides);
          REQUIRE(g);
          CHECK(std::min(g->stages.boxes, g->stages.weights) >= 2);
          CHECK(wgmma_shared_bytes(*g) <= kSharedBytes);
        }
      }
    }
  }
}

TEST_CASE("a filter too large for shared memory has no wgmma tile") {
  CHECK_FALSE(find_wgmma_geometry(problem(1, 64, 300, 300, 64, 7, 1, 0, 30), kMultiprocessors, kSharedBytes));
}

}  // namespace gable::cuda
