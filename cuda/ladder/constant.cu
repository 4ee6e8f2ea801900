// See constant.h.
#include "cuda/ladder/constant.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "cuda/common/check.h"
#include "cuda/common/conv_dims.h"
#include "cuda/common/coverage.h"
#include "cuda/common/device_code.cuh"
#include "cuda/common/packed_weights.h"

namespace gable::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kChannels = 4;                   // output channels of a thread
constexpr std::size_t kBankBytes = 64 * 1024;  // all of CUDA's constant memory
constexpr int kMaxDevices = 64;

__constant__ uint4 bank[kBankBytes / sizeof(uint4)];

/// Keeps one run's weights in the bank until its kernel has finished.
struct BankLock {
  std::mutex mutex;
  cudaEvent_t last_use = nullptr;
};

BankLock& bank_lock(int device) {
  static std::array<BankLock, kMaxDevices> locks;
  return locks[static_cast<std::size_t>(device) % kMaxDevices];
}

struct Strides {
  int n, c, h, w;
};

struct Dims : ConvDims {
  explicit Dims(const ConvDims& conv) : ConvDims(conv) {}

  int padded_k, chunks;  // of a group: packed channels, and groups of kChannels
  FusedPool pool;
  bool bias;
  Activation activation;
  Strides x, y;
};

Dims dims_of(const Conv2dProblem& p, const PackedOrder& order) {
  Dims d(conv_dims(p));
  d.padded_k = static_cast<int>(order.k);
  d.chunks = static_cast<int>(order.k / kChannels);
  d.pool = p.pool;
  d.bias = p.bias;
  d.activation = p.activation;
  d.x = p.nhwc ? Strides{d.h * d.w * d.c, 1, d.w * d.c, d.c} : Strides{d.c * d.h * d.w, d.h * d.w, d.w, 1};
  d.y = p.nhwc ? Strides{d.out_h * d.out_w * d.k, 1, d.out_w * d.k, d.k}
               : Strides{d.k * d.out_h * d.out_w, d.out_h * d.out_w, d.out_w, 1};
  return d;
}

/// Sums of one convolution pixel; `first` is the chunk's first weight in the bank.
template <typename T>
__device__ void convolve(const Dims& d, const T* x, int row, int column, int first, float (&sums)[kChannels]) {
  const T* weights = reinterpret_cast<const T*>(bank);
  for (float& sum : sums) sum = 0.0f;
  for (int r = 0; r < d.r; ++r) {
    const int ih = row * d.stride_h - d.pad_top + r * d.dilation_h;
    if (static_cast<unsigned>(ih) >= static_cast<unsigned>(d.h)) continue;
    for (int s = 0; s < d.s; ++s) {
      const int iw = column * d.stride_w - d.pad_left + s * d.dilation_w;
      if (static_cast<unsigned>(iw) >= static_cast<unsigned>(d.w)) continue;
      const T* pixel = x + ih * d.x.h + iw * d.x.w;
      int at = first + (r * d.s + s) * d.group_c * d.padded_k;
      for (int c = 0; c < d.group_c; ++c, at += d.padded_k) {
        const float value = to_f32(pixel[c * d.x.c]);
#pragma unroll
        for (int j = 0; j < kChannels; ++j) sums[j] = fmaf(value, to_f32(weights[at + j]), sums[j]);
      }
    }
  }
}

/// Block row y: a chunk of output channels of a group; z: the image.
template <typename T>
__global__ void __launch_bounds__(kThreads) constant_kernel(Dims d, const T* x, const float* bias, T* y) {
  const int pixel = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (pixel >= d.out_h * d.out_w) return;
  const int group = static_cast<int>(blockIdx.y) / d.chunks, chunk = static_cast<int>(blockIdx.y) % d.chunks;
  const int row = pixel / d.out_w, column = pixel % d.out_w;
  const int first = group * d.r * d.s * d.group_c * d.padded_k + chunk * kChannels;
  for (int image = static_cast<int>(blockIdx.z); image < d.n; image += static_cast<int>(gridDim.z)) {
    const T* source = x + std::int64_t{image} * d.x.n + group * d.group_c * d.x.c;
    float best[kChannels], sums[kChannels];
    for (float& value : best) value = -INFINITY;
    for (int i = 0; i < d.pool.h; ++i) {
      for (int j = 0; j < d.pool.w; ++j) {
        convolve(d, source, row * static_cast<int>(d.pool.stride_h) + i, column * static_cast<int>(d.pool.stride_w) + j,
                 first, sums);
#pragma unroll
        for (int k = 0; k < kChannels; ++k) best[k] = max_or_nan(best[k], sums[k]);
      }
    }
#pragma unroll
    for (int k = 0; k < kChannels; ++k) {
      const int channel = group * d.group_k + chunk * kChannels + k;
      if (chunk * kChannels + k >= d.group_k) break;
      const float value = activate(d.bias ? best[k] + bias[channel] : best[k], d.activation);
      y[std::int64_t{image} * d.y.n + channel * d.y.c + row * d.y.h + column * d.y.w] = from_f32<T>(value);
    }
  }
}

