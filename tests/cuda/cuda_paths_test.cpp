// Problems that make each CUDA kernel choose each of its tiles and branches, checked against the oracle. What a plan
// chooses depends on the GPU's multiprocessors, so the tests search for problems by their plans' descriptions.
#include <doctest/doctest.h>
#include <gable/gable.h>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "backends/problems.h"
#include "cuda/common/check.h"
#include "cuda/depthwise/depthwise.h"
#include "cuda/few_channels/few_channels.h"
#include "cuda/few_channels/few_channels_mma.h"
#include "cuda/few_channels/one_channel.h"
#include "cuda/few_outputs/few_outputs.h"
#include "cuda/gemm/few_pixels.h"
#include "cuda/gemm/implicit_gemm.h"
#include "cuda/gemm/pointwise.h"
#include "cuda/gemm/pointwise_planes.h"
#include "cuda/gemm/register_tile.h"
#include "cuda/grouped/as_one_group.h"
#include "cuda/grouped/grouped.h"
#include "cuda/grouped/grouped_mma.h"
#include "cuda/ladder/constant.h"
#include "cuda/ladder/naive.h"
#include "cuda/ladder/tiled.h"
#include "cuda/wgmma/conv2d.h"
#include "cuda/wgmma/planes.h"
#include "tests/conformance/conformance_run.h"
#include "tests/cuda/check_op.h"
#include "tests/cuda/device_memory.h"
#include "tests/tools/expect.h"

namespace gable {
namespace {

using conformance::Bench;
using conformance::make_operands;
using conformance::Operands;

bool has_kernel(const std::string& kernel) {
  if (is_missing("cuda")) return false;
  const std::vector<std::string> kernels = first_device("cuda").kernels;
  if (std::find(kernels.begin(), kernels.end(), kernel) != kernels.end()) return true;
  MESSAGE("skipped, the GPU has no ", kernel);
  return false;
}

Conv2d nhwc(const Shape& input, const Shape& weights, DType dtype, Math math) {
  return {.input = input,
          .weights = weights,
          .padding = {weights[2] / 2, weights[3] / 2},
          .dtype = dtype,
          .layout = Layout::nhwc,
          .math = math,
          .epilogue = {.bias = true, .activation = Activation::relu}};
}

/// Runs the first of the problems whose plan says `wanted`; fails if there is none.
void check_first(const Device& device, const std::string& wanted, const std::vector<Conv2d>& problems) {
  for (const Conv2d& conv : problems) {
    if (!contains(device.plan(conv).explain(), wanted)) continue;
    check(device, conv);
    return;
  }
  FAIL_CHECK(device.info().uri, ": no problem makes it choose '", wanted, "'");
}

TEST_CASE("the first steps of the ladder compute both layouts") {
  for (const char* kernel : {"naive", "constant", "shared", "double_buffer"}) {
    if (!has_kernel(kernel)) continue;
    const Device device = open(std::string("cuda:0?kernel=") + kernel);
    Conv2d conv = nhwc({2, 10, 19, 21}, {12, 5, 3, 3}, DType::f32, Math::strict);
    conv.groups = 2;
    check(device, conv);
    conv.layout = Layout::nchw;
    conv.epilogue.max_pool = {2, 2};
    check(device, conv);
  }
}

/// Convolutions by plans of the test's choice, with the outputs between poisoned bytes.
class PlanCheck {
 public:
  PlanCheck(const Device& device, const Conv2d& conv)
      : conv_(conv),
        operands_(make_operands(conv)),
        expected_(oracle(conv, operands_.views())),
        bound_(device.plan(conv).error_bound()) {}

  void run(const cuda::Conv2dPlan& plan) const {
    const auto bytes_of = [](const Tensor& tensor) {
      const auto* const bytes = static_cast<const unsigned char*>(tensor.data());
      return std::vector<unsigned char>(bytes, bytes + tensor.bytes());
    };
    INFO(describe(conv_), ", ", plan.description().tile);
    const OnDevice x(bytes_of(operands_.tensors[0])), weights(bytes_of(operands_.tensors[1]));
    const OnDevice bias(bytes_of(operands_.tensors[2]));
    const std::vector<unsigned char> poison(plan.workspace_bytes() + 1, 0xff);
    const OnDevice packed(std::vector<unsigned char>(plan.packed_bytes(), 0xff)), workspace(poison);
    Tensor result(conv_.dtype, output_shape(conv_), conv_.layout);
    const OnDevice y(std::vector<unsigned char>(result.bytes() + 64, 0xff));
    plan.pack(weights.get(), dense_strides(problem_of(conv_)), packed.get(), nullptr);
    plan.run(x.get(), packed.get(), reinterpret_cast<const float*>(bias.get()), y.get(), workspace.get(), nullptr);
    const std::vector<unsigned char> bytes = y.read();
    CHECK(std::all_of(bytes.end() - 64, bytes.end(), [](unsigned char byte) { return byte == 0xff; }));
    std::copy(bytes.begin(), bytes.end() - 64, static_cast<unsigned char*>(result.data()));
    const Comparison comparison = compare(result, expected_, bound_);
    INFO("first mismatch at ", comparison.first_mismatch, ", ", comparison.worst_ratio, " of the bound");
    CHECK(comparison.mismatches == 0);
  }

