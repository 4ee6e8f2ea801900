// Kernels of known W and Q that run in CUDA graphs only, for program_gpu_check.py: a program that knows nothing of
// gable.
//
//   nvcc -O3 -arch=native -o program_graphs program_graphs.cu -lcublas
//   program_graphs all|blas|allocates|updated [launches]
//
// It prints seconds per launch by CUDA events, and "name.check value" of what it computed.
#include <cublas_v2.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CHECK(call)                                                                     \
  do {                                                                                  \
    const auto status_ = (call);                                                        \
    if (status_ != decltype(status_)(0)) {                                              \
      std::fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, int(status_)); \
      std::exit(1);                                                                     \
    }                                                                                   \
  } while (0)

constexpr int kN = 1 << 26;  // elements of a vector: 256 MiB
constexpr size_t kBytes = sizeof(float) * kN;

__device__ int place() { return blockIdx.x * blockDim.x + threadIdx.x; }

/// 2 FLOP for each element and round.
__global__ void fmas(float* y, int rounds) {
  float value = y[place()];
  for (int k = 0; k < rounds; ++k) value = value * 0.999f + 0.25f;
  y[place()] = value;
}
__global__ void axpy(float a, const float* x, float* y) { y[place()] = a * x[place()] + y[place()]; }
__global__ void copy(const float4* x, float4* y) { y[place()] = x[place()]; }
__global__ void plus_one(float* y) { y[place()] += 1; }
__global__ void __cluster_dims__(2, 1, 1) in_pairs(float* y) { y[place()] += 2; }

/// With shared memory that its launch asks for.
__global__ void dynamic(float* y) {
  extern __shared__ float values[];
  values[threadIdx.x] = y[place()];
  __syncthreads();
  y[place()] = values[blockDim.x - 1 - threadIdx.x] + 1;
}

int hosts = 0;
void on_host(void*) { ++hosts; }

struct Data {
  float *x, *y, *z, *sum;
  cudaStream_t stream, second;
  cudaEvent_t fork, join;
  cublasHandle_t blas;
};

/// Every kind of node that can be run by itself, on two streams.
void capture_all(Data& d) {
  CHECK(cudaMemsetAsync(d.x, 0, kBytes, d.stream));
  fmas<<<kN / 256, 256, 0, d.stream>>>(d.x, 512);
  axpy<<<kN / 256, 256, 0, d.stream>>>(2.f, d.x, d.y);
  CHECK(cudaEventRecord(d.fork, d.stream));
  CHECK(cudaStreamWaitEvent(d.second, d.fork, 0));
  plus_one<<<kN / 256, 256, 0, d.stream>>>(d.y);
  copy<<<kN / 1024, 256, 0, d.second>>>(reinterpret_cast<const float4*>(d.x), reinterpret_cast<float4*>(d.z));
  CHECK(cudaEventRecord(d.join, d.second));
  CHECK(cudaStreamWaitEvent(d.stream, d.join, 0));
  CHECK(cudaLaunchHostFunc(d.stream, on_host, nullptr));
  in_pairs<<<kN / 512, 512, 0, d.stream>>>(d.z);
  dynamic<<<kN / 256, 256, 90000, d.stream>>>(d.z);
  CHECK(cudaMemcpyAsync(d.z, d.y, kBytes / 2, cudaMemcpyDeviceToDevice, d.stream));
  CHECK(cudaMemcpy2DAsync(d.z + kN / 2, 8192, d.x, 4096, 4096, 1024, cudaMemcpyDeviceToDevice, d.stream));
  plus_one<<<1, 64, 0, d.stream>>>(d.sum);
}

