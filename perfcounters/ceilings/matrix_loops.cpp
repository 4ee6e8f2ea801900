// f16, bf16 and byte arithmetic on x86's own units: AVX512-FP16's FMA, AVX512-BF16's pair product, VNNI's product of
// four bytes, and AMX's tile products. Highway has no portable name for them at these rates, so they are intrinsics
// behind target attributes, called only where CPUID and the operating system allow. AMX: four 16x16 tiles accumulate
// products of two A and two B tiles, so that each product's latency (52 cycles) is hidden behind three others (16
// cycles each); nothing is loaded inside.
#include "common/bf16_units.h"
#include "perfcounters/ceilings/loops.h"
#include "perfcounters/machine.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gable::perf {

#if defined(__x86_64__)
namespace {

// 32 registers: two units of up to seven cycles' latency are kept busy with slack.
constexpr int kWideChains = 20;

// The instruction is spelled out, because compilers disagree about the f16 vector types that its intrinsic needs.
__attribute__((target("avx512f,avx512bw,avx512fp16"), noinline)) void fp16_fma(std::int64_t iterations) {
  const __m512i half = _mm512_set1_epi16(0x3800);  // 0.5
  __m512i s[kWideChains];
  for (int chain = 0; chain < kWideChains; ++chain) s[chain] = _mm512_set1_epi16(static_cast<short>(0x3c00 + chain));
  for (std::int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 20
    // Each chain grows from 1 to where 0.25 is absorbed: no infinity, no denormal.
    for (__m512i& chain : s) asm volatile("vfmadd231ph %1, %1, %0" : "+v"(chain) : "v"(half));
  }
}

__attribute__((target("avx512f,avx512bf16"), noinline)) void bf16_pairs(std::int64_t iterations) {
  const __m512 one = _mm512_set1_ps(1.0F);
  const __m512bh pair = _mm512_cvtne2ps_pbh(one, one);
  __m512 s[kWideChains];
  for (int chain = 0; chain < kWideChains; ++chain) s[chain] = _mm512_set1_ps(1.0F + static_cast<float>(chain));
  for (std::int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 20
    for (__m512& chain : s) {
      chain = _mm512_dpbf16_ps(chain, pair, pair);
      asm volatile("" : "+v"(chain));
    }
  }
}

// A lane multiplies four unsigned bytes with four signed ones and adds the products. Spelled out, so that neither unit
// needs the other's target attribute, and with {vex}, or an assembler would take the form of AVX-512.
__attribute__((target("avx512f,avx512vnni"), noinline)) void avx512_vnni(std::int64_t iterations) {
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i s[kWideChains];
  for (int chain = 0; chain < kWideChains; ++chain) s[chain] = _mm512_set1_epi32(chain);
  for (std::int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 20
    for (__m512i& chain : s) asm volatile("vpdpbusd %1, %1, %0" : "+v"(chain) : "v"(ones));
  }
}

__attribute__((target("avx2"), noinline)) void avx_vnni(std::int64_t iterations) {
  const __m256i ones = _mm256_set1_epi8(1);
  __m256i s[kChains];
  for (int chain = 0; chain < kChains; ++chain) s[chain] = _mm256_set1_epi32(chain);
  for (std::int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 14
    for (__m256i& chain : s) asm volatile("%{vex%} vpdpbusd %1, %1, %0" : "+x"(chain) : "x"(ones));
  }
}

// Operand of LDTILECFG, palette 1: eight tiles of at most 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t column_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

// Configures all tiles, zeroes the sums in tiles 0 to 3 and loads ones into tiles 4 to 7.
__attribute__((target("amx-tile"))) inline void load_tiles(const TileConfig& config, const void* ones) {
  // Some compilers model only the first bytes of what these instructions read: make all of both objects visible.
  asm volatile("" : : "r"(&config), "r"(ones) : "memory");
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, ones, 64);
  _tile_loadd(5, ones, 64);
  _tile_loadd(6, ones, 64);
  _tile_loadd(7, ones, 64);
}

__attribute__((target("amx-tile,amx-bf16"), noinline)) void amx_bf16(std::int64_t iterations) {
  alignas(64) const TileConfig config;
  alignas(64) std::uint16_t ones[16 * 32];
  for (std::uint16_t& value : ones) value = 0x3f80;  // 1.0 as bf16
  load_tiles(config, ones);
  for (std::int64_t i = 0; i < iterations; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

__attribute__((target("amx-tile,amx-int8"), noinline)) void amx_int8(std::int64_t iterations) {
  alignas(64) const TileConfig config;
  alignas(64) std::int8_t ones[16 * 64];
  for (std::int8_t& value : ones) value = 1;
  load_tiles(config, ones);
  for (std::int64_t i = 0; i < iterations; ++i) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_release();
}

}  // namespace

std::vector<ComputeLoop> half_precision_loops() {
  const Machine machine = describe_isa_only();
  std::vector<ComputeLoop> loops;
  if (machine.cpu.has("avx512_fp16"))
    loops.push_back({.isa = "avx512_fp16",
                     .dtype = "f16",
                     .fma = true,
                     .flop_per_instruction = 64,
                     .instructions_per_iteration = kWideChains,
                     .run = fp16_fma});
  // A lane multiplies two pairs and adds both products: 16 lanes x 2 x 2 FLOP.
  if (machine.cpu.has("avx512_bf16"))
    loops.push_back({.isa = "avx512_bf16",
                     .dtype = "bf16",
                     .fma = true,
                     .flop_per_instruction = 64,
                     .instructions_per_iteration = kWideChains,
                     .run = bf16_pairs});
  if (machine.cpu.has("amx_bf16") && request_amx())
    loops.push_back({.isa = "amx_bf16",
                     .dtype = "bf16",
                     .fma = true,
                     .flop_per_instruction = 2 * 16 * 16 * 32,
                     .instructions_per_iteration = 4,
                     .instructions_per_cycle_known = 1.0 / 16,
                     .run = amx_bf16});
  return loops;
}

std::vector<ComputeLoop> i8_loops() {
  const Machine machine = describe_isa_only();
  std::vector<ComputeLoop> loops;
  // A lane of 32 bits multiplies four pairs and adds their products: 4 x 2 operations.
  if (machine.cpu.has("avx_vnni"))
    loops.push_back({.isa = "avx_vnni", .dtype = "i8", .fma = true, .flop_per_instruction = 64, .run = avx_vnni});
  if (machine.cpu.has("avx512_vnni"))
    loops.push_back({.isa = "avx512_vnni",
                     .dtype = "i8",
                     .fma = true,
                     .flop_per_instruction = 128,
                     .instructions_per_iteration = kWideChains,
                     .run = avx512_vnni});
  if (machine.cpu.has("amx_int8") && request_amx())
    loops.push_back({.isa = "amx_int8",
                     .dtype = "i8",
                     .fma = true,
                     .flop_per_instruction = 2 * 16 * 16 * 64,
                     .instructions_per_iteration = 4,
                     .instructions_per_cycle_known = 1.0 / 16,
                     .run = amx_int8});
  return loops;
}

#else

std::vector<ComputeLoop> half_precision_loops() { return {}; }

std::vector<ComputeLoop> i8_loops() { return {}; }

#endif

}  // namespace gable::perf