 private:
  Conv2d conv_;
  Operands operands_;
  OracleResult expected_;
  ErrorBound bound_;
};

cudaDeviceProp device_properties() {
  cudaDeviceProp properties{};
  GABLE_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  return properties;
}

/// implicit_gemm with a tile and splits of the test's choice.
void check_mma(const PlanCheck& check, const Conv2dProblem& problem, const cuda::MmaChoice& forced) {
  INFO("cluster ", forced.cluster);
  check.run(*cuda::ImplicitGemmMma::make(problem, device_properties(), forced));
}

/// wgmma with each combination of these that fits.
void check_wgmma(const Device& device, const Conv2d& conv, const std::vector<int>& splits) {
  const PlanCheck check(device, conv);
  const cudaDeviceProp properties = device_properties();
  const Conv2dProblem problem = problem_of(conv);
  Conv2dProblem padded = problem;
  const std::int64_t vector = 16 / static_cast<std::int64_t>(size_of(conv.dtype));
  padded.c = round_up(problem.c, vector);
  padded.k = round_up(problem.k, vector);
  for (const int pixels : {64, 96, 112, 128, 160, 192, 224, 256}) {
    for (const int row : {8, 16, pixels}) {
      for (const int schedule : {0, 1}) {
        for (const int split : splits) {
          for (const auto& [common, one_item] : {std::pair{0, 0}, {1, 0}, {1, 1}}) {
            const cuda::WgmmaOverrides forced{.pixels = pixels,
                                              .row = row,
                                              .split = split,
                                              .schedule = schedule,
                                              .common_stages = common,
                                              .one_item = one_item};
            if (!cuda::find_wgmma_geometry(padded, properties.multiProcessorCount,
                                           static_cast<int>(properties.sharedMemPerBlockOptin), forced))
              continue;
            check.run(*cuda::Wgmma::make(problem, properties, forced));
          }
        }
      }
    }
  }
}

TEST_CASE("wgmma computes batches of fewer pixels than a tile, whose boxes are as short as the batch") {
  if (!has_kernel("wgmma")) return;
  const Device device = open("cuda:0?kernel=wgmma");
  for (const auto& [dtype, math] : {std::pair{DType::f16, Math::strict},
                                    {DType::bf16, Math::strict},
                                    {DType::f32, Math::tf32},
                                    {DType::f32, Math::split3},
                                    {DType::f32, Math::split6}}) {
    for (const std::int64_t batch : {1, 5, 8, 33, 63, 64, 65}) {
      check_wgmma(device, nhwc({batch, 1032, 1, 1}, {200, 1032, 1, 1}, dtype, math), {1, 2, 4, 8});
    }
    check_wgmma(device, nhwc({1, 72, 5, 5}, {136, 72, 3, 3}, dtype, math), {1, 2, 4, 8});
    check_wgmma(device, nhwc({2, 136, 3, 4}, {72, 136, 1, 1}, dtype, math), {1, 2});
  }
}

TEST_CASE("wgmma stores outputs whose channels are no whole vectors, element by element or through a copy") {
  if (!has_kernel("wgmma")) return;
  const Device device = open("cuda:0?kernel=wgmma");
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    const Math math = dtype == DType::f32 ? Math::tf32 : Math::strict;
    for (const std::int64_t k : {1, 5, 19, 63, 70, 150}) {
      check_wgmma(device, nhwc({2, 136, 9, 11}, {k, 136, 1, 1}, dtype, math), {1});
    }
    check_wgmma(device, nhwc({3, 35, 7, 9}, {21, 35, 3, 3}, dtype, math), {1});
    const Plan plan = device.plan(nhwc({2, 136, 9, 11}, {19, 136, 1, 1}, dtype, math));
    CHECK(contains(plan.explain(), "element by element"));
  }
}

/// Every way to gather, with odd outputs, strides, padding, groups and a pool.
std::vector<Conv2d> register_tile_problems() {
  std::vector<Conv2d> all;
  for (const std::int64_t channels : {64, 36, 35}) {
    all.push_back(nhwc({2, channels, 13, 11}, {131, channels, 3, 3}, DType::f32, Math::strict));
    all.push_back(nhwc({1, 8 * channels, 9, 17}, {70, 8 * channels, 1, 1}, DType::f32, Math::strict));
    Conv2d strided = nhwc({1, 2 * channels, 17, 12}, {62, channels, 2, 5}, DType::f32, Math::strict);
    strided.stride = {2, 3};
    strided.padding = {1, 2, 0, 3};
    strided.dilation = {2, 1};
    strided.groups = 2;
    all.push_back(strided);
    Conv2d pooled = nhwc({2, channels, 14, 15}, {26, channels, 3, 3}, DType::f32, Math::strict);
    pooled.epilogue.max_pool = {2, 2};
    all.push_back(pooled);
  }
  // A single tap, whose channels end within a stage, or before the first one is full.
  all.push_back(nhwc({1, 100, 9, 17}, {70, 100, 1, 1}, DType::f32, Math::strict));
  Conv2d shallow = nhwc({3, 20, 17, 12}, {36, 20, 1, 1}, DType::f32, Math::strict);
  shallow.stride = {2, 3};
  shallow.padding = {1, 2, 0, 3};
  all.push_back(shallow);
  return all;
}

TEST_CASE("register_tile computes each of its tiles, ways to gather and split depths, with reorders and pools") {
  if (!has_kernel("register_tile")) return;
  const Device device = open("cuda:0?kernel=register_tile");
  const cudaDeviceProp gpu = device_properties();
  for (const Conv2d& conv : register_tile_problems()) {
    check(device, conv);
    const PlanCheck forced(device, conv);
    for (int tile = 0; tile < static_cast<int>(cuda::RegisterTile::tiles().size()); ++tile) {
      for (const int splits : {1, 3}) {
        forced.run(*cuda::RegisterTile::make(problem_of(conv), gpu, {.candidate = tile, .splits = splits}));
      }
    }
  }
  for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
    Conv2d conv = nhwc({2, 20, 23, 23}, {24, 20, 3, 3}, DType::f32, Math::strict);
    conv.layout = layout;
    conv.epilogue.max_pool = {3, 3};
    check(device, conv);
  }
}