constexpr std::int64_t kMaxElements = std::int64_t{1} << 31;

/// Fills the bank once the previous run has finished with it. A stream under capture can't wait for events outside its
/// graph.
template <typename Launch>
void with_bank(const void* packed, std::size_t bytes, cudaStream_t stream, Launch&& launch) {
  int device = 0;
  GABLE_CUDA_CHECK(cudaGetDevice(&device));
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  GABLE_CUDA_CHECK(cudaStreamIsCapturing(stream, &capture));
  const bool ordered = capture == cudaStreamCaptureStatusNone;
  BankLock& lock = bank_lock(device);
  const std::lock_guard guard(lock.mutex);
  if (ordered && lock.last_use == nullptr) {
    GABLE_CUDA_CHECK(cudaEventCreateWithFlags(&lock.last_use, cudaEventDisableTiming));
  } else if (ordered) {
    GABLE_CUDA_CHECK(cudaStreamWaitEvent(stream, lock.last_use, 0));
  }
  GABLE_CUDA_CHECK(cudaMemcpyToSymbolAsync(bank, packed, bytes, 0, cudaMemcpyDeviceToDevice, stream));
  launch();
  if (ordered) GABLE_CUDA_CHECK(cudaEventRecord(lock.last_use, stream));
}

class ConstantPlan final : public PackedOrderPlan {
 public:
  explicit ConstantPlan(const Conv2dProblem& problem);

  Conv2dDescription description() const override;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override;
};

ConstantPlan::ConstantPlan(const Conv2dProblem& problem)
    : PackedOrderPlan(problem, packed_order(problem, 1, kChannels)) {}

Conv2dDescription ConstantPlan::description() const {
  return {.kernel = "constant",
          .tile = "one thread a pixel of " + std::to_string(kChannels) + " output channels",
          .staging = std::string(problem().nhwc ? "nhwc" : "nchw") + " read from global memory as it is, " +
                     std::to_string(packed_bytes()) + " bytes of weights copied to constant memory",
          .fusion = "bias, activation and pool in the thread"};
}

void ConstantPlan::run(const void* x, const void* packed, const float* bias, void* y, void*,
                       cudaStream_t stream) const {
  constexpr std::int64_t kMaxImages = 65535;  // of a grid's z
  const Dims dims = dims_of(problem(), order());
  const dim3 grid(static_cast<unsigned>(ceil_div(problem().out_h() * problem().out_w(), kThreads)),
                  static_cast<unsigned>(problem().groups * dims.chunks),
                  static_cast<unsigned>(std::min(problem().n, kMaxImages)));
  with_bank(packed, packed_bytes(), stream, [&] {
    with_type(problem().dtype, [&](auto zero) {
      using T = decltype(zero);
      constant_kernel<T><<<grid, kThreads, 0, stream>>>(dims, static_cast<const T*>(x), bias, static_cast<T*>(y));
    });
    check_launch("constant");
    note_path(Path::constant);
  });
}

}  // namespace

std::string Constant::refusal(const Conv2dProblem& p, const cudaDeviceProp&) {
  if (p.math != Math::strict) return "its arithmetic is strict";
  const auto bytes = static_cast<std::size_t>(packed_order(p, 1, kChannels).elements()) * size_of(p.dtype);
  if (bytes > kBankBytes) {
    return "the weights take " + std::to_string(bytes) + " bytes; constant memory has " + std::to_string(kBankBytes);
  }
  if (p.c * p.h * p.w >= kMaxElements || p.k * p.ho * p.wo >= kMaxElements) {
    return "an image has 2^31 elements or more; its indices have 32 bits";
  }
  return "";
}

std::unique_ptr<Conv2dPlan> Constant::make(const Conv2dProblem& problem, const cudaDeviceProp&) {
  return std::make_unique<ConstantPlan>(problem);
}

}  // namespace gable::cuda
