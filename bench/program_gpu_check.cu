// Kernels of known W and Q for program_gpu_check.py: a program that knows nothing of gable.
//
//   nvcc -O3 -arch=native -o program_gpu_check program_gpu_check.cu -lcublas
//   program_gpu_check saxpy|transpose|reduction|daxpy|fill|sgemm|hgemm|streams|graph|degrees|many...
//
// For each name it prints "name seconds-per-call" by CUDA events around 50 calls after 10 for warming up,
// "name.single seconds" by events around each call, and "name.check value".
#include <cublas_v2.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                                    \
  do {                                                                                 \
    const auto status = (call);                                                        \
    if (status != decltype(status)(0)) {                                               \
      std::fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, int(status)); \
      std::exit(1);                                                                    \
    }                                                                                  \
  } while (0)

constexpr int kN = 1 << 26;   // elements of a vector: 256 MiB
constexpr int kSide = 8192;   // of a square matrix
constexpr int kOrder = 4096;  // of a matrix product
constexpr int kTile = 32;

__global__ void saxpy(int n, float a, const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

__global__ void daxpy(int n, double a, const double* x, double* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

__global__ void fill(float* x, float value) { x[blockIdx.x * blockDim.x + threadIdx.x] = value; }

__global__ void transpose(const float* in, float* out, int side) {
  __shared__ float tile[kTile][kTile + 1];
  const int x = blockIdx.x * kTile + threadIdx.x, y = blockIdx.y * kTile + threadIdx.y;
  for (int j = 0; j < kTile; j += 8) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * side + x];
  __syncthreads();
  const int tx = blockIdx.y * kTile + threadIdx.x, ty = blockIdx.x * kTile + threadIdx.y;
  for (int j = 0; j < kTile; j += 8) out[(ty + j) * side + tx] = tile[threadIdx.x][threadIdx.y + j];
}

__global__ void reduction(int n, const float* x, float* sum) {
  float part = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) part += x[i];
  for (int step = 16; step > 0; step /= 2) part += __shfl_down_sync(~0u, part, step);
  if (threadIdx.x % 32 == 0) atomicAdd(sum, part);
}

struct Data {
  float *x, *y, *sum;
  cublasHandle_t blas;
  cudaStream_t stream, second;
  cudaGraphExec_t graph = nullptr, steps = nullptr;
};

template <int>
__global__ void tagged(float* x) {
  x[blockIdx.x * blockDim.x + threadIdx.x] += 1;
}

/// 2 FLOP for each element and degree.
__global__ void polynomial(const float* x, float* y, int degree) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < degree; ++k) sum = sum * x[i] + 1.f;
  y[i] = sum;
}

void run_saxpy(Data& d) { saxpy<<<kN / 256, 256, 0, d.stream>>>(kN, 2.f, d.x, d.y); }
void run_daxpy(Data& d) {
  daxpy<<<kN / 512, 256, 0, d.stream>>>(kN / 2, 2., reinterpret_cast<double*>(d.x), reinterpret_cast<double*>(d.y));
}
void run_fill(Data& d) { fill<<<kN / 256, 256, 0, d.stream>>>(d.y, 1.f); }
void run_transpose(Data& d) {
  transpose<<<dim3(kSide / kTile, kSide / kTile), dim3(kTile, 8), 0, d.stream>>>(d.x, d.y, kSide);
}
void run_reduction(Data& d) { reduction<<<1056, 256, 0, d.stream>>>(kN, d.x, d.sum); }

void run_sgemm(Data& d) {
  const float one = 1, zero = 0;
  CHECK(cublasSgemm(d.blas, CUBLAS_OP_N, CUBLAS_OP_N, kOrder, kOrder, kOrder, &one, d.x, kOrder, d.x, kOrder, &zero,
                    d.y, kOrder));
}

void run_hgemm(Data& d) {
  const __half one = __float2half(1.f), zero = __float2half(0.f);
  const auto* x = reinterpret_cast<const __half*>(d.x);
  CHECK(cublasHgemm(d.blas, CUBLAS_OP_N, CUBLAS_OP_N, kOrder, kOrder, kOrder, &one, x, kOrder, x, kOrder, &zero,
                    reinterpret_cast<__half*>(d.y), kOrder));
}

void run_streams(Data& d) {
  saxpy<<<kN / 512, 256, 0, d.stream>>>(kN / 2, 2.f, d.x, d.y);
  saxpy<<<kN / 1024, 256, 0, d.second>>>(kN / 4, 2.f, d.x + kN / 2, d.y + kN / 2);
  CHECK(cudaStreamSynchronize(d.second));
}