/// Channels that need each width of copies and stores, padding, strides, dilation, pools, groups, few and many rows.
std::vector<Conv2d> mma_problems(DType dtype, Math math) {
  std::vector<Conv2d> all{
      nhwc({2, 64, 13, 11}, {72, 64, 3, 3}, dtype, math),  nhwc({1, 36, 20, 17}, {129, 36, 3, 3}, dtype, math),
      nhwc({3, 10, 9, 14}, {34, 10, 1, 1}, dtype, math),   nhwc({2, 127, 11, 11}, {63, 127, 1, 1}, dtype, math),
      nhwc({1, 129, 8, 9}, {131, 129, 3, 3}, dtype, math), nhwc({3, 1000, 1, 1}, {12, 1000, 1, 1}, dtype, math),
      nhwc({1, 640, 1, 1}, {7, 640, 1, 1}, dtype, math),   nhwc({2, 10, 9, 7}, {33, 10, 3, 3}, dtype, math),
      nhwc({2, 301, 5, 5}, {20, 301, 1, 1}, dtype, math),  nhwc({5, 17, 15, 9}, {24, 17, 1, 1}, dtype, math),
      nhwc({2, 106, 9, 7}, {70, 106, 1, 1}, dtype, math),  nhwc({2, 1, 12, 12}, {9, 1, 1, 1}, dtype, math),
      nhwc({1, 17, 200, 190}, {24, 17, 1, 1}, dtype, math)};
  Conv2d strided = nhwc({2, 13, 17, 12}, {31, 13, 2, 5}, dtype, math);
  strided.stride = {2, 3};
  strided.padding = {1, 2, 0, 3};
  strided.dilation = {2, 1};
  all.push_back(strided);
  Conv2d pooled = nhwc({2, 24, 14, 15}, {26, 24, 3, 3}, dtype, math);
  pooled.epilogue = {.bias = true, .activation = Activation::tanh, .max_pool = {2, 2}};
  all.push_back(pooled);
  Conv2d grouped = nhwc({2, 60, 12, 12}, {120, 20, 3, 3}, dtype, math);
  grouped.groups = 3;
  all.push_back(grouped);
  return all;
}

TEST_CASE("implicit_gemm computes each of its tiles, widths of copies and stores, and split depths") {
  if (!has_kernel("implicit_gemm")) return;
  const Device device = open("cuda:0?kernel=implicit_gemm");
  for (const auto& [dtype, math] :
       {std::pair{DType::f16, Math::strict}, {DType::bf16, Math::strict}, {DType::f32, Math::tf32}}) {
    for (const Conv2d& conv : mma_problems(dtype, math)) {
      check(device, conv);
      const PlanCheck forced(device, conv);
      const Conv2dProblem problem = problem_of(conv);
      for (const cuda::MmaCandidate& tile : cuda::kMmaCandidates) {
        check_mma(forced, problem, {.rows = tile.rows, .columns = tile.columns, .splits = 1});
        check_mma(forced, problem, {.rows = tile.rows, .columns = tile.columns, .splits = 4});
        check_mma(forced, problem, {.rows = tile.rows, .columns = tile.columns, .splits = 2, .cluster = false});
      }
    }
  }
}

