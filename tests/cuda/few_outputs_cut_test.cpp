// How few_outputs cuts a convolution into strips, without a GPU.
#include <doctest/doctest.h>

#include <cstdint>

#include "cuda/few_outputs/few_outputs.h"
#include "tests/tools/expect.h"

namespace gable::cuda {
namespace {

cudaDeviceProp h200() {
  cudaDeviceProp device{};
  device.major = 9;
  device.multiProcessorCount = 132;
  device.sharedMemPerBlockOptin = 232448;
  device.sharedMemPerMultiprocessor = 233472;
  return device;
}

Conv2dProblem window(std::int64_t n, std::int64_t c, std::int64_t hw, std::int64_t k, std::int64_t r) {
  return {.n = n,
          .c = c,
          .h = hw,
          .w = hw,
          .k = k,
          .r = r,
          .s = r,
          .ho = hw,
          .wo = hw,
          .pad_top = r / 2,
          .pad_left = r / 2,
          .dtype = DType::f16};
}

TEST_CASE("strips cover every output row and column, whatever rows and parts are forced") {
  for (const std::int64_t r : {1, 3, 5, 7}) {
    for (const std::int64_t hw : {7, 33, 100}) {
      const Conv2dProblem p = window(2, 64, hw, 2, r);
      const FewOutputsView view = few_outputs_view(p);
      for (const int rows : {0, 1, 3, 16}) {
        for (const int parts : {0, 1, 2}) {
          const FewOutputsCut cut = choose_few_outputs(p, h200(), {.rows = rows, .parts = parts});
          CHECK(cut.strips_across * cut.outputs >= view.out_w);
          CHECK(cut.bands * cut.rows * view.phases >= view.out_h);
          CHECK(cut.strips == view.images * cut.bands * view.phases * cut.strips_across);
          if (parts != 0) CHECK(cut.parts == parts);
          if (rows != 0) CHECK(cut.rows <= rows);
        }
      }
    }
  }
}

TEST_CASE("windows of one pixel without padding see the batch as one line") {
  const FewOutputsView line = few_outputs_view(window(3, 64, 17, 1, 1));
  CHECK(line.images == 1);
  CHECK(line.out_h * line.out_w >= 3 * 17 * 17);
  Conv2dProblem strided = window(3, 64, 17, 1, 1);
  strided.stride_h = strided.stride_w = 2;
  strided.ho = strided.wo = 9;
  CHECK(few_outputs_view(strided).images == 3);
  CHECK(few_outputs_view(strided).row_step == 2);
}

TEST_CASE("rows that lie further apart than the output is high leave no phase without outputs") {
  Conv2dProblem p = window(2, 64, 40, 2, 3);
  p.dilation_h = 37;
  p.pad_top = 19;
  p.ho = 5;
  const FewOutputsView view = few_outputs_view(p);
  CHECK(view.phases == 5);
  const FewOutputsCut cut = choose_few_outputs(p, h200());
  CHECK(cut.rows == 1);
  CHECK(cut.strips == 2 * 5 * cut.strips_across);
}

TEST_CASE("few_outputs refuses by the value that stands against it") {
  CHECK(FewOutputs::refusal(window(1, 64, 30, 3, 3), h200()).empty());
  CHECK(contains(FewOutputs::refusal(window(1, 64, 30, 14, 3), h200()), "14 output channels"));
  CHECK(contains(FewOutputs::refusal(window(1, 64, 30, 1, 9), h200()), "filter 9x9"));
  CHECK(contains(FewOutputs::refusal(window(1, 4096, 30, 8, 3), h200()), "shared memory"));
  CHECK(contains(FewOutputs::refusal(window(1, std::int64_t{1} << 27, 1, 1, 1), h200()), "shared memory"));
  Conv2dProblem p = window(1, 64, 30, 3, 3);
  p.nhwc = false;
  CHECK(contains(FewOutputs::refusal(p, h200()), "nchw"));
  p = window(1, 64, 30, 3, 3);
  p.dilation_w = 8;
  CHECK(contains(FewOutputs::refusal(p, h200()), "8 columns apart"));
  p.dilation_w = 1;
  p.stride_h = p.dilation_h = 2;
  CHECK(contains(FewOutputs::refusal(p, h200()), "a stride and a dilation"));
  p = window(1, 64, 30, 1, 1);
  p.ho = p.wo = 1;
  p.stride_h = p.stride_w = std::int64_t{1} << 30;
  CHECK(contains(FewOutputs::refusal(p, h200()), "stride 1073741824x1073741824"));
}

TEST_CASE("estimates grow with the batch") {
  double before = 0;
  for (const std::int64_t n : {1, 4, 16, 64}) {
    const double seconds = choose_few_outputs(window(n, 64, 56, 3, 3), h200()).seconds;
    CHECK(seconds >= before);
    before = seconds;
  }
}

}  // namespace
}  // namespace gable::cuda
