// How the grouped kernels cut layers with groups, without a GPU: what a block has in shared memory is what its threads
// read, and tiles cover the output.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "cuda/grouped/grouped_mma_tile.h"
#include "cuda/grouped/grouped_tile.h"

namespace gable::cuda {
namespace {

constexpr int kMultiprocessors = 132, kSharedBytes = 232448;

struct Layer {
  std::int64_t groups, c, k, r, h, stride, dilation, n;  // channels of a group
};

Conv2dProblem problem(const Layer& l) {
  const std::int64_t pad = l.r / 2, reach = l.dilation * (l.r - 1) + 1;
  return {.n = l.n,
          .c = l.groups * l.c,
          .h = l.h,
          .w = l.h + 3,
          .k = l.groups * l.k,
          .r = l.r,
          .s = l.r,
          .ho = (l.h + 2 * pad - reach) / l.stride + 1,
          .wo = (l.h + 3 + 2 * pad - reach) / l.stride + 1,
          .stride_h = l.stride,
          .stride_w = l.stride,
          .pad_top = pad,
          .pad_left = pad,
          .dilation_h = l.dilation,
          .dilation_w = l.dilation,
          .groups = l.groups};
}

const std::vector<Layer> kLayers = {
    {32, 4, 4, 3, 56, 1, 1, 32},  {32, 8, 8, 3, 28, 1, 1, 1},  {32, 16, 16, 3, 14, 1, 1, 5},
    {32, 32, 32, 3, 7, 1, 1, 32}, {32, 3, 3, 3, 31, 2, 1, 2},  {5, 24, 24, 3, 17, 1, 2, 3},
    {3, 12, 20, 5, 9, 1, 1, 70},  {2, 60, 30, 1, 40, 1, 1, 2}, {3, 80, 20, 1, 28, 1, 1, 4},
    {7, 5, 3, 3, 4, 1, 1, 100},   {45, 8, 8, 3, 12, 2, 1, 32}, {2, 16, 100, 3, 20, 1, 1, 1},
    {16, 2, 1, 3, 33, 1, 1, 2},   {4, 50, 50, 3, 12, 1, 1, 2},
};

TEST_CASE("the tiles of grouped cover the output, and their input lies in shared memory") {
  for (const Layer& layer : kLayers) {
    const Conv2dProblem p = problem(layer);
    CAPTURE(layer.c);
    CAPTURE(layer.k);
    const auto cut = find_grouped_cut(p, kMultiprocessors, kSharedBytes);
    if (!cut) {
      CHECK(p.group_c() > 64);
      continue;
    }
    const GroupedSlab& s = cut->slab;
    const GroupedTile& t = cut->tile;
    CHECK(cut->shared_bytes() <= kSharedBytes);
    CHECK(cut->threads <= kGroupedMostThreads);
    CHECK(cut->threads >= s.lanes() * t.strips * t.rows * t.images);
    CHECK(cut->threads >= s.groups * p.group_c() / (p.group_c() % 4 == 0 ? 4 : 1));  // a pixel's copies
    CHECK(t.strips * t.tiles_x * kGroupedPixels >= p.wo);
    CHECK(t.rows * t.tiles_y >= p.ho);
    CHECK(t.images * t.tiles_n >= p.n);
    if (t.images > 1) CHECK((t.tiles_x == 1 && t.tiles_y == 1));
    CHECK(s.groups * s.slabs >= p.groups);
    CHECK(s.group_lanes * s.parts * s.out >= p.group_k());
    // The last pixel that a thread reads, of the last row.
    const std::int64_t last_row = (t.rows - 1) * p.stride_h + (p.r - 1) * p.dilation_h;
    const std::int64_t last_column = (t.strips * kGroupedPixels - 1) * p.stride_w + (p.s - 1) * p.dilation_w;
    CHECK(last_row < t.in_rows);
    CHECK((last_column + 1) * s.groups * s.padded_c <= t.pitch);
    CHECK(t.pitch % 4 == 0);
  }
}

/// Every warp's steps must lie in what its slab loads, and hold the groups of its output channels.
void check_channels(const Conv2dProblem& p, const MmaChannels& c) {
  const int part = c.halves ? kMmaOutputs / 2 : kMmaOutputs, slab = c.warps * kMmaOutputs;
  const int channels = c.steps * kMmaStepBytes / 16 * c.vector;
  CHECK(c.slabs * slab >= p.k);
  for (int output = 0; output < p.k; ++output) {
    const int first = c.first_input(output / part * part), slab_first = c.first_input(output / slab * slab);
    const std::int64_t group = output / p.group_k();
    REQUIRE(first % c.vector == 0);
    REQUIRE(first <= group * p.group_c());
    REQUIRE((group + 1) * p.group_c() <= first + channels);
    REQUIRE(slab_first <= first);
    REQUIRE(first + channels <= slab_first + c.slab_vectors * c.vector);
  }
}

TEST_CASE("the tiles of grouped_mma cover the output, and a warp's steps lie in shared memory") {
  for (const Layer& layer : kLayers) {
    for (const DType dtype : {DType::f16, DType::f32}) {
      Conv2dProblem p = problem(layer);
      p.dtype = dtype;
      p.math = dtype == DType::f32 ? Math::tf32 : Math::strict;
      CAPTURE(layer.c);
      CAPTURE(layer.k);
      const auto cut = find_mma_cut(p, kMultiprocessors, kSharedBytes);
      if (!cut) {  // the weights of four warps don't fit
        CHECK(p.group_c() > 32);
        continue;
      }
      const MmaTile& t = cut->tile;
      check_channels(p, cut->channels);
      CHECK(cut->shared_bytes() <= kSharedBytes);
      CHECK(cut->threads() <= 256);
      CHECK(cut->pixel_bytes % 32 == 16);  // eight pixels in a row begin in different banks
      CHECK(cut->pixel_bytes >= cut->channels.slab_vectors * 16);
      CHECK(t.columns * t.tiles_x >= p.wo);
      CHECK(t.rows * t.tiles_y >= p.ho);
      CHECK(t.images * t.tiles_n >= p.n);
      if (t.images > 1) CHECK((t.tiles_x == 1 && t.tiles_y == 1));
      CHECK((t.rows - 1) * p.stride_h + (p.r - 1) * p.dilation_h < t.in_rows);
      CHECK((t.columns - 1) * p.stride_w + (p.s - 1) * p.dilation_w < t.in_columns);
    }
  }
}

TEST_CASE("halves of a warp's channels have own inputs in tf32 where groups have at most eight channels") {
  const auto channels = [](std::int64_t c, DType dtype) {
    Conv2dProblem p = problem({8, c, c, 3, 20, 1, 1, 2});
    p.dtype = dtype;
    const auto cut = find_mma_cut(p, kMultiprocessors, kSharedBytes);
    REQUIRE(cut);
    return cut->channels;
  };
  CHECK(channels(4, DType::f32).halves);
  CHECK(channels(4, DType::f32).steps == 1);
  CHECK(channels(8, DType::f32).halves);
  CHECK_FALSE(channels(16, DType::f32).halves);
  CHECK(channels(16, DType::f32).steps == 2);
  CHECK_FALSE(channels(4, DType::f16).halves);
  CHECK(channels(4, DType::f16).steps == 1);
  CHECK(channels(32, DType::f16).steps == 2);
}

}  // namespace
}  // namespace gable::cuda