TEST_CASE("depthwise_any computes each of its numbers of channels along rows and along columns") {
  if (!has_kernel("depthwise")) return;
  const Device device = open("cuda:0?kernel=depthwise");
  for (const auto& [kernel_h, kernel_w] : {std::array<std::int64_t, 2>{13, 1}, {1, 13}, {2, 7}, {3, 6}, {5, 5}}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      for (const std::int64_t dilation : {1, 2}) {
        Conv2d conv = nhwc({2, 20, 21, 17}, {20, 1, kernel_h, kernel_w}, dtype, Math::strict);
        conv.groups = 20;
        conv.dilation = {dilation, dilation};
        for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
          for (const Extent stride : {Extent{1, 1}, Extent{1, 2}, Extent{2, 1}, Extent{2, 2}}) {
            conv.layout = layout;
            conv.stride = stride;
            const PlanCheck check(device, conv);
            for (const int lanes : {1, 2, 4}) {
              if (lanes > 1 && layout == Layout::nchw) continue;
              for (const auto& [turned, half] : {std::array{false, false}, {false, true}, {true, false}, {true, true}})
                check.run(*cuda::Depthwise::make(problem_of(conv), device_properties(),
                                                 cuda::DepthwiseOverrides{lanes, turned, half}));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("few_pixels computes each of its numbers of pixels, widths of loads and storage types") {
  if (!has_kernel("few_pixels")) return;
  const Device device = open("cuda:0?kernel=few_pixels");
  for (const auto& [dtype, math] : {std::pair{DType::f16, Math::strict},
                                    {DType::bf16, Math::strict},
                                    {DType::f32, Math::strict},
                                    {DType::f32, Math::tf32}}) {
    for (const std::int64_t pixels : {1, 2, 3, 4, 7, 8}) {
      for (const std::int64_t c : {1, 7, 20, 33, 64, 300, 1030, 2056}) {
        check(device, nhwc({pixels, c, 1, 1}, {c + 3, c, 1, 1}, dtype, math));
      }
    }
    check(device, nhwc({1, 130, 2, 3}, {5, 130, 1, 1}, dtype, math));
    for (const std::int64_t pixels : {1, 2, 5}) {  // four warps share an output channel
      const Conv2d shared = nhwc({pixels, 16391, 1, 1}, {37, 16391, 1, 1}, dtype, math);
      CHECK(contains(device.plan(shared).explain(), "1 channel of 4 warps"));
      check(device, shared);
    }
    Conv2d planes = nhwc({2, 70, 1, 1}, {9, 70, 1, 1}, dtype, math);
    planes.layout = Layout::nchw;
    planes.epilogue = {.activation = Activation::tanh};
    check(device, planes);
  }
}

TEST_CASE("few_channels computes four output channels, where its tile of four is the smallest") {
  if (!has_kernel("few_channels")) return;
  const Device device = open("cuda:0?kernel=few_channels");
  for (const std::int64_t side : {3, 4, 5, 6}) {
    for (const std::int64_t stride : {1, 2, 3}) {
      Conv2d conv = nhwc({3, 2, 15, 19}, {4, 2, side, side}, DType::f32, Math::strict);
      conv.stride = {stride, stride};
      check(device, conv);
      conv.layout = Layout::nchw;
      conv.input[3] = 24;
      conv.epilogue.max_pool = {2, 2};
      check(device, conv);
    }
  }
}

template <typename KernelPlan>
void check_estimate(const Conv2d& conv) {
  const cudaDeviceProp gpu = device_properties();
  Conv2d more = conv;
  more.input[0] *= 512;
  if (!KernelPlan::refusal(problem_of(conv), gpu).empty()) return;
  INFO(describe(conv));
  const double seconds = KernelPlan::seconds(problem_of(conv), gpu);
  CHECK(seconds > 0);
  CHECK(std::isfinite(KernelPlan::seconds(problem_of(more), gpu)));
  CHECK(KernelPlan::seconds(problem_of(more), gpu) > seconds);
}

TEST_CASE("estimates of the kernels for few channels are finite and grow with the batch") {
  if (is_missing("cuda")) return;
  for (const std::int64_t c : {1, 3, 8}) {
    for (const std::int64_t side : {1, 3, 5, 7}) {
      for (const std::int64_t stride : {1, 2, 4}) {
        for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
          for (const DType dtype : {DType::f32, DType::f16}) {
            Conv2d conv = nhwc({1, c, 28, 30}, {8, c, side, side}, dtype, Math::strict);
            conv.layout = layout;
            conv.stride = {stride, stride};
            check_estimate<cuda::OneChannelConv2d>(conv);
            check_estimate<cuda::FewChannelsConv2d>(conv);
            check_estimate<cuda::FewChannelsMma>(conv);
          }
        }
      }
    }
  }
}

TEST_CASE("wgmma computes each of its tiles, layouts, schedules and splits") {
  if (!has_kernel("wgmma")) return;
  const Device device = open("cuda:0?kernel=wgmma");
  for (const auto& [dtype, math] : {std::pair{DType::f16, Math::strict},
                                    {DType::bf16, Math::strict},
                                    {DType::f32, Math::tf32},
                                    {DType::f32, Math::split3}}) {
    INFO("math ", static_cast<int>(math));
    check_wgmma(device, nhwc({2, 72, 13, 11}, {72, 72, 3, 3}, dtype, math), {1, 2});
    check_wgmma(device, nhwc({1, 520, 5, 9}, {136, 520, 1, 1}, dtype, math), {1, 4, 8});
    check_wgmma(device, nhwc({1, 8, 150, 100}, {64, 8, 1, 1}, dtype, math), {1});     // several tiles a block
    check_wgmma(device, nhwc({3, 1864, 7, 5}, {200, 1864, 1, 1}, dtype, math), {1});  // more steps than stages
    Conv2d strided = nhwc({3, 72, 17, 15}, {144, 72, 1, 1}, dtype, math);
    strided.stride = {2, 2};
    strided.epilogue.activation = Activation::tanh;
    check_wgmma(device, strided, {1});
  }
  check_first(device, "gathered",
              {nhwc({1, 64, 16, 16}, {64, 64, 3, 3}, DType::f32, Math::split3),
               nhwc({1, 256, 14, 14}, {256, 256, 3, 3}, DType::f32, Math::split3)});
  check(device, nhwc({2, 64, 24, 24}, {128, 64, 3, 3}, DType::f32, Math::split6));
  check(device, nhwc({2, 35, 24, 24}, {45, 35, 3, 3}, DType::f16, Math::strict));
}

TEST_CASE("wgmma in nchw pads channels as it reorders, of whole vectors of pixels and of single ones") {
  if (!has_kernel("wgmma")) return;
  const Device device = open("cuda:0?kernel=wgmma");
  for (const auto& [dtype, math] :
       {std::pair{DType::f16, Math::strict}, {DType::bf16, Math::strict}, {DType::f32, Math::tf32}}) {
    for (const auto& [c, k] :
         {std::array<std::int64_t, 2>{3, 64}, {9, 45}, {64, 5}, {15, 7}, {35, 130}, {1, 33}, {34, 1}}) {
      for (const std::int64_t h : {1, 7, 16, 24}) {
        Conv2d conv = nhwc({3, c, h, h}, {k, c, 3, 3}, dtype, math);
        conv.layout = Layout::nchw;
        if (h == 24) conv.stride = {2, 2};
        if (h == 16) conv.epilogue.max_pool = {2, 2};
        check(device, conv);
      }
    }
  }
  Conv2d pooled = nhwc({2, 9, 18, 18}, {21, 9, 3, 3}, DType::f16, Math::strict);
  pooled.layout = Layout::nchw;
  pooled.epilogue.max_pool = {3, 3};
  check(device, pooled);
}

TEST_CASE("pointwise computes each of its tiles, widths of accesses and strides") {
  if (!has_kernel("pointwise")) return;
  const Device device = open("cuda:0?kernel=pointwise");
  for (const auto& [dtype, math] :
       {std::pair{DType::f16, Math::strict}, {DType::bf16, Math::strict}, {DType::f32, Math::tf32}}) {
    for (const std::int64_t k : {8, 12, 16, 24, 32, 36, 48, 62, 64}) {
      for (const std::int64_t c : {8, 12, 16, 34, 64, 72, 200}) {
        Conv2d conv = nhwc({3, c, 13, 11}, {k, c, 1, 1}, dtype, math);
        if (c == 16) conv.stride = {2, 2};
        if (c == 34) conv.epilogue.activation = Activation::tanh;
        check(device, conv);
      }
    }
    check(device, nhwc({3, 40, 160, 161}, {12, 40, 1, 1}, dtype, math));  // several tiles a warp
  }
}

/// Each tile, width of loads, strides, dilation, padding, windows of every size, and images narrower than a strip.
std::vector<Conv2d> few_outputs_problems(DType dtype, Math math) {
  std::vector<Conv2d> all;
  for (const std::int64_t k : {1, 2, 7, 13, 16}) all.push_back(nhwc({2, 72, 19, 37}, {k, 72, 1, 1}, dtype, math));
  for (const std::int64_t c : {1, 36, 34, 127, 300}) all.push_back(nhwc({3, c, 9, 14}, {5, c, 1, 1}, dtype, math));
  for (const std::int64_t k : {1, 3, 8}) all.push_back(nhwc({2, 64, 21, 70}, {k, 64, 3, 3}, dtype, math));
  for (const std::int64_t k : {1, 3, 4, 8}) all.push_back(nhwc({1, 40, 17, 33}, {k, 40, 5, 5}, dtype, math));
  for (const std::int64_t k : {1, 2, 3}) all.push_back(nhwc({1, 20, 40, 15}, {k, 20, 7, 7}, dtype, math));
  all.push_back(nhwc({2, 35, 8, 9}, {6, 35, 2, 2}, dtype, math));
  all.push_back(nhwc({2, 12, 18, 5}, {3, 12, 6, 1}, dtype, math));
  all.push_back(nhwc({2, 16, 5, 40}, {3, 16, 1, 9}, dtype, math));
  const auto with = [&](const Shape& weights, const Shape& stride, const Shape& padding, const Shape& dilation) {
    Conv2d conv = nhwc({2, weights[1], 18, 39}, weights, dtype, math);
    conv.stride = {stride[0], stride[1]};
    conv.padding = {padding[0], padding[1], padding[2], padding[3]};
    conv.dilation = {dilation[0], dilation[1]};
    conv.epilogue.activation = Activation::tanh;
    all.push_back(conv);
  };
  with({5, 64, 1, 1}, {2, 3}, {0, 0, 0, 0}, {1, 1});
  with({5, 24, 1, 1}, {1, 1}, {2, 1, 0, 3}, {1, 1});
  with({3, 33, 2, 5}, {2, 3}, {1, 2, 0, 3}, {1, 1});
  with({2, 64, 3, 3}, {3, 1}, {1, 1, 1, 1}, {1, 2});
  with({4, 32, 3, 3}, {1, 2}, {3, 2, 1, 2}, {3, 2});
  with({3, 48, 1, 3}, {2, 2}, {0, 1, 0, 1}, {1, 1});
  with({3, 48, 3, 3}, {1, 1}, {4, 1, 4, 1}, {11, 1});
  return all;
}

TEST_CASE("few_outputs computes each of its tiles, widths of loads, strips and shared channels") {
  if (!has_kernel("few_outputs")) return;
  const Device device = open("cuda:0?kernel=few_outputs");
  const cudaDeviceProp properties = device_properties();
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    for (const Conv2d& conv : few_outputs_problems(dtype, dtype == DType::f32 ? Math::tf32 : Math::strict)) {
      check(device, conv);
      const PlanCheck forced(device, conv);
      for (const int rows : {1, 3, 16}) {
        for (const int parts : {1, 2, 4}) {
          forced.run(*cuda::FewOutputs::make(problem_of(conv), properties, {.rows = rows, .parts = parts}));
        }
      }
    }
  }
}

/// 1x1 in NCHW: planes that each width of access divides, tiles that end in an image or in channels, deep sums.
std::vector<Conv2d> planes_problems(DType dtype, Math math) {
  std::vector<Conv2d> all{
      nhwc({2, 64, 8, 8}, {130, 64, 1, 1}, dtype, math),    nhwc({5, 13, 14, 14}, {19, 13, 1, 1}, dtype, math),
      nhwc({3, 300, 9, 10}, {70, 300, 1, 1}, dtype, math),  nhwc({3, 33, 7, 7}, {129, 33, 1, 1}, dtype, math),
      nhwc({1, 1000, 5, 3}, {12, 1000, 1, 1}, dtype, math), nhwc({7, 520, 4, 4}, {200, 520, 1, 1}, dtype, math),
      nhwc({3, 17, 2, 1}, {5, 17, 1, 1}, dtype, math)};
  for (const auto& [groups, c, k] :
       {std::array<std::int64_t, 3>{19, 4, 4}, {3, 4, 4}, {5, 13, 7}, {2, 70, 34}, {4, 8, 130}}) {
    all.push_back(nhwc({3, groups * c, 6, 7}, {groups * k, c, 1, 1}, dtype, math));
    all.back().groups = groups;
    if (groups == 3) all.back().stride = {2, 2};
  }
  for (Conv2d& conv : all) conv.layout = Layout::nchw;
  all.push_back(all[0]);
  all.back().stride = {2, 1};
  all.push_back(all[1]);
  all.back().stride = {2, 2};
  all[1].epilogue.activation = Activation::tanh;
  return all;
}

TEST_CASE("pointwise_planes computes each of its tiles, widths of accesses, split depths and bundles of groups") {
  if (!has_kernel("pointwise_planes")) return;
  const Device device = open("cuda:0?kernel=pointwise_planes");
  const cudaDeviceProp properties = device_properties();
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    for (const Conv2d& conv : planes_problems(dtype, dtype == DType::f32 ? Math::tf32 : Math::strict)) {
      check(device, conv);
      Conv2d without_bias = conv;
      without_bias.epilogue = {};
      check(device, without_bias);
      const PlanCheck forced(device, conv);
      const Conv2dProblem problem = problem_of(conv);
      for (const cuda::PlanesCandidate& tile : cuda::planes_candidates()) {
        for (const int splits : {1, 2, 8}) {
          if (splits > 1 && properties.major < 9) break;
          for (const int bundle : {1, 2, 5}) {
            if (bundle > std::max<std::int64_t>(1, problem.groups)) break;
            forced.run(*cuda::PointwisePlanes::make(problem, properties,
                                                    {.channels = tile.channels,
                                                     .pixels = tile.pixels,
                                                     .threads = tile.threads,
                                                     .splits = splits,
                                                     .bundle = bundle}));
          }
        }
      }
    }
  }
}

/// 1x1 in NCHW by wgmma: planes of whole 16, 8, 4 and 2 bytes, fewer pixels than a chunk, tiles that end in an image,
/// in channels and behind the last image, sums of one stage and of more stages than shared memory holds.
std::vector<Conv2d> wgmma_planes_problems(DType dtype) {
  std::vector<Conv2d> all{nhwc({2, 64, 8, 8}, {130, 64, 1, 1}, dtype, Math::strict),
                          nhwc({3, 1000, 12, 12}, {64, 1000, 1, 1}, dtype, Math::strict),
                          nhwc({5, 13, 14, 14}, {19, 13, 1, 1}, dtype, Math::strict),
                          nhwc({3, 300, 9, 10}, {70, 300, 1, 1}, dtype, Math::strict),
                          nhwc({1, 1000, 4, 3}, {12, 1000, 1, 1}, dtype, Math::strict),
                          nhwc({7, 520, 2, 4}, {200, 520, 1, 1}, dtype, Math::strict),
                          nhwc({33, 70, 2, 1}, {5, 70, 1, 1}, dtype, Math::strict),
                          nhwc({1, 72, 16, 17}, {129, 72, 1, 1}, dtype, Math::strict),
                          nhwc({3, 520, 7, 7}, {130, 520, 1, 1}, dtype, Math::strict),
                          nhwc({2, 70, 9, 15}, {65, 70, 1, 1}, dtype, Math::strict)};
  for (Conv2d& conv : all) conv.layout = Layout::nchw;
  all[1].epilogue.activation = Activation::tanh;
  all[3].epilogue.activation = Activation::none;
  return all;
}

TEST_CASE("pointwise_planes by wgmma computes each of its tiles and widths of accesses") {
  if (!has_kernel("wgmma")) return;
  const Device device = open("cuda:0?kernel=pointwise_planes");
  const cudaDeviceProp properties = device_properties();
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const Conv2d& conv : wgmma_planes_problems(dtype)) {
      const Conv2dProblem problem = problem_of(conv);
      REQUIRE(cuda::WgmmaPlanes::takes(problem, properties));
      const PlanCheck forced(device, conv);
      for (const int slices : {1, 2}) {
        for (const int chunks : {1, 2}) {
          const auto choice = cuda::WgmmaPlanes::choose(problem, properties, {.slices = slices, .chunks = chunks});
          forced.run(*cuda::WgmmaPlanes::make(problem, properties, choice));
        }
      }
    }
  }
  // A deep sum of few pixels is picked.
  Conv2d deep = nhwc({32, 2080, 8, 8}, {192, 2080, 1, 1}, DType::f16, Math::strict);
  deep.layout = Layout::nchw;
  const auto plan = cuda::PointwisePlanes::make(problem_of(deep), properties);
  CHECK(plan->description().tile.find("wgmma") != std::string::npos);
}

