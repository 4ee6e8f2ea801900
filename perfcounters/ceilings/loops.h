// The inner loops behind the ceilings: pure arithmetic in registers, or pure loads and stores. Each states the work of
// one iteration, so that a ceiling is iterations * work / seconds.
// Arithmetic runs on kChains independent accumulators: enough to hide the latency of two to four units of any CPU that
// gable knows, and, with two operands, exactly what 16 registers hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gable::perf {

inline constexpr int kChains = 14;

struct ComputeLoop {
  std::string isa;    ///< "scalar", "sse4", "avx2", "avx512", "neon", "avx512_bf16", "avx512_fp16", "amx_bf16",
                      ///< "avx_vnni", "avx512_vnni", "amx_int8"
  std::string dtype;  ///< of the operands: "f64", "f32", "f16", "bf16", "i8"
  bool fma = false;   ///< one fused instruction; otherwise multiplications and additions in equal numbers
  int flop_per_instruction = 0;  ///< a multiply and an add count two, of integers too
  int instructions_per_iteration = kChains;
  double instructions_per_cycle_known =
      0;  ///< where the vendor states a rate (AMX: 1/16); else 0, inferred by measuring
  void (*run)(std::int64_t iterations) = nullptr;

  std::string name() const;
};

/// f32 loops that this CPU can run: scalar and each SIMD width, without and with FMA.
std::vector<ComputeLoop> f32_loops();

/// The same in f64.
std::vector<ComputeLoop> f64_loops();

/// Products of bytes, summed in 32 bits, on the units that this CPU has (none on many CPUs).
std::vector<ComputeLoop> i8_loops();

/// f16 and bf16 loops on the units that this CPU has (none on many CPUs).
std::vector<ComputeLoop> half_precision_loops();

/// Sums `count` floats (a multiple of 256) `passes` times: 4 bytes a float a pass.
float read_loop(const float* data, std::size_t count, std::int64_t passes);

/// a = b; `count` a multiple of 256, pointers 64-byte aligned. `streaming`: stores that bypass the caches, so that the
/// line of `a` is not read before it is written.
void copy_loop(float* a, const float* b, std::size_t count, std::int64_t passes, bool streaming);

/// a = b + s * c, STREAM's triad; otherwise as copy_loop().
void triad_loop(float* a, const float* b, const float* c, std::size_t count, std::int64_t passes, bool streaming);

/// y = y + s * x in f64; `count` a multiple of 128, pointers as above.
void daxpy_loop(double* y, const double* x, std::size_t count, std::int64_t passes);

/// Bytes of one vector load in the loops above.
std::size_t load_bytes();

}  // namespace gable::perf
