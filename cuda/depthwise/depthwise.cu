// The plan: strips where a kernel is compiled for the window, depthwise_any for the rest.
#include "cuda/depthwise/depthwise.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/swapped_axes.h"
#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/common/device_code.cuh"
#include "cuda/common/overlapped_launch.cuh"
#include "cuda/depthwise/any.h"
#include "cuda/depthwise/planes.h"
#include "cuda/depthwise/strips_cut.h"
#include "cuda/ops/with_reorders.h"

namespace gable::cuda {
namespace {

/// Packed weights are [tap][channel].
template <typename T>
__global__ void pack_depthwise(const T* weights, WeightStrides strides, T* packed, int channels, int kernel_w,
                               std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const std::int64_t channel = i % channels, tap = i / channels;
  packed[i] = weights[channel * strides.out + tap / kernel_w * strides.row + tap % kernel_w * strides.column];
}

std::string text(std::int64_t value) { return std::to_string(value); }

/// What the plans have in common: the weights.
class DepthwisePlan : public Conv2dPlan {
 public:
  DepthwisePlan(const Conv2dProblem& problem, bool overlaps) : problem_(problem), overlaps_(overlaps) {}

  Packing packing() const override { return packing_of(problem_, "depthwise", {}); }
  std::size_t packed_bytes() const override {
    return static_cast<std::size_t>(problem_.r * problem_.s * problem_.k) * size_of(problem_.dtype);
  }
  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const override {
    constexpr int threads = 256;
    const std::int64_t count = problem_.r * problem_.s * problem_.k;
    with_type(problem_.dtype, [&](auto zero) {
      using T = decltype(zero);
      pack_depthwise<<<static_cast<unsigned>((count + threads - 1) / threads), threads, 0, stream>>>(
          static_cast<const T*>(weights), strides, static_cast<T*>(packed), static_cast<int>(problem_.k),
          static_cast<int>(problem_.s), count);
    });
    check_launch("pack_depthwise");
  }

 protected:
  Conv2dProblem problem_;
  bool overlaps_;
};

class StripsPlan final : public DepthwisePlan {
 public:
  StripsPlan(const Conv2dProblem& problem, const DepthwiseStripsCut& cut, const cudaDeviceProp& device)
      : DepthwisePlan(problem, pays_to_overlap(cut.blocks(), cut.seconds, device)), cut_(cut) {
    GABLE_CUDA_CHECK(cudaFuncSetAttribute(cut.variant->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          cut.variant->shared_bytes));
  }

  Conv2dDescription description() const override {
    return {.kernel = "depthwise",
            .tile = "2 channels x " + text(cut_.variant->columns) + " columns a thread, strips of " +
                    text(cut_.strips.rows) + " rows",
            .staging = "input rows through a ring in shared memory, once for all outputs of the strip",
            .fusion = "bias and activation in registers"};
  }
  void run(const void* x, const void* packed, const float* bias, void* y, void*, cudaStream_t stream) const override {
    DepthwiseStrips d = cut_.strips;
    d.tensors = {x, packed, bias, y};
    const DepthwiseStripsVariant& v = *cut_.variant;
    launch(v.kernel, {dim3(cut_.blocks()), kDepthwiseThreads, v.shared_bytes, overlaps_}, stream, d);
    note_path(v.path);
  }

 private:
  DepthwiseStripsCut cut_;
};

class PlanesPlan final : public DepthwisePlan {
 public:
  PlanesPlan(const Conv2dProblem& problem, const DepthwisePlanesCut& cut, const cudaDeviceProp& device)
      : DepthwisePlan(problem, pays_to_overlap(cut.blocks(), cut.seconds, device)), cut_(cut) {}

  Conv2dDescription description() const override {
    const DepthwisePlanes& d = cut_.planes;
    return {.kernel = "depthwise",
            .tile = text(d.block_planes) + (d.block_planes == 1 ? " plane x " : " planes x ") + text(d.block_strips) +
                    (d.block_strips == 1 ? " strip of " : " strips of ") + text(d.rows) +
                    " rows a block, a column a thread",
            .staging = "runs of contiguous input through shared memory",
            .fusion = "bias and activation in registers"};
  }
  void run(const void* x, const void* packed, const float* bias, void* y, void*, cudaStream_t stream) const override {
    DepthwisePlanes d = cut_.planes;
    d.tensors = {x, packed, bias, y};
    launch(cut_.variant->kernel,
           {dim3(cut_.blocks()), kDepthwisePlanesThreads, static_cast<int>(cut_.shared_bytes), overlaps_}, stream, d);
    note_path(cut_.variant->path);
    note_path(d.block_planes > 1 ? Path::depthwise_planes_whole : Path::depthwise_planes_rows);
  }