struct Groups {
  std::int64_t groups, c, k;  // channels of a group
};

/// Widths of networks, and odd ones: whole groups in 64 channels, parts of a group, and groups that lie across.
const std::vector<Groups> kGroups = {{32, 4, 4},  {16, 8, 8},    {8, 16, 16}, {4, 32, 32},  {2, 64, 64},
                                     {16, 3, 3},  {5, 24, 24},   {3, 40, 40}, {4, 48, 48},  {2, 56, 56},
                                     {2, 80, 80}, {2, 112, 112}, {2, 32, 64}, {2, 64, 128}, {4, 20, 80},
                                     {4, 68, 68}, {12, 6, 6},    {45, 8, 8},  {4, 2, 10},   {2, 128, 128}};

Conv2d grouped(const Groups& of, std::int64_t r, std::int64_t h, DType dtype, Math math) {
  Conv2d conv = nhwc({2, of.groups * of.c, h, h + 3}, {of.groups * of.k, of.c, r, r}, dtype, math);
  conv.groups = of.groups;
  return conv;
}

TEST_CASE("wgmma computes groups of any width") {
  if (!has_kernel("wgmma")) return;
  const Device device = open("cuda:0?kernel=wgmma");
  int turn = 0;
  for (const auto& [dtype, math] : {std::pair{DType::f16, Math::strict},
                                    {DType::bf16, Math::strict},
                                    {DType::f32, Math::tf32},
                                    {DType::f32, Math::split3},
                                    {DType::f32, Math::split6}}) {
    for (const Groups& of : kGroups) {
      Conv2d conv = grouped(of, turn % 4 == 3 ? 1 : 3, 13, dtype, math);
      if (turn % 5 == 1) conv.stride = {2, 2};
      if (turn % 7 == 2) conv.epilogue.max_pool = {2, 2};
      if (turn % 7 == 4) conv.dilation = {2, 1};
      ++turn;
      check(device, conv);
      PlanCheck(device, conv).run(*cuda::WgmmaWithReorders::make(problem_of(conv), device_properties()));
    }
  }
}

