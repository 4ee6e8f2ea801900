// See cuda_rates.h.
#include "backends/cuda/cuda_rates.h"

#include "backends/problems.h"

namespace gable {
namespace {

constexpr double kCall = 3e-6;          // seconds of a launch that follows others
constexpr double kReached = 0.85;       // share of the memory's nominal bandwidth that a copy reaches
constexpr double kUnknownBytes = 50e9;  // bytes a second, if the driver reports no memory clock: a GPU inside a CPU

/// Multiply-adds of an SM in a cycle: FMA units, and dense tensor cores of 16-bit and tf32 types.
struct PerCycle {
  double f32, half, tf32;
};

PerCycle per_cycle(int major, int minor) {
  if (major >= 9) return {128, 2048, 1024};
  if (major == 8 && minor == 0) return {64, 1024, 512};
  if (major == 8) return {128, 512, 256};
  return {64, 512, 64};  // Turing has no tf32
}

Math math_of(const Op& op) {
  if (const auto* conv = std::get_if<Conv2d>(&op)) return conv->math;
  if (const auto* matmul = std::get_if<Matmul>(&op)) return matmul->math;
  return Math::strict;
}

double multiply_adds_of(const Op& op, const PerCycle& rate) {
  switch (math_of(op)) {
    case Math::tf32:
      return rate.tf32;
    case Math::split3:
      return rate.half / 3;
    case Math::split6:
      return rate.half / 6;
    case Math::strict:
      break;
  }
  return dtype_of(op) == DType::f32 ? rate.f32 : rate.half;
}

}  // namespace

CudaRates::CudaRates(const CudaDevice& device) : major_(device.properties().major), minor_(device.properties().minor) {
  int core = 0, memory = 0;
  GABLE_CUDA_CHECK(cudaDeviceGetAttribute(&core, cudaDevAttrClockRate, device.index()));
  GABLE_CUDA_CHECK(cudaDeviceGetAttribute(&memory, cudaDevAttrMemoryClockRate, device.index()));
  cycles_ = core * 1e3 * device.properties().multiProcessorCount;
  bytes_ = kReached * memory * 1e3 * 2 * device.properties().memoryBusWidth / 8;
  if (bytes_ <= 0) bytes_ = kUnknownBytes;
}

Rates CudaRates::of(const Op& op) const {
  return {.multiply_adds = cycles_ * multiply_adds_of(op, per_cycle(major_, minor_)), .bytes = bytes_, .call = kCall};
}

double modelled_cuda_seconds(const Op& op, const CudaRates& rates,
                             const std::array<double, kShapeClasses>& inefficiency) {
  const double roof = roof_seconds(op, rates.of(op));
  if (!has_weights(op)) return roof;
  return roof * inefficiency[static_cast<std::size_t>(shape_class(weighted_op(op).problem))];
}

}  // namespace gable