 private:
  DepthwisePlanesCut cut_;
};

DepthwiseAnyPitches pitches_of(bool nhwc, std::int64_t channels, std::int64_t h, std::int64_t w, bool turned) {
  DepthwiseAnyPitches p{.image = channels * h * w,
                        .channel = nhwc ? 1 : h * w,
                        .row = nhwc ? w * channels : w,
                        .pixel = nhwc ? channels : 1};
  if (turned) std::swap(p.row, p.pixel);
  return p;
}

class AnyPlan final : public DepthwisePlan {
 public:
  AnyPlan(const Conv2dProblem& p, const cudaDeviceProp& device, const DepthwiseOverrides& choice);

  /// Estimated.
  double seconds() const { return seconds_; }

  Conv2dDescription description() const override {
    return {.kernel = "depthwise",
            .tile = text(variant_.lanes) + (variant_.lanes == 1 ? " channel x " : " channels x ") +
                    text(variant_.columns) + (any_.turned ? " rows" : " columns") + " a thread" +
                    (variant_.slides ? " that share inputs" : ""),
            .staging = "operands straight from global memory",
            .fusion = "bias and activation in registers"};
  }
  void run(const void* x, const void* packed, const float* bias, void* y, void*, cudaStream_t stream) const override {
    DepthwiseAny d = any_;
    d.tensors = {x, packed, bias, y};
    launch(variant_.kernel, {dim3(blocks()), kDepthwiseAnyThreads, 0, overlaps_}, stream, d);
    if (variant_.slides) {
      note_path(any_.turned ? Path::depthwise_any_turned_slides : Path::depthwise_any_slides);
    } else {
      note_path(any_.turned ? Path::depthwise_any_turned : Path::depthwise_any);
    }
    note_path(half_ ? Path::depthwise_any_half : Path::depthwise_any_whole);
    note_path(variant_.lanes == 4   ? Path::depthwise_any_fours
              : variant_.lanes == 2 ? Path::depthwise_any_pairs
                                    : Path::depthwise_any_elements);
  }

 private:
  unsigned blocks() const {
    return static_cast<unsigned>((any_.cut.threads + kDepthwiseAnyThreads - 1) / kDepthwiseAnyThreads);
  }
  double estimate(const cudaDeviceProp& device) const;