/// The kernel's plan of all groups as one; false if it refuses the layer of one group.
template <typename Kernel>
bool check_as_one_group(const Device& device, const Conv2d& conv) {
  const Conv2dProblem problem = problem_of(conv);
  const cudaDeviceProp properties = device_properties();
  if (!Kernel::refusal(cuda::as_one_group(problem), properties).empty()) return false;
  const auto plan = cuda::with_one_group(problem, "of a test", Kernel::make(cuda::as_one_group(problem), properties));
  CHECK(contains(plan->description().staging, "groups as one"));
  PlanCheck(device, conv).run(*plan);
  return true;
}

/// Whether the estimates of the device's kernel choose one group.
bool chooses_one_group(const Device& device, const Conv2d& conv) {
  return contains(device.plan(conv).explain(), std::to_string(conv.groups) + " groups as one");
}

TEST_CASE("kernels of one group compute several as one, with zeros among the weights") {
  if (!has_kernel("implicit_gemm")) return;
  const Device implicit = open("cuda:0?kernel=implicit_gemm"), few = open("cuda:0?kernel=few_channels_mma");
  std::optional<Device> wgmma;
  if (has_kernel("wgmma")) wgmma = open("cuda:0?kernel=wgmma");
  int turn = 0;
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    const Math math = dtype == DType::f32 ? Math::tf32 : Math::strict;
    int of_implicit = 0, of_wgmma = 0, of_few = 0;
    for (const Groups& of :
         {Groups{7, 3, 6}, {2, 4, 4}, {3, 2, 5}, {6, 1, 4}, {16, 1, 4}, {5, 8, 8}, {4, 9, 4}, {2, 2, 64}}) {
      Conv2d conv = grouped(of, turn % 4 == 3 ? 1 : 3, 13, dtype, math);
      if (turn % 2 == 1) conv.layout = Layout::nchw;
      if (turn % 5 == 1) conv.stride = {2, 2};
      if (turn % 7 == 4) conv.dilation = {2, 1};
      ++turn;
      of_implicit += check_as_one_group<cuda::WithReorders<cuda::ImplicitGemmMma>>(implicit, conv) ? 1 : 0;
      if (wgmma) of_wgmma += check_as_one_group<cuda::WgmmaWithReorders>(*wgmma, conv) ? 1 : 0;
      of_few += check_as_one_group<cuda::FewChannelsMmaKernel>(few, conv) ? 1 : 0;
    }
    CHECK(of_implicit >= 2);
    if (wgmma) CHECK(of_wgmma >= 2);
    CHECK(of_few >= 2);
  }
  Conv2d narrow = grouped({7, 3, 6}, 3, 28, DType::bf16, Math::strict);
  narrow.input[0] = 20;
  CHECK(chooses_one_group(implicit, narrow));
  CHECK_FALSE(
      chooses_one_group(implicit, grouped({64, 64, 64}, 3, 28, DType::bf16, Math::strict)));  // 300 MB of weights
  narrow = grouped({2, 3, 3}, 3, 128, DType::f16, Math::strict);
  narrow.layout = Layout::nchw;
  narrow.input[0] = 32;
  CHECK(chooses_one_group(few, narrow));
  narrow = grouped({32, 4, 4}, 3, 28, DType::bf16, Math::strict);
  narrow.layout = Layout::nchw;
  CHECK_FALSE(chooses_one_group(few, narrow));
  narrow = grouped({3, 20, 20}, 3, 160, DType::f16, Math::strict);
  narrow.layout = Layout::nchw;
  narrow.input[0] = 1;
  if (wgmma) CHECK(chooses_one_group(*wgmma, narrow));
}

