// See few_pixels.h. Weights lie as [output channel][input channel], padded with zeros to whole 16 bytes. A step of a
// warp: 32 x 16 bytes of weights and of each pixel, and 4 or 8 multiply-adds a lane for each pixel. Two or all four
// warps of a block share an output channel where rows are long and channels few.
#include "cuda/gemm/few_pixels.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cuda/common/coverage.h"
#include "cuda/common/overlapped_launch.cuh"
#include "cuda/common/packed_weights.h"
#include "cuda/common/vector_access.cuh"
#include "cuda/gemm/implicit.h"

namespace gable::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kMostPixels = 8;
constexpr int kVectorBytes = 16;

template <typename T>
struct FewPixelsArguments {
  int c, padded_c, k, pixels;
  int load_bytes;  // the widest access that divides a pixel's channels: 16, 8, 4 or 2
  int share_bits;  // 2^share_bits warps share an output channel
  Activation activation;
  const T *x, *packed;
  const float* bias;  // null: none
  T* y;
};

template <typename T>
constexpr int kElements = kVectorBytes / static_cast<int>(sizeof(T));

template <typename T>
union Vector {
  uint4 all;
  T elements[kElements<T>];
};

/// 16 bytes from `from` in accesses of `bytes`, with zeros past the first `valid` elements. Past L1, where lines may be
/// older than the kernel before.
template <int bytes, typename T>
__device__ __forceinline__ void load_pieces(const T* from, int valid, Vector<T>& to) {
  using Access = typename AccessOf<bytes>::Type;
  constexpr int kEach = bytes / static_cast<int>(sizeof(T));
  union {
    uint4 all;
    Access pieces[kVectorBytes / bytes];
  } v;
  v.all = make_uint4(0, 0, 0, 0);
#pragma unroll
  for (int i = 0; i < kVectorBytes / bytes; ++i) {
    if (i * kEach < valid) v.pieces[i] = __ldcg(reinterpret_cast<const Access*>(from) + i);
  }
  to.all = v.all;
}

template <typename T>
__device__ __forceinline__ void load_vector_of(const FewPixelsArguments<T>& a, const T* from, int valid,
                                               Vector<T>& to) {
  if (a.load_bytes == 16) {
    load_pieces<16>(from, valid, to);
  } else if (a.load_bytes == 8) {
    load_pieces<8>(from, valid, to);
  } else if (a.load_bytes == 4) {
    load_pieces<4>(from, valid, to);
  } else if constexpr (sizeof(T) == 2) {
    load_pieces<2>(from, valid, to);
  }
}

/// Steps whose loads are on their way together.
constexpr int steps_together(int pixels) { return pixels <= 2 ? 4 : pixels == 4 ? 2 : 1; }

/// Pixels past the last one are loaded as the last one and not stored.
template <typename T, int pixels>
__global__ void __launch_bounds__(kThreads) few_pixels_kernel(__grid_constant__ const FewPixelsArguments<T> a) {
  constexpr int kTogether = steps_together(pixels);
  __shared__ float shares[kWarps][pixels];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int sharing = 1 << a.share_bits, share = warp & (sharing - 1);
  const int channel = static_cast<int>(blockIdx.x) * (kWarps >> a.share_bits) + (warp >> a.share_bits);
  wait_for_previous_kernel();
  // Warps that share a channel have it or leave together.
  const int end = channel < a.k ? a.c : 0;
  const T* const weights = a.packed + static_cast<std::int64_t>(channel) * a.padded_c;
  float sums[pixels] = {};
  constexpr int kStep = kTogether * 32 * kElements<T>;
  for (int first = share * kStep + lane * kElements<T>; first < end; first += sharing * kStep) {
    Vector<T> w[kTogether], x[kTogether][pixels];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int at = first + i * 32 * kElements<T>;
      w[i].all = make_uint4(0, 0, 0, 0);
      if (at < a.c) w[i].all = __ldcg(reinterpret_cast<const uint4*>(weights + at));
#pragma unroll
      for (int p = 0; p < pixels; ++p) load_vector_of(a, a.x + min(p, a.pixels - 1) * a.c + at, a.c - at, x[i][p]);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
#pragma unroll
      for (int e = 0; e < kElements<T>; ++e) {
        const float weight = to_f32(w[i].elements[e]);
#pragma unroll
        for (int p = 0; p < pixels; ++p) sums[p] = fmaf(to_f32(x[i][p].elements[e]), weight, sums[p]);
      }
    }
  }
