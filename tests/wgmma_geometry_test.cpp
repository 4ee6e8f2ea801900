// The wgmma kernel's tiles, without a GPU: what the loaded boxes hold at the places that the taps read, and which
// output pixels the tiles cover, for every tile that fits.
#include <doctest/doctest.h>

#include <map>
#include <tuple>
#include <vector>

#include "cuda/wgmma_geometry.h"

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
          .type = Type::f16};
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
  const Pixel from{tile.n + at / (g.box_w * g.box_h),
                   tile.y * p.stride_h + box.dy + at / g.box_w % g.box_h * p.stride_h,
                   tile.x * p.stride_w + box.dx + at % g.box_w * p.stride_w};
  return at < g.box_w * g.box_h * g.box_n && inside(from, p.n, p.h, p.w) ? from : kZero;
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
  for (int t = 0; t < g.tiles_x * g.tiles_y * g.tiles_n; ++t) {
    const Pixel tile{t / g.tiles_x / g.tiles_y * g.tile_n, t / g.tiles_x % g.tiles_y * g.tile_h,
                     t % g.tiles_x * g.tile_w};
    for (int n = 0; n < g.pixels; ++n) {
      const int row = n / g.row;
      const Pixel out{tile.n + row / g.rows_per_image, tile.y + row % g.rows_per_image, tile.x + n % g.row};
      if (!inside(out, p.n, p.ho, p.wo)) continue;
      ++computed[out];
      for (const WgmmaBox& box : g.boxes) {
        for (int tap = box.first_tap; tap < box.first_tap + box.taps; ++tap) {
          const WgmmaTap& at = g.taps[static_cast<std::size_t>(tap)];
          const int place = n / 8 * (g.group_pitch / 128) + n % 8 + at.shift;
          const Pixel wanted{out.n, out.y * p.stride_h + at.r * p.dilation_h - p.pad_top,
                             out.x * p.stride_w + at.s * p.dilation_w - p.pad_left};
          const Pixel expected = inside(wanted, p.n, p.h, p.w) ? wanted : kZero;
          REQUIRE(place * 128 < g.box_stage_bytes);
          REQUIRE(loaded(p, g, box, tile, place) == expected);
        }
      }
    }
  }
  return computed;
}

/// The same for boxes by tap of the batch's line of output pixels.
void walk_gathered(const Conv2dProblem& p, const WgmmaGeometry& g) {
  CHECK(g.tiles_x * g.pixels >= p.n * p.ho * p.wo);
  CHECK(g.pixels * 128 <= g.box_stage_bytes);
  for (std::int64_t line = 0; line < p.n * p.ho * p.wo; ++line) {
    for (const WgmmaBox& box : g.boxes) {
      const WgmmaTap& at = g.taps[static_cast<std::size_t>(box.first_tap)];
      const Pixel wanted{line / p.wo / p.ho, line / p.wo % p.ho * p.stride_h + at.r * p.dilation_h - p.pad_top,
                         line % p.wo * p.stride_w + at.s * p.dilation_w - p.pad_left};
      REQUIRE(gathered(p, box, line) == (inside(wanted, p.n, p.h, p.w) ? wanted : kZero));
    }
  }
}

/// The flat layout is checked as the one line of pixels that the kernel sees.
Conv2dProblem as_laid_out(const Conv2dProblem& p, const WgmmaGeometry& g) {
  if (!g.flat) return p;
  Conv2dProblem line = p;
  line.n = line.h = line.ho = 1;
  line.w = line.wo = p.n * p.h * p.w;
  return line;
}

std::vector<WgmmaWishes> all_wishes() {
  std::vector<WgmmaWishes> list;
  for (const int pixels : {128, 192, 224, 256}) {
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
    for (const WgmmaWishes& wishes : all_wishes()) {
      const auto g = find_wgmma_geometry(p, kMultiprocessors, kSharedBytes, wishes);
      if (!g) continue;
      ++fitting;
      CAPTURE(g->tile_description());
      CAPTURE(g->staging_description());
      CHECK(wgmma_shared_bytes(*g) <= kSharedBytes);
      CHECK(g->taps.size() == static_cast<std::size_t>(p.r * p.s));
      if (g->by_tap) {
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

TEST_CASE("what the wgmma kernel refuses is named") {
  Conv2dProblem p = problem(1, 64, 8, 8, 64, 3, 1, 1, 1);
  CHECK(wgmma_refusal(p).empty());
  p.groups = 2;
  CHECK(wgmma_refusal(p) == "2 groups; it takes one");
  p.groups = 1;
  p.nhwc = false;
  CHECK(wgmma_refusal(p) == "layout nchw; it takes nhwc");
  p.nhwc = true;
  p.type = Type::f32;
  CHECK(wgmma_refusal(p) == "f32 without math tf32; its products are of tf32 or 16-bit values");
  p.math = Math::tf32;
  CHECK(wgmma_refusal(p).empty());
}

TEST_CASE("a filter too large for shared memory has no wgmma tile") {
  CHECK_FALSE(find_wgmma_geometry(problem(1, 64, 300, 300, 64, 7, 1, 0, 30), kMultiprocessors, kSharedBytes));
}

}  // namespace gable::cuda