/// All kinds of layers with groups, on images of one tile, of several and of many.
void check_groups(const Device& device, DType dtype, Math math, std::int64_t most_channels) {
  int turn = 0;
  for (const Groups& of : kGroups) {
    for (const std::int64_t h : {7, 13, 40}) {
      ++turn;
      if (of.c > most_channels) continue;
      Conv2d conv = grouped(of, turn % 4 == 3 ? 1 : 3, h, dtype, math);
      if (h == 7) conv.input[0] = 9;
      if (turn % 5 == 1) conv.stride = {2, 2};
      if (turn % 7 == 2) conv.epilogue.max_pool = {3, 3};
      if (turn % 7 == 4) conv.dilation = {2, 1};
      if (turn % 7 == 5) conv.dilation = {1, 2};
      if (turn % 6 == 1) conv.padding = {2, 0, 1, 3};
      if (turn % 6 == 2) conv.layout = Layout::nchw;
      if (turn % 3 == 1) conv.epilogue.bias = false, conv.epilogue.activation = Activation::tanh;
      check(device, conv);
    }
  }
}

TEST_CASE("a plan of groups runs after a smaller one of the same kernel was made") {
  for (const auto& [kernel, dtype] : {std::pair{"grouped", DType::f32}, {"grouped_mma", DType::bf16}}) {
    if (!has_kernel(kernel)) continue;
    const Device device = open(std::string("cuda:0?kernel=") + kernel);
    Conv2d large = grouped({42, 2, 2}, 3, 149, dtype, Math::strict);
    large.input[0] = 10;
    const Plan plan = device.plan(large);
    Bench bench(device, plan, make_operands(large));
    for (const std::int64_t h : {4, 8, 13, 40}) {
      Conv2d small = large;
      small.input = {1, 84, h, h};
      device.plan(small);
    }
    CHECK_NOTHROW(bench.run());
  }
}

TEST_CASE("grouped computes groups of any width, stride and layout") {
  if (!has_kernel("grouped")) return;
  // The weights of wider groups leave no shared memory for input.
  check_groups(open("cuda:0?kernel=grouped"), DType::f32, Math::strict, 64);
}

TEST_CASE("grouped_mma computes groups of any width, stride and layout") {
  if (!has_kernel("grouped_mma")) return;
  const Device device = open("cuda:0?kernel=grouped_mma");
  check_groups(device, DType::f16, Math::strict, 80);
  check_groups(device, DType::bf16, Math::strict, 80);
  check_groups(device, DType::f32, Math::tf32, 48);
  check(device, grouped({3, 50, 30}, 3, 20, DType::f16, Math::strict));
  check(device, grouped({2, 20, 7}, 5, 20, DType::bf16, Math::strict));
  check(device, grouped({7, 3, 3}, 3, 20, DType::f32, Math::tf32));
}

/// A layer's problem: c to k channels, r x r, n images of h x h.
Conv2dProblem layer(std::int64_t c, std::int64_t k, std::int64_t r, std::int64_t n, std::int64_t h) {
  return {.n = n, .c = c, .h = h, .w = h, .k = k, .r = r, .s = r, .ho = h - r + 1, .wo = h - r + 1};
}

template <typename Kernel>
std::vector<unsigned char> packed_bytes(const Kernel& plan, const Conv2dProblem& p) {
  std::vector<unsigned char> weights(static_cast<std::size_t>(p.k * p.group_c() * p.r * p.s) * size_of(p.dtype));
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<unsigned char>(i * 37 % 61);  // no NaN
  const OnDevice source(weights);
  const OnDevice packed(std::vector<unsigned char>(plan.packed_bytes(), 0xff));
  plan.pack(source.get(), dense_strides(p), packed.get(), nullptr);
  return packed.read();
}

constexpr char kOneGroupOfTest[] = "one group, of a test";
using ImplicitGemmOrOneGroup =
    cuda::Conv2dKernel<cuda::OrAsOneGroup<cuda::WithReorders<cuda::ImplicitGemmMma>, kOneGroupOfTest>>;