#pragma unroll
  for (int p = 0; p < pixels; ++p) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sums[p] += __shfl_xor_sync(0xffffffffu, sums[p], step);
  }
  if (sharing > 1) {
    if (lane == 0) {
#pragma unroll
      for (int p = 0; p < pixels; ++p) shares[warp][p] = sums[p];
    }
    __syncthreads();
    if (share != 0) return;
#pragma unroll
    for (int p = 0; p < pixels; ++p) {
      for (int i = 1; i < sharing; ++i) sums[p] += shares[warp + i][p];
    }
  }
  if (channel >= a.k) return;
  const float bias = a.bias != nullptr ? __ldg(a.bias + channel) : 0.0f;
#pragma unroll
  for (int p = 0; p < pixels; ++p) {
    if (lane == p && p < a.pixels) a.y[p * a.k + channel] = from_f32<T>(activate(sums[p] + bias, a.activation));
  }
}

/// Pixels that the kernel is compiled for.
int compiled_pixels(std::int64_t pixels) { return pixels <= 1 ? 1 : pixels <= 2 ? 2 : pixels <= 4 ? 4 : kMostPixels; }

template <typename T>
auto kernel_of(int pixels) -> void (*)(FewPixelsArguments<T>) {
  switch (pixels) {
    case 1:
      return few_pixels_kernel<T, 1>;
    case 2:
      return few_pixels_kernel<T, 2>;
    case 4:
      return few_pixels_kernel<T, 4>;
    default:
      return few_pixels_kernel<T, kMostPixels>;
  }
}

int element_bytes(const Conv2dProblem& p) { return static_cast<int>(size_of(p.dtype)); }
std::int64_t pixels_of(const Conv2dProblem& p) { return p.n * p.ho * p.wo; }
int load_bytes_of(const Conv2dProblem& p) {
  return static_cast<int>(std::gcd(p.c * element_bytes(p), std::int64_t{kVectorBytes}));
}

PackedOrder order_of(const Conv2dProblem& p) {
  PackedOrder order = packed_order(p, kVectorBytes / element_bytes(p), 1);
  order.depth_innermost = true;
  return order;
}

/// With 2^share_bits warps for a channel.
double seconds_of(const Conv2dProblem& p, int share_bits, const cudaDeviceProp& device) {
  // Fitted to 220 layers on an H200; on 110 others it errs by 23 % (root mean square), and the kernel of the least
  // estimate takes 1.03 of the fastest. All warps ask for the same few lines of pixels.
  constexpr double kLaunch = 0.81e-6, kStep = 0.32e-6, kPiece = 0.045e-6, kWave = 0.21e-6, kRequest = 0.3e-9;
  constexpr double kWeightBytes = 11e12, kPixelBytes = 5.8e12, kOverlap = 1.1;  // bytes a second
  constexpr double kShare = 0.1e-6, kOverlapOfShares = 0.85;  // to add up the warps' sums; by 20 layers
  // Cycles of a multiprocessor for a warp's load of less than 16 bytes a lane; by 46 layers.
  constexpr double kHertz = 1.755e9, kNarrowLoad = 15, kNarrowestLoad = 40;
  constexpr std::int64_t kLineBytes = 128;
  const int compiled = compiled_pixels(pixels_of(p));
  const std::int64_t row = p.c * element_bytes(p);
  const double pieces = compiled * kVectorBytes / static_cast<double>(load_bytes_of(p));
  const double requests = static_cast<double>(p.k * ceil_div(row, kLineBytes)) * pieces;
  const double crowding = kRequest * requests / static_cast<double>(ceil_div(pixels_of(p) * row, kLineBytes));
  const std::int64_t together = std::int64_t{steps_together(compiled)} * 32 * kVectorBytes << share_bits;
  const double latency = static_cast<double>(ceil_div(row, together)) * (kStep + kPiece * pieces);
  const double moving = static_cast<double>(p.k * row) * (1 / kWeightBytes + compiled / kPixelBytes);
  const auto waves = static_cast<double>(ceil_div(ceil_div(p.k, kWarps >> share_bits), device.multiProcessorCount));
  const double sum = std::pow(crowding, kOverlap) + std::pow(latency, kOverlap) + std::pow(moving, kOverlap);
  const int bytes = load_bytes_of(p);
  const double cycles = bytes == kVectorBytes ? 0 : bytes == 2 ? kNarrowestLoad : kNarrowLoad;
  const double loads = static_cast<double>(p.k * ceil_div(row, std::int64_t{32} * kVectorBytes)) * pieces;
  const double alone = std::pow(sum, 1 / kOverlap) + cycles * loads / device.multiProcessorCount / kHertz;
  return kLaunch + kWave * waves + (share_bits > 0 ? kShare + kOverlapOfShares * alone : alone);
}

