// The host's arithmetic of implicit_gemm, without a GPU: division by a fixed number, and the choice of tiles.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>

#include "cuda/gemm/implicit_gemm.h"
#include "cuda/gemm/mma_choice.h"
#include "cuda/gemm/planes_choice.h"
#include "cuda/gemm/pointwise.h"
#include "cuda/gemm/pointwise_planes.h"

namespace gable::cuda {
namespace {

/// As device code divides: see divide() in implicit.cuh.
unsigned quotient(unsigned value, const Divisor& by) {
  const auto high = static_cast<unsigned>(std::uint64_t{value} * by.multiplier >> 32);
  return (high + value) >> by.shift;
}

TEST_CASE("a product and a shift divide every value below 2^31") {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    const int divisor = i < 2000 ? i + 1 : static_cast<int>(1 + random() % 0x7fffffffu);
    const Divisor by(divisor);
    const auto d = static_cast<unsigned>(divisor), any = static_cast<unsigned>(random() >> 1);
    for (const unsigned value :
         {0u, 1u, d - 1, d, 0x7fffffffu, any, 0x7fffffffu / d * d, std::max(0x7fffffffu / d * d, 1u) - 1}) {
      if (value > 0x7fffffffu) continue;
      REQUIRE(quotient(value, by) == value / d);
    }
  }
}

cudaDeviceProp h200() {
  cudaDeviceProp device{};
  device.major = 9;
  device.multiProcessorCount = 132;
  device.sharedMemPerBlockOptin = 232448;
  device.sharedMemPerMultiprocessor = 233472;
  return device;
}

Conv2dProblem pointwise(std::int64_t n, std::int64_t c, std::int64_t hw, std::int64_t k) {
  return {.n = n, .c = c, .h = hw, .w = hw, .k = k, .ho = hw, .wo = hw, .dtype = DType::f16};
}

MmaChoice choice_of(const Conv2dProblem& p, const cudaDeviceProp& device, const MmaChoice& forced = {}) {
  return choose_mma(p, implicit_gemm_of(p, 8, 8), device, forced);
}

TEST_CASE("a multiprocessor holds its even share of blocks and no more, or two launches' shares") {
  cudaDeviceProp device = h200();
  device.reservedSharedMemPerBlock = 1024;
  for (const int resident : {2, 3, 5, 8, 16}) {
    const int own = static_cast<int>(device.sharedMemPerMultiprocessor) / resident - 2048;
    for (const int share : {1, 2, 3, 4, 7, 16}) {
      for (const int blocks : {132 * (share - 1) + 1, 132 * share}) {
        for (const int launches : {1, 2}) {
          CAPTURE(resident);
          CAPTURE(blocks);
          const int most = launches * share <= resident ? launches * share : share;
          const int bytes = even_shared_bytes(resident, own, blocks, launches, device);
          const auto taken = static_cast<std::size_t>(bytes) + device.reservedSharedMemPerBlock;
          if (most >= resident) {
            CHECK(bytes == own);
          } else {
            CHECK(device.sharedMemPerMultiprocessor / taken == static_cast<std::size_t>(most));
          }
        }
      }
    }
  }
}

TEST_CASE("few deep sums are shared by clusters where the GPU has them, and shallow ones are not split") {
  CHECK(choice_of(pointwise(1, 2048, 1, 256), h200()).splits > 1);
  CHECK(choice_of(pointwise(1, 2048, 1, 256), h200()).cluster);
  cudaDeviceProp ampere = h200();
  ampere.major = 8;
  CHECK_FALSE(choice_of(pointwise(1, 2048, 1, 256), ampere).cluster);
  CHECK(choice_of(pointwise(32, 64, 28, 64), h200()).splits == 1);
}

TEST_CASE("33 tiles in 4 parts fill 132 multiprocessors, on which 30 clusters of 4 blocks run at once") {
  for (const bool cluster : {false, true}) {
    const auto seconds = [&](std::int64_t tiles) {
      const MmaChoice forced{.rows = 64, .columns = 64, .splits = 4, .cluster = cluster};
      return choice_of(pointwise(tiles, 2048, 8, 64), h200(), forced).seconds;
    };
    CHECK((seconds(33) > 1.1 * seconds(30)) == cluster);
  }
}

TEST_CASE("narrow pixels get tiles of few rows, because each row's copies take time") {
  const MmaChoice narrow = choice_of(pointwise(32, 394, 10, 244), h200());  // 11.0 us; 15.2 in tiles of 128 by 128
  CHECK(narrow.rows == 64);
  CHECK(narrow.columns == 64);
  CHECK(choice_of(pointwise(32, 35, 7, 281), h200()).rows == 32);  // 3.8 us; 5.5 in tiles of 64 by 64
}

TEST_CASE("narrow pixels are copied as one run where there are many or they are deep") {
  const auto takes = [](const Conv2dProblem& p) {
    return takes_whole_pixels(p, implicit_gemm_of(p, 8, 8), 64, 64, h200());
  };
  CHECK(takes(pointwise(32, 17, 64, 24)));
  CHECK(takes(pointwise(1, 149, 10, 24)));
  CHECK_FALSE(takes(pointwise(1, 17, 10, 24)));   // few pixels
  CHECK_FALSE(takes(pointwise(32, 24, 64, 24)));  // whole 16 bytes
  CHECK_FALSE(takes(pointwise(32, 301, 64, 24)));
  Conv2dProblem strided = pointwise(32, 17, 64, 24);
  strided.stride_h = 2;
  strided.ho = 32;
  CHECK_FALSE(takes(strided));
}

TEST_CASE("pixels are copied as one run where the tile's shared memory holds them, with the weights of its columns") {
  const Conv2dProblem wide = pointwise(1, 195, 64, 128);  // 390 bytes
  const ImplicitGemm gemm = implicit_gemm_of(wide, 8, 8);
  cudaDeviceProp small = h200();
  small.sharedMemPerBlockOptin = 101376;  // sm_86, sm_89, sm_120
  CHECK(takes_whole_pixels(wide, gemm, 128, 128, h200()));
  CHECK_FALSE(takes_whole_pixels(wide, gemm, 128, 128, small));
  CHECK(takes_whole_pixels(wide, gemm, 64, 64, small));
}

TEST_CASE("many odd output channels in f32 are left to implicit_gemm, whose stores have no gaps") {
  Conv2dProblem odd = pointwise(32, 20, 36, 63);  // 20.2 us by pointwise
  odd.dtype = DType::f32;
  odd.math = Math::tf32;
  CHECK(ImplicitGemmMma::seconds(odd, h200()) < Pointwise::seconds(odd, h200()));
  Conv2dProblem whole = odd;
  whole.k = 32;
  CHECK(Pointwise::seconds(whole, h200()) < ImplicitGemmMma::seconds(whole, h200()));
}

TEST_CASE("a forced tile is kept, and estimates are finite and grow with the batch") {
  for (const MmaCandidate& c : kMmaCandidates) {
    const MmaChoice choice =
        choice_of(pointwise(2, 96, 14, 200), h200(), {.rows = c.rows, .columns = c.columns, .splits = 2});
    CHECK(choice.rows == c.rows);
    CHECK(choice.columns == c.columns);
    CHECK(choice.splits == 2);
    CHECK(&kMmaCandidates[choice.candidate] == &c);
  }
  const Conv2dProblem p = pointwise(2, 96, 14, 200);
  CHECK_THROWS_AS(choice_of(p, h200(), {.rows = 96}), std::invalid_argument);
  CHECK_THROWS_AS(choice_of(p, h200(), {.rows = 32, .columns = 128}), std::invalid_argument);
  CHECK_THROWS_AS(choice_of(p, h200(), {.splits = 3}), std::invalid_argument);
  for (const std::int64_t c : {3, 64, 1000}) {
    for (const std::int64_t k : {5, 64, 1000}) {
      double before = 0;
      for (const std::int64_t n : {1, 8, 64, 512}) {
        const double seconds = choice_of(pointwise(n, c, 28, k), h200()).seconds;
        CHECK(std::isfinite(seconds));
        CHECK(seconds >= before);
        before = seconds;
      }
    }
  }
}

TEST_CASE("pointwise_planes takes inputs whose indices have 32 bits, with planes that a bundle reaches beyond them") {
  Conv2dProblem p = pointwise(1, 1 << 14, 256, 1 << 14);  // 2^30 elements
  p.nhwc = false;
  for (const std::int64_t groups : {1, 4}) {
    p.groups = groups;
    CHECK(planes_span(p) == (std::int64_t{1} << 30));
    CHECK(PointwisePlanes::refusal(p, h200()).empty());
  }
  Conv2dProblem narrow = pointwise(1, 4000, 721, 4000);  // a bundle of 128 groups begins up to 127 planes from the end
  narrow.nhwc = false;
  narrow.groups = 4000;
  CHECK(planes_span(narrow) == std::int64_t{3999 + 128} * 721 * 721);
  CHECK(PointwisePlanes::refusal(narrow, h200()).empty());
  narrow.h = narrow.w = narrow.ho = narrow.wo = 722;
  REQUIRE(narrow.x_elements() < (std::int64_t{1} << 31));
  CHECK(PointwisePlanes::refusal(narrow, h200()).find("planes beyond it") != std::string::npos);
}

TEST_CASE("pointwise_planes: forced tiles are kept, accesses divide planes, and estimates grow with the batch") {
  Conv2dProblem p = pointwise(32, 256, 28, 48);
  p.nhwc = false;
  for (const PlanesCandidate& c : planes_candidates()) {
    const PlanesChoice choice = choose_planes(p, h200(), {.channels = c.channels, .pixels = c.pixels, .splits = 2});
    CHECK(choice.channels == c.channels);
    CHECK(choice.pixels == c.pixels);
    CHECK(choice.splits == 2);
  }
  Conv2dProblem groups = pointwise(8, 128, 28, 128);
  groups.nhwc = false;
  groups.groups = 32;
  CHECK(choose_planes(groups, h200()).bundle > 1);  // four channels fill no tile
  CHECK(choose_planes(groups, h200(), {.bundle = 3}).bundle == 3);
  CHECK(choose_planes(p, h200()).bundle == 1);
  CHECK_THROWS_AS(choose_planes(groups, h200(), {.bundle = 33}), std::invalid_argument);
  CHECK_THROWS_AS(choose_planes(groups, h200(), {.bundle = -1}), std::invalid_argument);
  CHECK_THROWS_AS(choose_planes(p, h200(), {.channels = 32, .pixels = 256}), std::invalid_argument);
  CHECK_THROWS_AS(choose_planes(p, h200(), {.splits = 3}), std::invalid_argument);
  for (const auto& [side, access] : {std::pair{28, 8}, {14, 4}, {7, 1}, {1, 1}}) {
    CHECK(planes_access(pointwise(32, 64, side, 64)).load == access);
  }
  Conv2dProblem words = pointwise(32, 64, 28, 64);
  words.dtype = DType::f32;
  words.math = Math::tf32;
  CHECK(planes_access(words).load == 4);
  CHECK(choose_planes(words, h200()).seconds > choose_planes(pointwise(32, 64, 28, 64), h200()).seconds);
  CHECK(choose_planes(pointwise(1, 2048, 8, 64), h200()).splits > 1);
  cudaDeviceProp ampere = h200();
  ampere.major = 8;
  CHECK(choose_planes(pointwise(1, 2048, 8, 64), ampere).splits == 1);
  CHECK_THROWS_AS(choose_planes(pointwise(1, 2048, 8, 64), ampere, {.splits = 2}), std::invalid_argument);
  double before = 0;
  for (const std::int64_t n : {1, 8, 64, 512}) {
    const double seconds = choose_planes(pointwise(n, 100, 28, 70), h200()).seconds;
    CHECK(std::isfinite(seconds));
    CHECK(seconds >= before);
    before = seconds;
  }
}

}  // namespace
}  // namespace gable::cuda
