// The parts of the few-channel kernel: how problems are cut, the strips that tiles read, and what a plan says about
// itself.
#include <doctest/doctest.h>

#include <ctime>

#include "cpu/few_channels/few_channels.h"
#include "cpu/few_channels/few_channels_packing.h"
#include "tests/cpu/oracle.h"

namespace gable::cpu::test {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

/// ResNet's first layer, LeNet's two, and a wide kernel of few channels, each in both layouts.
std::vector<Conv2dProblem> typical_problems() {
  std::vector<Conv2dProblem> all;
  for (const bool nhwc : {true, false}) {
    all.push_back(sized({.c = 3, .h = 40, .w = 40, .k = 64, .r = 7, .s = 7, .stride_h = 2, .stride_w = 2}, 0, 0));
    all.push_back(sized({.c = 1, .h = 48, .w = 48, .k = 6, .r = 5, .s = 5, .pool = {2, 2, 2, 2}}, 0, 0));
    all.push_back(sized({.c = 6, .h = 22, .w = 22, .k = 16, .r = 5, .s = 5, .pool = {2, 2, 2, 2}}, 0, 0));
    all.push_back(sized({.c = 4, .h = 9, .w = 31, .k = 8, .r = 3, .s = 3, .dilation_w = 2}, 0, 0));
    for (std::size_t i = all.size() - 4; i < all.size(); ++i) all[i].nhwc = nhwc;
  }
  return all;
}

bool says(const FewChannelsPlan& plan, const char* words) {
  return plan.description().fusion.find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("few channels: explain() says which strip is filled and where the activation is applied") {
  for (Conv2dProblem p : typical_problems()) {
    for (const DType type : kTypes) {
      for (const Activation activation : {Activation::relu, Activation::tanh}) {
        p.dtype = type;
        p.activation = activation;
        for (const Target* target : supported_targets()) {
          const FewChannelsPlan plan(p, *target, 1);
          const FewChannelsBlocking b = few_channels_blocking(p, few_channels_kernels(*target), 1);
          INFO(describe(p) << " on " << target->name << ": " << plan.description().fusion);
          CHECK(says(plan, "strip of planes") == b.strip.planes);
          CHECK(says(plan, "strip in its own order") == !b.strip.planes);
          const bool stores = !b.tile.pixel_lanes && p.nhwc;
          CHECK(b.tile.stores_output == stores);
          CHECK(says(plan, "activation as a unit's results are stored") == !stores);
          CHECK(says(plan, "activation in registers") == (stores && activation == Activation::relu));
          CHECK(says(plan, "tanh in a buffer of one tile") == (stores && activation == Activation::tanh));
        }
      }
    }
  }
}

TEST_CASE("few channels: 3 and 5 neighbouring taps of one vector share broadcasts, from strips of planes") {
  for (const Target& target : compiled_targets()) {
    if (!target.supported || few_channels_kernels(target).lanes == 1) continue;
    const FewChannelsKernels& kernels = few_channels_kernels(target);
    const auto taps_in_a_run = [&](std::int64_t taps, std::int64_t stride, std::int64_t vectors) {
      const Conv2dProblem p =
          sized({.c = 3, .h = 40, .w = 40, .k = vectors * kernels.lanes, .r = 3, .s = taps, .stride_w = stride}, 0, 0);
      const FewStrip strip = few_channels_blocking(p, kernels, 1).strip;
      return strip.planes ? strip.run_steps : 0;
    };
    INFO(target.name);
    CHECK(taps_in_a_run(3, 1, 1) == 3);
    CHECK(taps_in_a_run(5, 1, 1) == 5);
    CHECK(taps_in_a_run(7, 1, 1) == 0);
    CHECK(taps_in_a_run(3, 2, 1) == 0);
    CHECK(taps_in_a_run(3, 1, 2) == 0);
  }
}

TEST_CASE("few channels: lanes are pixels where vectors of output channels would be emptier") {
  for (const Target* target : supported_targets()) {
    const FewChannelsKernels& kernels = few_channels_kernels(*target);
    const auto pixel_lanes = [&](std::int64_t k, std::int64_t w) {
      return few_channels_blocking(sized({.c = 3, .h = 9, .w = w, .k = k, .r = 3, .s = 3}, 0, 0), kernels, 1)
          .tile.pixel_lanes;
    };
    INFO(target->name);
    CHECK(pixel_lanes(1, 34));
    CHECK_FALSE(pixel_lanes(kFewMaxPixelLanesChannels + 1, 34));
    if (kernels.lanes > 1) CHECK_FALSE(pixel_lanes(8, 3));  // one pixel in a vector
  }
}

TEST_CASE("few channels: explain() says whether a large result is written with non-temporal stores") {
  Conv2dProblem p = sized({.h = 725, .w = 726, .k = 16, .s = 2}, 0, 0);  // 33.6 MB
  for (const Target* target : supported_targets()) {
    INFO(target->name);
    const bool whole_lines = kFewMaxVectors * few_channels_kernels(*target).lanes >= 16;
    CHECK(says(FewChannelsPlan(p, *target, 1), "non-temporal stores") == whole_lines);
    Conv2dProblem other = p;
    other.k = 17;  // pixels begin within lines
    CHECK_FALSE(says(FewChannelsPlan(other, *target, 1), "non-temporal stores"));
    other = p;
    other.h = other.ho = 100;
    CHECK_FALSE(says(FewChannelsPlan(other, *target, 1), "non-temporal stores"));
  }
}

TEST_CASE("few channels: an image is one unit for one thread, and several for several") {
  const Conv2dProblem p = sized({.c = 3, .h = 34, .w = 20, .k = 32, .r = 3, .s = 3}, 0, 0);
  for (const Target* target : supported_targets()) {
    const FewChannelsKernels& kernels = few_channels_kernels(*target);
    CHECK(few_channels_blocking(p, kernels, 1).units.row_blocks == 1);
    const FewUnits units = few_channels_blocking(p, kernels, 4).units;
    CHECK(units.row_blocks >= 4);
    CHECK(units.row_blocks * units.rows >= p.out_h());
    CHECK((units.row_blocks - 1) * units.rows < p.out_h());
  }
}

TEST_CASE("few channels: an image of 10^9 rows is cut at once") {
  Conv2dProblem p{.c = 1, .h = 20, .w = 20, .k = 2, .r = 3, .s = 3, .pad_top = 2'000'000'000};
  p = sized(p, 0, 0);
  const std::clock_t start = std::clock();  // of this process: others may be busy
  for (const Target* target : supported_targets()) {
    for (const bool nhwc : {true, false}) {
      p.nhwc = nhwc;
      const FewUnits units = few_channels_blocking(p, few_channels_kernels(*target), 2).units;
      CHECK(units.row_blocks > 1'000'000);
      CHECK(units.row_blocks * units.rows >= p.out_h());
    }
  }
  CHECK(std::clock() - start < CLOCKS_PER_SEC);  // it took 2 s each
}

TEST_CASE("few channels: the offset of a run is where the strip has its first tap") {
  const Conv2dProblem p{.c = 2, .r = 2, .s = 3, .stride_w = 2, .dilation_h = 3};
  // Two rows of the kernel, 3 rows of 100 floats apart; columns 0, 1, 2 lie in phases 0, 1, 0.
  const FewStrip planes{
      .planes = true, .phases = 2, .columns = 5, .pitch = 16, .row = 100, .pixel_step = 1, .run_steps = 1};
  CHECK(run_offsets(p, planes) == std::vector<std::int32_t>{0, 16, 1, 32, 48, 33, 300, 316, 301, 332, 348, 333});
  // A row of the kernel is one run: three pixels of two channels.
  const FewStrip copy{
      .planes = false, .phases = 1, .columns = 20, .pitch = 32, .row = 32, .pixel_step = 4, .run_steps = 6};
  CHECK(run_offsets(p, copy) == std::vector<std::int32_t>{0, 96});
}

}  // namespace gable::cpu::test
