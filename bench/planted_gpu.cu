// GPU programs with one planted bottleneck each, for planted.py; they know nothing of gable.
//
//   nvcc -O3 -arch=native -o planted_gpu planted_gpu.cu
//   planted_gpu NAME
//
// Each launches one kernel thirty times (`launches` two thousand times), 0.1 to 5 ms a launch on an H200.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CHECK(call)                                                                                   \
  do {                                                                                                \
    const cudaError_t status = (call);                                                                \
    if (status != cudaSuccess) {                                                                      \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(status)); \
      std::exit(1);                                                                                   \
    }                                                                                                 \
  } while (0)

constexpr int kCount = 1 << 26;  // floats of an array: 256 MiB
constexpr int kThreads = 256;
constexpr int kLaunches = 30;  // `gable measure` counts traffic in the first twenty, then work

__device__ int thread_index() { return blockIdx.x * blockDim.x + threadIdx.x; }

/// Neighbouring threads read and write elements that lie 128 bytes apart.
__global__ void uncoalesced(const float* x, float* y) {
  const int i = thread_index();
  const int at = (i % (kCount / 32)) * 32 + i / (kCount / 32);
  y[at] = x[at] + 1;
}

/// The 32 threads of a warp use one bank of shared memory.
__global__ void bank_conflicts(float* y) {
  __shared__ float tile[32 * 33];
  const int lane = threadIdx.x % 32;
  for (int i = threadIdx.x; i < 32 * 33; i += blockDim.x) tile[i] = i;
  __syncthreads();
  float sum = 0;
#pragma unroll 1
  for (int pass = 0; pass < 2000; ++pass) {
    sum += static_cast<volatile float*>(tile)[lane * 32];
    sum += static_cast<volatile float*>(tile)[lane * 32 + 1];
    sum += static_cast<volatile float*>(tile)[lane * 32 + 2];
    sum += static_cast<volatile float*>(tile)[lane * 32 + 3];
  }
  y[thread_index()] = sum;
}

/// More live numbers than 32 registers hold: they go to local memory and back.
__global__ void __launch_bounds__(1024, 2) spills(const float* x, float* y) {
  constexpr int kLive = 96;
  float live[kLive];
  const int i = thread_index();
#pragma unroll
  for (int k = 0; k < kLive; ++k) live[k] = x[(i + k * 1024) % kCount];
#pragma unroll 1
  for (int pass = 0; pass < 40; ++pass) {
#pragma unroll
    for (int k = 0; k < kLive; ++k) live[k] = live[k] * live[(k + 37) % kLive] + 1e-3F;
  }
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kLive; ++k) sum += live[k];
  y[i] = sum;
}

/// Independent chains of fused multiply-adds.
__device__ float chains(float start, int passes) {
  float s[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) s[k] = start + k;
#pragma unroll 1
  for (int pass = 0; pass < passes; ++pass) {
#pragma unroll
    for (int repeat = 0; repeat < 8; ++repeat) {
#pragma unroll
      for (int k = 0; k < 8; ++k) s[k] = s[k] * 0.999F + 1e-3F;
    }
  }
  return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

__global__ void compute(float* y) { y[thread_index()] = chains(threadIdx.x, 200); }

/// The same work in a grid that leaves most multiprocessors idle.
__global__ void few_blocks(float* y) { y[thread_index()] = chains(threadIdx.x, 2000); }

/// One thread of each warp works, the others wait for it.
__global__ void divergence(float* y) {
  if (threadIdx.x % 32 == 0) y[thread_index()] = chains(threadIdx.x, 200);
}

/// All threads add to one number, each by itself.
__global__ void atomics(float* sum, const float* x) { atomicAdd(sum, x[thread_index()]); }

__global__ void triad(float* a, const float* b, const float* c) {
  const int i = thread_index();
  a[i] = b[i] + 3 * c[i];
}

/// Each load's address comes from the load before; a warp for each multiprocessor's scheduler.
__global__ void chase(const unsigned* next, unsigned* end) {
  unsigned at = thread_index() * 4099U % kCount;
#pragma unroll 1
  for (int step = 0; step < 2000; ++step) at = next[at];
  end[thread_index()] = at;
}

__global__ void fill_chase(unsigned* next) {
  const unsigned i = thread_index();
  next[i] = (i * 1664525U + 1013904223U) % kCount;
}

__global__ void tiny(float* y) { y[threadIdx.x] += 1; }

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "";
  const auto is = [&](const char* one) { return std::strcmp(name, one) == 0; };
  float *a, *b, *c;
  for (float** array : {&a, &b, &c}) CHECK(cudaMalloc(array, sizeof(float) * kCount));
  for (float* array : {a, b, c}) CHECK(cudaMemset(array, 0, sizeof(float) * kCount));
  auto* next = reinterpret_cast<unsigned*>(b);
  const int all = kCount / kThreads;
  if (is("chase")) fill_chase<<<all, kThreads>>>(next);
  for (int launch = 0; launch < (is("launches") ? 2000 : kLaunches); ++launch) {
    if (is("uncoalesced")) {
      uncoalesced<<<all, kThreads>>>(b, a);
    } else if (is("bank_conflicts")) {
      bank_conflicts<<<132 * 8, kThreads>>>(a);
    } else if (is("spills")) {
      spills<<<1024, 1024>>>(b, a);
    } else if (is("few_blocks")) {
      few_blocks<<<16, kThreads>>>(a);
    } else if (is("launches")) {
      tiny<<<1, 32>>>(a);
    } else if (is("divergence")) {
      divergence<<<132 * 64, kThreads>>>(a);
    } else if (is("atomics")) {
      atomics<<<all / 16, kThreads>>>(a, b);
    } else if (is("triad")) {
      triad<<<all, kThreads>>>(a, b, c);
    } else if (is("compute")) {
      compute<<<132 * 64, kThreads>>>(a);
    } else if (is("chase")) {
      chase<<<132, 32>>>(next, reinterpret_cast<unsigned*>(a));
    } else {
      std::fputs(
          "planted_gpu uncoalesced|bank_conflicts|spills|few_blocks|launches|divergence|atomics|triad|compute|"
          "chase\n",
          stderr);
      return 2;
    }
    CHECK(cudaGetLastError());
  }
  CHECK(cudaDeviceSynchronize());
  for (float* array : {a, b, c}) CHECK(cudaFree(array));
  return 0;
}