  DepthwiseAnyVariant variant_;
  DepthwiseAny any_{};
  bool half_;  // a thread has half as many columns
  double seconds_ = 0;
};

/// Between the columns of a thread: the dilation, so that they share inputs (phases beyond the image would have no
/// column); 1 in nhwc; in nchw so that neighbouring threads have neighbouring columns.
int step_of(const Conv2dProblem& p, const DepthwiseAnyVariant& v) {
  if (v.slides) return static_cast<int>(std::min(p.dilation_w, p.wo));
  return p.nhwc ? 1 : static_cast<int>((p.wo + v.columns - 1) / v.columns);
}

AnyPlan::AnyPlan(const Conv2dProblem& upright, const cudaDeviceProp& device, const DepthwiseOverrides& choice)
    : DepthwisePlan(upright, false), half_(choice.half) {
  const Conv2dProblem p = choice.turned ? with_axes_swapped(upright) : upright;
  variant_ = depthwise_any_variant(p.dtype, choice.lanes, p.stride_w == 1, choice.half);
  DepthwiseAny& d = any_;
  const auto narrow = [](std::int64_t value) { return static_cast<int>(value); };
  d.extents = {.k = narrow(p.k),
               .multiplier = narrow(p.k / p.c),
               .h = narrow(p.h),
               .w = narrow(p.w),
               .ho = narrow(p.ho),
               .wo = narrow(p.wo)};
  d.window = window_of(p);
  d.in = pitches_of(p.nhwc, p.c, upright.h, upright.w, choice.turned);
  d.out = pitches_of(p.nhwc, p.k, upright.ho, upright.wo, choice.turned);
  d.weight_row = choice.turned ? p.k : p.s * p.k;
  d.weight_tap = choice.turned ? p.r * p.k : p.k;
  d.cut.step_w = step_of(p, variant_);
  d.nhwc = p.nhwc;
  d.turned = choice.turned;
  d.activation = p.activation;
  d.cut.vectors = d.extents.k / variant_.lanes;
  const std::int64_t columns = (p.wo + d.cut.step_w - 1) / d.cut.step_w;
  d.cut.column_groups = static_cast<int>((columns + variant_.columns - 1) / variant_.columns);
  d.cut.threads = p.n * p.ho * d.cut.vectors * d.cut.column_groups * d.cut.step_w;
  seconds_ = estimate(device);
  overlaps_ = pays_to_overlap(blocks(), seconds_, device);
}

/// What a thread of depthwise_any loads and multiplies.
struct AnyWork {
  double chunks = 0;  // of up to four taps of a kernel row, whose loads are in flight together
  double inputs = 0, weights = 0, products = 0;
};

AnyWork work_of(const DepthwiseAnyVariant& v, const Window& window) {
  AnyWork work;
  for (int tap = 0; tap < window.kernel_w; tap += 4) {
    const int taps = std::min(4, window.kernel_w - tap);
    work.chunks += window.kernel_h;
    work.inputs += window.kernel_h * (v.slides ? v.columns + taps - 1 : v.columns * taps);
  }
  work.weights = window.kernel_h * window.kernel_w;
  work.products = work.weights * v.columns * v.lanes;
  return work;
}

/// Sectors of 32 bytes that a warp accesses, whose threads have neighbouring channels in nhwc, and pixels that are
/// `apart` in nchw.
double sectors_of(const DepthwiseAny& d, int lanes, int element, int apart) {
  constexpr double kThreads = 32, kSector = 32;
  if (!d.nhwc) return std::clamp(kThreads * element * apart / kSector, 1.0, kThreads);
  const double run = std::min<double>(kThreads, d.cut.vectors);
  return kThreads / run * std::max(1.0, run * lanes * element / kSector);
}

/// Blocks of a multiprocessor, by about the registers that sums and inputs take.
double residents_of(const DepthwiseAnyVariant& v) {
  const int inputs = v.slides ? v.columns + 3 : 4 * v.columns, registers = 40 + v.lanes * (v.columns + inputs);
  return std::clamp(65536 / (kDepthwiseAnyThreads * std::min(255, registers)), 1, 16);
}

/// Launch, then instructions, accesses and latency of the busiest multiprocessor beside the tensors' bytes. Fitted to
/// every variant of 239 layers of f16, bf16 and f32 on an H200: picks take 1.020 of the best one's time; fitted to half
/// of them, 1.025 and 1.028 on the other half.
double AnyPlan::estimate(const cudaDeviceProp& device) const {
  constexpr double kHertz = 1.755e9, kLaunch = 0.866e-6, kBytes = 7.4e12;
  constexpr double kBase = 86, kLoad = 6.57, kConversion = 0.89, kOutput = 0.39, kStore = 17.8, kChunk = 10.5;
  constexpr double kIssued = 2.21;                          // instructions a cycle
  constexpr double kAccess = 2, kSectors = 3.39;            // least sectors of an access; sectors a cycle
  constexpr double kUpright = 1.38;                         // of accesses whose neighbours go down a square's columns
  constexpr double kStart = 227, kLatency = 436;            // of a thread; of a chunk of taps
  constexpr double kLone = 3.5;                             // cycles from instruction to instruction of one warp
  constexpr double kOverlap = 2.03, kMemoryOverlap = 1.39;  // 1: one after the other
  const DepthwiseAny& d = any_;
  const DepthwiseAnyVariant& v = variant_;
  const int element = static_cast<int>(size_of(problem_.dtype));
  const AnyWork work = work_of(v, d.window);
  const double load = kLoad + (element == 2 ? kConversion * v.lanes : 0);
  const double issued = kBase + (work.inputs + work.weights) * load + work.products +
                        v.columns * (v.lanes * kOutput + kStore) + work.chunks * kChunk;
  const auto processors = static_cast<double>(device.multiProcessorCount);
  const double warps = std::ceil(static_cast<double>(d.cut.threads) / 32 / processors);
  const int in_apart = d.turned ? d.window.stride_h : v.slides ? v.columns : d.window.stride_w;
  const int out_apart = !d.turned && v.slides ? v.columns : 1;
  const auto access = [&](int apart) { return std::max(kAccess, sectors_of(d, v.lanes, element, apart)); };
  const double weight_sectors = d.nhwc ? std::min(32, d.cut.vectors) * v.lanes * element / 32.0 : 1;
  const bool upright = !d.turned && d.window.kernel_h > 1 && d.window.kernel_w > 1;
  const double sectors = (work.inputs * access(in_apart) + work.weights * std::max(kAccess, weight_sectors) +
                          v.columns * access(out_apart)) *
                         (upright ? kUpright : 1);
  const double waves = std::ceil(blocks() / processors / residents_of(v));
  const double latency = waves * (kStart + work.chunks * kLatency) + issued * kLone;
  const double cycles = std::pow(std::pow(warps * issued / kIssued, kOverlap) +
                                     std::pow(warps * sectors / kSectors, kOverlap) + std::pow(latency, kOverlap),
                                 1 / kOverlap);
  const double bytes = static_cast<double>(problem_.x_elements() + problem_.y_elements()) * element;
  return kLaunch + std::pow(std::pow(cycles / kHertz, kMemoryOverlap) + std::pow(bytes / kBytes, kMemoryOverlap),
                            1 / kMemoryOverlap);
}

/// Lanes, direction and columns of the least estimated time.
std::unique_ptr<AnyPlan> any_plan(const Conv2dProblem& p, const cudaDeviceProp& device) {
  std::unique_ptr<AnyPlan> best;
  for (const int lanes : {4, 2, 1}) {
    if (lanes > 1 && !(p.nhwc && p.c == p.k && p.c % lanes == 0)) continue;
    for (const bool turned : {false, true}) {
      for (const bool half : {false, true}) {
        auto plan = std::make_unique<AnyPlan>(p, device, DepthwiseOverrides{lanes, turned, half});
        if (best == nullptr || plan->seconds() < best->seconds()) best = std::move(plan);
      }
    }
  }
  return best;
}

/// Without a variant where no compiled window takes the problem.
DepthwiseStripsCut strips_of(const Conv2dProblem& p, const cudaDeviceProp& device) {
  return p.c == p.k ? best_strips_cut(p, device) : DepthwiseStripsCut{};
}

DepthwisePlanesCut planes_of(const Conv2dProblem& p, const cudaDeviceProp& device) {
  return p.c == p.k ? best_planes_cut(p, device) : DepthwisePlanesCut{};
}

/// Estimated, without reorders.
double seconds_in_layout(const Conv2dProblem& p, const cudaDeviceProp& device) {
  if (const DepthwiseStripsCut strips = strips_of(p, device); strips.variant != nullptr) return strips.seconds;
  if (const DepthwisePlanesCut planes = planes_of(p, device); planes.variant != nullptr) return planes.seconds;
  return any_plan(p, device)->seconds();
}

/// Estimated, with nchw reordered to nhwc and back: infinite where the layout's own kernel is compiled.
double seconds_with_reorders(const Conv2dProblem& p, const cudaDeviceProp& device) {
  if (p.nhwc || planes_of(p, device).variant != nullptr) return std::numeric_limits<double>::infinity();
  return seconds_in_layout(without_reorders(p), device) + reorder_seconds(p);
}

}  // namespace

std::string Depthwise::refusal(const Conv2dProblem& p, const cudaDeviceProp&) {
  if (p.groups == 1 || p.c != p.groups) {
    return std::to_string(p.groups) + (p.groups == 1 ? " group of " : " groups of ") + std::to_string(p.c / p.groups) +
           " input channels; it takes several groups of one each";
  }
  if (!p.pool.none()) return "a max-pool; it fuses none";
  constexpr std::int64_t most = std::numeric_limits<int>::max() / 4;
  if (std::max({p.c, p.k, p.h, p.w, p.ho, p.wo, p.r, p.s}) > most) {
    return "a dimension of more than " + std::to_string(most);
  }
  if (p.y_elements() / kDepthwiseAnyThreads > most) return "more than " + std::to_string(most) + " blocks";
  return "";
}

double Depthwise::seconds(const Conv2dProblem& p, const cudaDeviceProp& device) {
  return std::min(seconds_in_layout(p, device), seconds_with_reorders(p, device));
}

std::unique_ptr<Conv2dPlan> Depthwise::make(const Conv2dProblem& p, const cudaDeviceProp& device) {
  if (seconds_with_reorders(p, device) < seconds_in_layout(p, device))
    return with_reorders(p, make(without_reorders(p), device));
  if (const DepthwiseStripsCut strips = strips_of(p, device); strips.variant != nullptr)
    return std::make_unique<StripsPlan>(p, strips, device);
  if (const DepthwisePlanesCut planes = planes_of(p, device); planes.variant != nullptr)
    return std::make_unique<PlanesPlan>(p, planes, device);
  return any_plan(p, device);
}

std::unique_ptr<Conv2dPlan> Depthwise::make(const Conv2dProblem& p, const cudaDeviceProp& device,
                                            const DepthwiseOverrides& choice) {
  return std::make_unique<AnyPlan>(p, device, choice);
}

}  // namespace gable::cuda
