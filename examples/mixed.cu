// A program of its own with an OpenMP phase and CUDA kernels, for `gable roofline -- ./mixed`: one page has both.
//
//   nvcc -O3 -arch=native -Xcompiler "-O3 -march=native -fopenmp" -I api/include -o mixed examples/mixed.cu
//   gable roofline --out report -- ./mixed
//
// A heat equation: the CPU makes the first steps, the GPU the others, and then a polynomial of every point. Programs
// that use CUDA can't run under valgrind, so the CPU's region says its work; where the CPU has a PMU, that is counted.
#include <cuda_runtime.h>
#include <gable/region.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace {

constexpr int kSide = 256;  // points of an edge: 2 arrays of 128 MiB
constexpr long kPlane = long(kSide) * kSide, kPoints = kPlane * kSide;
constexpr long kInner = long(kSide - 2) * (kSide - 2) * (kSide - 2);
constexpr int kSteps = 20, kDegree = 256;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "mixed: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

__host__ __device__ double next(const double* a, long i) {
  return 0.4 * a[i] + 0.1 * (a[i - 1] + a[i + 1] + a[i - kSide] + a[i + kSide] + a[i - kPlane] + a[i + kPlane]);
}

void step_on_cpu(const double* from, double* to) {
  GABLE_REGION("stencil", 8.0 * kInner, 24.0 * kPoints);  // reads `from` once, `to` before it is written
#pragma omp parallel for
  for (int z = 1; z < kSide - 1; ++z)
    for (int y = 1; y < kSide - 1; ++y)
      for (int x = 1; x < kSide - 1; ++x) {
        const long i = z * kPlane + long(y) * kSide + x;
        to[i] = next(from, i);
      }
}

__global__ void step(const double* from, double* to) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z + 1;
  if (x < 1 || y < 1 || x > kSide - 2 || y > kSide - 2) return;
  const long i = z * kPlane + long(y) * kSide + x;
  to[i] = next(from, i);
}

__global__ void polynomial(double* values) {
  const long i = long(blockIdx.x) * blockDim.x + threadIdx.x;
  const double x = 0.5 * values[i];
  double sum = 1;
  for (int k = 0; k < kDegree; ++k) sum = sum * x + 0.5;  // stays between 0 and 1
  values[i] = sum;
}

double* on_cpu() {
  auto* values = static_cast<double*>(std::malloc(kPoints * sizeof(double)));
  if (values == nullptr) std::exit(1);
#pragma omp parallel for
  for (long i = 0; i < kPoints; ++i) values[i] = i / kPlane == kSide / 2 ? 1 : 0;
  return values;
}

double* on_gpu() {
  double* values = nullptr;
  check(cudaMalloc(&values, kPoints * sizeof(double)), "cudaMalloc");
  return values;
}

}  // namespace

int main() {
  double *a = on_cpu(), *b = on_cpu();
  for (int i = 0; i < kSteps; ++i, std::swap(a, b)) step_on_cpu(a, b);

  double *x = on_gpu(), *y = on_gpu();
  {
    GABLE_REGION("gpu");
    check(cudaMemcpy(x, a, kPoints * sizeof(double), cudaMemcpyHostToDevice), "cudaMemcpy");
    check(cudaMemcpy(y, x, kPoints * sizeof(double), cudaMemcpyDeviceToDevice), "cudaMemcpy");
    for (int i = 0; i < kSteps; ++i, std::swap(x, y))
      step<<<dim3(kSide / 32, kSide / 8, kSide - 2), dim3(32, 8)>>>(x, y);
    for (int i = 0; i < kSteps; ++i) polynomial<<<kPoints / 256, 256>>>(x);
    check(cudaMemcpy(a, x, kPoints * sizeof(double), cudaMemcpyDeviceToHost), "cudaMemcpy");
  }
  std::printf("%.6f\n", a[kPoints / 2 + kPlane / 2]);
  check(cudaFree(x), "cudaFree"), check(cudaFree(y), "cudaFree");
  std::free(a), std::free(b);
  return 0;
}