void capture_blas(Data& d) {
  const float one = 1, zero = 0;
  CHECK(cublasSgemm(d.blas, CUBLAS_OP_N, CUBLAS_OP_N, 4096, 2048, 1024, &one, d.x, 4096, d.y, 1024, &zero, d.z, 4096));
  CHECK(cublasGemmEx(d.blas, CUBLAS_OP_N, CUBLAS_OP_N, 4096, 4096, 2048, &one, d.x, CUDA_R_16BF, 4096, d.y, CUDA_R_16BF,
                     2048, &zero, d.z, CUDA_R_16BF, 4096, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  plus_one<<<1, 64, 0, d.stream>>>(d.sum);
}

/// Such a graph can't be run node by node.
void capture_allocation(Data& d) {
  float* more;
  CHECK(cudaMallocAsync(&more, 1 << 20, d.stream));
  plus_one<<<1, 64, 0, d.stream>>>(more);
  CHECK(cudaFreeAsync(more, d.stream));
  plus_one<<<1, 64, 0, d.stream>>>(d.sum);
}

cudaGraph_t captured(Data& d, const char* what, bool second_half) {
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(d.stream, cudaStreamCaptureModeGlobal));
  if (!std::strcmp(what, "all")) {
    capture_all(d);
  } else if (!std::strcmp(what, "blas")) {
    capture_blas(d);
  } else if (!std::strcmp(what, "allocates")) {
    capture_allocation(d);
  } else {  // updated
    plus_one<<<1, 64, 0, d.stream>>>(d.sum);
    if (second_half) {
      axpy<<<kN / 512, 512, 0, d.stream>>>(0.5f, d.x, d.y);
    } else {
      plus_one<<<kN / 256, 256, 0, d.stream>>>(d.y);
    }
  }
  CHECK(cudaStreamEndCapture(d.stream, &graph));
  return graph;
}

Data make_data() {
  Data d{};
  for (float** vector : {&d.x, &d.y, &d.z}) {
    CHECK(cudaMalloc(vector, kBytes));
    CHECK(cudaMemset(*vector, 0, kBytes));
  }
  CHECK(cudaMalloc(&d.sum, 4096));
  CHECK(cudaMemset(d.sum, 0, 4096));
  CHECK(cudaStreamCreate(&d.stream));
  CHECK(cudaStreamCreate(&d.second));
  CHECK(cudaEventCreateWithFlags(&d.fork, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&d.join, cudaEventDisableTiming));
  CHECK(cudaFuncSetAttribute(dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000));
  CHECK(cublasCreate(&d.blas));
  CHECK(cublasSetStream(d.blas, d.stream));
  void* space;  // so that a capture allocates nothing
  CHECK(cudaMalloc(&space, 64 << 20));
  CHECK(cublasSetWorkspace(d.blas, space, 64 << 20));
  return d;
}

/// A graph with the given one as its child.
cudaGraph_t as_child(cudaGraph_t graph) {
  cudaGraph_t parent;
  cudaGraphNode_t node;
  CHECK(cudaGraphCreate(&parent, 0));
  CHECK(cudaGraphAddChildGraphNode(&node, parent, nullptr, 0, graph));
  CHECK(cudaGraphDestroy(graph));
  return parent;
}

cudaGraphExec_t instantiated(Data& d, const char* what) {
  cudaGraph_t graph = captured(d, what, false);
  if (!std::strcmp(what, "all")) graph = as_child(graph);
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphDestroy(graph));
  return exec;
}

void update(Data& d, const char* what, cudaGraphExec_t exec) {
  const cudaGraph_t graph = captured(d, what, true);
  cudaGraphExecUpdateResultInfo result;
  CHECK(cudaGraphExecUpdate(exec, graph, &result));
  CHECK(cudaGraphDestroy(graph));
}

/// Seconds per launch.
double launch(Data& d, const char* what, cudaGraphExec_t exec, int launches) {
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  CHECK(cudaEventRecord(begin, d.stream));
  for (int i = 0; i < launches; ++i) {
    if (!std::strcmp(what, "updated") && i == launches / 2) update(d, what, exec);
    const cudaStream_t stream = i % 2 != 0 ? d.stream : d.second;
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
  }
  CHECK(cudaEventRecord(end, d.stream));
  CHECK(cudaDeviceSynchronize());
  float milliseconds = 0;
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
  return double(milliseconds) * 1e-3 / launches;
}

/// Nobody who listens may change this.
void print_results(const Data& d) {
  const int places[] = {0, 12345, kN / 2 - 1, kN / 2 + 100, kN / 2 + 5000, kN - 1};
  const float* vectors[] = {d.x, d.y, d.z};
  float value = 0;
  for (int v = 0; v < 3; ++v) {
    for (int i = 0; i < 6; ++i) {
      CHECK(cudaMemcpy(&value, vectors[v] + places[i], sizeof value, cudaMemcpyDeviceToHost));
      std::printf("%c%d.check %.9g\n", "xyz"[v], i, double(value));
    }
  }
  CHECK(cudaMemcpy(&value, d.sum, sizeof value, cudaMemcpyDeviceToHost));
  std::printf("sum.check %g\nhosts.check %d\n", double(value), hosts);
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "all";
  const int launches = argc > 2 ? std::atoi(argv[2]) : 20;
  Data d = make_data();
  const cudaGraphExec_t exec = instantiated(d, what);
  std::printf("%s %.9g\n", what, launch(d, what, exec, launches));
  print_results(d);
  CHECK(cudaGraphExecDestroy(exec));
  return 0;
}
