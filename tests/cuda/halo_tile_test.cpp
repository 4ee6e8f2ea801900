// How few_channels cuts convolutions into tiles, without a GPU: tiles cover the output, a tile's input rows are what
// its outputs read, divisors divide, and tiles too large for any block are refused.
#include <doctest/doctest.h>

#include <cstdint>

#include "cuda/common/halo_tile.h"
#include "cuda/few_channels/few_channels.h"
#include "cuda/few_channels/few_channels_mma.h"
#include "tests/tools/expect.h"

namespace gable::cuda {
namespace {

Conv2dProblem problem(std::int64_t kernel, std::int64_t stride, std::int64_t dilation) {
  const std::int64_t reach = dilation * (kernel - 1) + 1, pad = reach / 2, h = 31, w = 40;
  return {.n = 5,
          .c = 6,
          .h = h,
          .w = w,
          .k = 20,
          .r = kernel,
          .s = kernel,
          .ho = (h + 2 * pad - reach) / stride + 1,
          .wo = (w + 2 * pad - reach) / stride + 1,
          .stride_h = stride,
          .stride_w = stride,
          .pad_top = pad,
          .pad_left = pad,
          .dilation_h = dilation,
          .dilation_w = dilation,
          .groups = 2};
}

}  // namespace

TEST_CASE("halo tile: extents are those of a group, and a 2x2 pool needs whole pairs of rows and columns") {
  Conv2dProblem p = problem(3, 1, 1);
  const HaloTile plain = halo_tile(p);
  CHECK(plain.n == 5);
  CHECK(plain.extents.c == 3);
  CHECK(plain.extents.k == 10);
  CHECK(plain.output.ho == 31);
  CHECK(plain.output.out_h == 31);
  CHECK_FALSE(plain.format.pool);
  p.pool = {.h = 2, .w = 2, .stride_h = 2, .stride_w = 2};
  const HaloTile pooled = halo_tile(p);
  CHECK(pooled.format.pool);
  CHECK(pooled.output.out_h == 15);
  CHECK(pooled.output.ho == 30);
  CHECK(pooled.output.wo == 40);
}

TEST_CASE("halo tile: bands of rows cover the output, and a tile has the input rows that its outputs read") {
  for (const std::int64_t kernel : {1, 3, 5, 7}) {
    for (const std::int64_t stride : {1, 2}) {
      for (const std::int64_t dilation : {1, 3}) {
        HaloTile t = halo_tile(problem(kernel, stride, dilation));
        const int pairs = (t.output.ho + 1) / 2;
        for (int row_pairs = 1; row_pairs <= pairs; ++row_pairs) {
          cut_rows(t, 1, row_pairs);
          CHECK(t.cut.bands * row_pairs >= pairs);
          CHECK((t.cut.bands - 1) * row_pairs < pairs);
          CHECK(t.cut.tiles == 5 * t.cut.bands);
          const std::int64_t last_output = 2 * row_pairs - 1;
          CHECK(t.cut.in_rows == last_output * stride + (kernel - 1) * dilation + 1);
          CHECK(t.by.rows.value == static_cast<unsigned>(t.cut.in_rows));
          CHECK(t.by.row_pairs.value == static_cast<unsigned>(row_pairs));
        }
        cut_rows(t, 3, pairs);  // several images: the last tile has fewer
        CHECK(t.cut.bands == 1);
        CHECK(t.cut.tiles == 2);
      }
    }
  }
}

TEST_CASE("halo tile: a divisor divides all numbers whose product with it is below 2^32") {
  for (const int value : {1, 2, 3, 5, 7, 31, 100, 641, 4095}) {
    const Divisor d = divisor(value);
    const auto most = static_cast<unsigned>((std::uint64_t{1} << 32) / d.value - 1);
    for (const unsigned a : {0U, 1U, d.value - 1, d.value, d.value + 1, most / 2, most - most % d.value, most}) {
      CAPTURE(value);
      CAPTURE(a);
      if (value > 1) CHECK((std::uint64_t{a} * d.reciprocal >> 32) == a / d.value);
    }
  }
}

TEST_CASE("halo tile: pitches beyond an int are refused as too many bytes of shared memory") {
  cudaDeviceProp device{};
  device.major = 9;
  device.sharedMemPerBlockOptin = 232448;
  constexpr std::int64_t kFar = std::int64_t{1} << 28;
  const Conv2dProblem small{
      .n = 1, .c = 16, .h = 1, .w = 16, .k = 8, .ho = 1, .wo = 16, .dtype = DType::f16, .nhwc = true};
  CHECK(FewChannelsMma::refusal(small, device).empty());
  for (const std::int64_t channels : {3, 9, 16}) {
    Conv2dProblem far_columns = small;
    far_columns.c = channels;
    far_columns.w = 1;
    far_columns.wo = 3;
    far_columns.stride_w = far_columns.pad_left = kFar;
    CHECK(contains(FewChannelsMma::refusal(far_columns, device), "bytes of shared memory"));
    Conv2dProblem far_rows = small;
    far_rows.c = channels;
    far_rows.ho = 3;
    far_rows.stride_h = far_rows.pad_top = 4 * kFar;
    CHECK(contains(FewChannelsMma::refusal(far_rows, device), "bytes of shared memory"));
    Conv2dProblem wide = small;
    wide.c = channels;
    wide.w = wide.wo = kFar / 2 - 16;
    wide.k = 2;
    CHECK(contains(FewChannelsMma::refusal(wide, device), "bytes of shared memory"));
  }
}

TEST_CASE("halo tile: of f32 pixels too, and where only the rows together exceed an int") {
  cudaDeviceProp device{};
  device.major = 9;
  device.sharedMemPerBlockOptin = 232448;
  Conv2dProblem p{.n = 1, .c = 1, .h = 1, .w = 64, .k = 1, .r = 3, .s = 1, .ho = 1, .wo = 64, .pad_top = 1};
  CHECK(FewChannelsConv2d::refusal(p, device).empty());
  p.w = p.wo = std::int64_t{1} << 30;
  CHECK(contains(FewChannelsConv2d::refusal(p, device), "bytes of shared memory"));
  p.w = 1;
  p.wo = 3;
  p.stride_w = p.pad_left = std::int64_t{1} << 30;
  CHECK(contains(FewChannelsConv2d::refusal(p, device), "bytes of shared memory"));
}

}  // namespace gable::cuda