/// How many warps share an output channel, by the least estimate. Each has a step at least: short rows were slower.
struct Shares {
  int bits = 0;
  double seconds = 0;
};

Shares choose_shares(const Conv2dProblem& p, const cudaDeviceProp& device) {
  Shares best{.seconds = seconds_of(p, 0, device)};
  const std::int64_t step = std::int64_t{steps_together(compiled_pixels(pixels_of(p)))} * 32 * kVectorBytes;
  for (int bits = 1; (1 << bits) <= kWarps && p.c * element_bytes(p) >= step << bits; ++bits) {
    const double seconds = seconds_of(p, bits, device);
    if (seconds < best.seconds) best = {bits, seconds};
  }
  return best;
}

class FewPixelsPlan final : public PackedOrderPlan {
 public:
  FewPixelsPlan(const Conv2dProblem& problem, const cudaDeviceProp& device)
      : PackedOrderPlan(problem, order_of(problem)),
        load_bytes_(load_bytes_of(problem)),
        share_bits_(choose_shares(problem, device).bits),
        overlaps_(device.major >= 9) {}

  Conv2dDescription description() const override {
    return {.kernel = "few_pixels",
            .tile = std::to_string(pixels_of(problem())) + " pixels x 1 channel " +
                    (share_bits_ == 0 ? "a warp" : "of " + std::to_string(1 << share_bits_) + " warps"),
            .staging = "from memory to registers, pixels in loads of " + std::to_string(load_bytes_) + " bytes",
            .fusion = "bias and activation on the sums in registers"};
  }
  void run(const void* x, const void* packed, const float* bias, void* y, void*, cudaStream_t stream) const override;

 private:
  int load_bytes_, share_bits_;
  bool overlaps_;
};

void FewPixelsPlan::run(const void* x, const void* packed, const float* bias, void* y, void*,
                        cudaStream_t stream) const {
  const Conv2dProblem& p = problem();
  const auto i = [](std::int64_t value) { return static_cast<int>(value); };
  const int compiled = compiled_pixels(pixels_of(p));
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(p.k, kWarps >> share_bits_))),
                          .threads = kThreads,
                          .overlaps = overlaps_};
  with_type(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    const FewPixelsArguments<T> a{.c = i(p.c),
                                  .padded_c = i(order().c),
                                  .k = i(p.k),
                                  .pixels = i(pixels_of(p)),
                                  .load_bytes = load_bytes_,
                                  .share_bits = share_bits_,
                                  .activation = p.activation,
                                  .x = static_cast<const T*>(x),
                                  .packed = static_cast<const T*>(packed),
                                  .bias = p.bias ? bias : nullptr,
                                  .y = static_cast<T*>(y)};
    cuda::launch(kernel_of<T>(compiled), shape, stream, a);
  });
  note_path(compiled == 1   ? Path::few_pixels_1
            : compiled == 2 ? Path::few_pixels_2
            : compiled == 4 ? Path::few_pixels_4
                            : Path::few_pixels_8);
  note_path(load_bytes_ == 16 ? Path::few_pixels_vectors : Path::few_pixels_pieces);
}

}  // namespace

std::string FewPixels::refusal(const Conv2dProblem& p, const cudaDeviceProp&) {
  if (pixels_of(p) > kMostPixels) {
    return std::to_string(pixels_of(p)) + " pixels; it takes at most " + std::to_string(kMostPixels);
  }
  if (p.groups != 1) return std::to_string(p.groups) + " groups; it takes one";
  if (p.r * p.s != 1) return "filter " + std::to_string(p.r) + "x" + std::to_string(p.s) + "; it takes 1x1";
  if (!p.nhwc && p.h * p.w != 1) return "layout nchw; it takes nhwc, or single pixels";
  if (p.ho != p.h || p.wo != p.w || p.pad_top != 0 || p.pad_left != 0) return "padding or strides; it takes none";
  if (!p.pool.none()) return "a max-pool; it has none";
  return implicit_refusal(p);
}

double FewPixels::seconds(const Conv2dProblem& p, const cudaDeviceProp& device) {
  return choose_shares(p, device).seconds;
}

std::unique_ptr<Conv2dPlan> FewPixels::make(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return std::make_unique<FewPixelsPlan>(problem, device);
}

}  // namespace gable::cuda