/// Plans of one layer on other batches and images: equal packings are equal bytes, and all of `sizes` share one.
template <typename Kernel>
void check_packings(const std::string& name, const Conv2dProblem& first, std::initializer_list<std::int64_t> images) {
  if (!has_kernel(name)) return;
  cudaDeviceProp device{};
  GABLE_CUDA_CHECK(cudaGetDeviceProperties(&device, 0));
  INFO(name);
  const Kernel plan(first, device);
  const std::vector<unsigned char> bytes = packed_bytes(plan, first);
  int shared = 0;
  for (const std::int64_t n : images) {
    for (const std::int64_t more : {0, 2, 16}) {
      Conv2dProblem other = first;
      other.n = n;
      other.h += more, other.w += more, other.ho += more, other.wo += more;
      const Kernel second(other, device);
      if (plan.packing() != second.packing()) continue;
      ++shared;
      CHECK(packed_bytes(second, other) == bytes);
    }
  }
  CHECK(shared > 1);
}

TEST_CASE("plans of equal packings pack equal bytes, whatever the batch and the image") {
  const Conv2dProblem dense = layer(32, 48, 3, 1, 20);
  check_packings<cuda::NaiveConv2d>("naive", dense, {1, 3});
  check_packings<cuda::ConstantConv2d>("constant", layer(8, 12, 3, 1, 20), {1, 3});
  check_packings<cuda::SharedConv2d>("shared", dense, {1, 3});
  check_packings<cuda::DoubleBufferConv2d>("double_buffer", dense, {1, 3});
  check_packings<cuda::RegisterTileConv2d>("register_tile", dense, {1, 8});
  check_packings<cuda::OneChannelConv2d>("one_channel", layer(1, 6, 5, 1, 24), {1, 8});
  check_packings<cuda::FewChannelsConv2d>("few_channels", layer(3, 16, 3, 1, 24), {1, 8});
  Conv2dProblem depthwise = layer(32, 32, 3, 1, 20);
  depthwise.groups = 32;
  check_packings<cuda::DepthwiseConv2d>("depthwise", depthwise, {1, 8});
  Conv2dProblem groups = dense;
  groups.groups = 4;
  check_packings<cuda::GroupedConv2d>("grouped", groups, {1, 8});
  for (const DType dtype : {DType::f16, DType::f32}) {
    groups.dtype = dtype;
    groups.math = dtype == DType::f32 ? Math::tf32 : Math::strict;
    check_packings<cuda::WgmmaConv2d>("wgmma", groups, {1, 8, 64});
    check_packings<cuda::GroupedMmaConv2d>("grouped_mma", groups, {1, 8, 64});
    Conv2dProblem tensor = dense;
    tensor.dtype = dtype;
    tensor.math = dtype == DType::f32 ? Math::tf32 : Math::strict;
    check_packings<cuda::ImplicitGemmConv2d>("implicit_gemm", tensor, {1, 8});
    check_packings<cuda::WgmmaConv2d>("wgmma", tensor, {1, 8, 64});
    Conv2dProblem few = layer(3, 32, 3, 1, 24);
    few.dtype = tensor.dtype;
    few.math = tensor.math;
    check_packings<cuda::FewChannelsMma>("few_channels_mma", few, {1, 8});
    Conv2dProblem narrow = layer(21, 42, 3, 8, 28);
    narrow.groups = 7;
    narrow.dtype = tensor.dtype;
    narrow.math = tensor.math;
    check_packings<ImplicitGemmOrOneGroup>("implicit_gemm", narrow, {1, 8});
  }
  for (const Math math : {Math::split3, Math::split6}) {
    Conv2dProblem parts = dense;
    parts.math = math;
    check_packings<cuda::WgmmaConv2d>("wgmma", parts, {1, 8, 64});
  }
}

/// Values of every exponent and sign, and the neighbourhood of where tanh's approximation changes.
std::vector<float> swept_values(std::size_t count) {
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) {
    const double place = static_cast<double>(i) / static_cast<double>(count);
    const double sign = i % 2 == 0 ? 1 : -1;
    values.push_back(static_cast<float>(sign * (i % 3 == 0   ? 0.05 + 1.5 * place
                                                : i % 3 == 1 ? 20 * place
                                                             : std::exp2(-120 + 125 * place))));
  }
  return values;
}

TEST_CASE("tanh errs by at most 3 * 2^-23 of its value in every f32 epilogue, with a margin to the public 4 * 2^-23") {
  if (is_missing("cuda")) return;
  constexpr std::int64_t kChannels = 8192, kRounds = 32;
  const std::vector<float> values = swept_values(static_cast<std::size_t>(kChannels * kRounds));
  for (const auto& [kernel, math] : {std::pair{"naive", Math::strict},
                                     {"register_tile", Math::strict},
                                     {"implicit_gemm", Math::tf32},
                                     {"wgmma", Math::tf32}}) {
    if (!has_kernel(kernel)) continue;
    const Device device = open(std::string("cuda:0?kernel=") + kernel);
    const Conv2d conv{.input = {1, 8, 1, 1},
                      .weights = {kChannels, 8, 1, 1},
                      .layout = Layout::nhwc,
                      .math = math,
                      .epilogue = {.bias = true, .activation = Activation::tanh}};
    const Plan plan = device.plan(conv);
    Operands operands = make_operands(conv);
    std::fill_n(operands.tensors[0].as<float>(), 8, 0.0f);
    double worst = 0;
    for (std::int64_t round = 0; round < kRounds; ++round) {
      const float* const inputs = values.data() + round * kChannels;  // y = tanh(0 + bias)
      std::copy_n(inputs, kChannels, operands.tensors[2].as<float>());
      Bench bench(device, plan, operands);
      bench.run();
      const Tensor y = bench.outcome().y;
      for (std::int64_t i = 0; i < kChannels; ++i) {
        const double expected = std::tanh(static_cast<double>(inputs[i]));
        const double error = expected == 0 ? std::abs(y.as<float>()[i]) : std::abs(y.as<float>()[i] / expected - 1);
        worst = std::isnan(error) ? 1e30 : std::max(worst, error);
      }
    }
    MESSAGE(std::string(kernel), ": tanh errs by ", worst * 0x1p23, " * 2^-23 at most");
    CHECK(worst <= 3 * 0x1p-23);
  }
}

}  // namespace
}  // namespace gable