void run_graph(Data& d) {
  if (d.graph == nullptr) {
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(d.stream, cudaStreamCaptureModeGlobal));
    run_transpose(d);
    run_reduction(d);
    run_saxpy(d);
    tagged<3><<<kN / 256, 256, 0, d.stream>>>(d.y);
    CHECK(cudaStreamEndCapture(d.stream, &graph));
    CHECK(cudaGraphInstantiate(&d.graph, graph, 0));
  }
  CHECK(cudaGraphLaunch(d.graph, d.stream));
}

void run_tagged(Data& d) { tagged<3><<<kN / 256, 256, 0, d.stream>>>(d.y); }

/// One grid, three amounts of work, one of them twice.
void run_degrees(Data& d) {
  for (const int degree : {64, 256, 64, 1024}) polynomial<<<kN / 512, 256, 0, d.stream>>>(d.x, d.y + kN / 2, degree);
}

/// A graph that adds 1 to y, with no other kernel.
void run_steps(Data& d) {
  if (d.steps == nullptr) {
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(d.stream, cudaStreamCaptureModeGlobal));
    run_tagged(d);
    CHECK(cudaStreamEndCapture(d.stream, &graph));
    CHECK(cudaGraphInstantiate(&d.steps, graph, 0));
    CHECK(cudaGraphDestroy(graph));
  }
  CHECK(cudaGraphLaunch(d.steps, d.stream));
}

/// Launches of many different kernels and grids, some of them a thousand times.
void run_many(Data& d) {
  for (int i = 1; i <= 40; ++i) {
    tagged<0><<<i, 128, 0, d.stream>>>(d.y);
    tagged<1><<<8, 64, 0, d.stream>>>(d.y);
    tagged<2><<<i, 64, 0, d.stream>>>(d.y);
  }
}

struct Work {
  const char* name;
  void (*run)(Data&);
};

constexpr Work kWork[] = {{"saxpy", run_saxpy},         {"daxpy", run_daxpy},         {"fill", run_fill},
                          {"transpose", run_transpose}, {"reduction", run_reduction}, {"sgemm", run_sgemm},
                          {"hgemm", run_hgemm},         {"streams", run_streams},     {"graph", run_graph},
                          {"tagged", run_tagged},       {"steps", run_steps},         {"many", run_many},
                          {"degrees", run_degrees}};

void time(const Work& work, Data& d) {
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  for (int i = 0; i < 10; ++i) work.run(d);
  CHECK(cudaEventRecord(begin, d.stream));
  for (int i = 0; i < 50; ++i) work.run(d);
  CHECK(cudaEventRecord(end, d.stream));
  CHECK(cudaEventSynchronize(end));
  float milliseconds = 0;
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
  std::printf("%s %.9g\n", work.name, double(milliseconds) / 50e3);
  // Calls apart, each between two events.
  std::vector<float> single(20);
  for (float& call : single) {
    CHECK(cudaEventRecord(begin, d.stream));
    work.run(d);
    CHECK(cudaEventRecord(end, d.stream));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&call, begin, end));
  }
  std::sort(single.begin(), single.end());
  std::printf("%s.single %.9g\n", work.name, double(single[10]) / 1e3);
  // What it computed: nobody who listens may change it.
  float value = 0;
  CHECK(cudaMemcpy(&value, d.y + 12345, sizeof value, cudaMemcpyDeviceToHost));
  std::printf("%s.check %.9g\n", work.name, double(value));
}

int main(int argc, char** argv) {
  Data d{};
  CHECK(cudaMalloc(&d.x, sizeof(float) * kN));
  CHECK(cudaMalloc(&d.y, sizeof(float) * kN));
  CHECK(cudaMalloc(&d.sum, sizeof(float)));
  fill<<<kN / 1024, 1024>>>(d.x, 1.f);
  fill<<<kN / 1024, 1024>>>(d.y, 0.f);
  CHECK(cudaStreamCreate(&d.stream));
  CHECK(cudaStreamCreate(&d.second));
  CHECK(cublasCreate(&d.blas));
  CHECK(cublasSetStream(d.blas, d.stream));
  for (int i = 1; i < argc; ++i) {
    bool found = false;
    for (const Work& work : kWork) {
      if (std::strcmp(argv[i], work.name) != 0) continue;
      time(work, d);
      found = true;
    }
    if (!found && std::strcmp(argv[i], "crash") == 0) std::abort();
    if (!found) std::fprintf(stderr, "no work is called '%s'\n", argv[i]);
  }
  CHECK(cudaDeviceSynchronize());
  return 0;
}
