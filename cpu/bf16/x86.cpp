// The bf16 units of x86: AMX tile products (1024 multiply-adds a 16-cycle instruction), and AVX512-BF16's pair product
// (32 a lane register). Highway names neither at these rates, so both are spelled here and run only where CPUID and the
// operating system allow.
// The pair product's tile: 14 positions × 2 vectors of 16 lanes = 28 sums in registers, 2 of weights, 1 broadcast pair
// of channels. A step of two channels is 28 products, 2 loads of weights (L1/L2) and 14 of input (L1).
#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#if defined(__x86_64__)
#define GABLE_CPU_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define GABLE_MATRIX_TILE_TARGET GABLE_CPU_BF16
#endif
#include "cpu/bf16/tile-inl.h"
#include "cpu/bf16/unit.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#endif

namespace gable::cpu {

#if defined(__x86_64__)
namespace {

// Operand of LDTILECFG, palette 1: eight tiles of up to 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t column_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

/// Registers 0 to 5 hold sums and input, a row a position: a product takes a cycle a row. Input is read up to the last
/// pair of channels, and not beyond: what lies there may be no number.
void begin_tiles(int positions, int pairs) {
  TileConfig config;
  std::fill_n(config.rows, 6, static_cast<std::uint8_t>(positions));
  std::fill_n(config.column_bytes + 4, 2, static_cast<std::uint16_t>(4 * pairs));
  std::fill_n(config.rows + 6, 2, static_cast<std::uint8_t>(pairs));
  asm volatile("ldtilecfg %0" : : "m"(config));
}
void end_tiles() { asm volatile("tilerelease"); }

void begin_nothing(int, int) {}
void end_nothing() {}

struct Leaf7 {
  unsigned subleaf0_edx = 0, subleaf1_eax = 0;
  bool avx512 = false;
};
Leaf7 leaf7() {
  Leaf7 leaf;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return leaf;
  leaf.subleaf0_edx = edx;
  const unsigned subleaves = eax;
  leaf.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  if (subleaves >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) leaf.subleaf1_eax = eax;
  return leaf;
}

constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;  // leaf 7, subleaf 0, EDX
constexpr unsigned kAvx512Bf16 = 1u << 5;                     // leaf 7, subleaf 1, EAX

std::string missing_bf16_dot() {
  const Leaf7 leaf = leaf7();
  return leaf.avx512 && (leaf.subleaf1_eax & kAvx512Bf16) != 0 ? "" : "this CPU has no AVX512-BF16";
}

/// Linux gives a process the tile registers only when it asks; the permission holds for all of its threads.
std::string missing_amx() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  constexpr unsigned kNeeded = kAmxBf16 | kAmxTile;
  if ((leaf7().subleaf0_edx & kNeeded) != kNeeded) return "this CPU has no AMX with bf16";
  if (const std::string missing = missing_bf16_dot(); !missing.empty()) return missing;  // it finishes the sums
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) return "the system grants no AMX tile registers";
  return "";
}

/// The larger value; b where either is NaN. (The unmasked form's undefined operand makes g++ 12 warn.)
GABLE_CPU_BF16 inline __m512 max_or_second(__m512 a, __m512 b) { return _mm512_maskz_max_ps(0xffff, a, b); }

/// The larger value; NaN when either is NaN.
GABLE_CPU_BF16 inline __m512 nan_max(__m512 a, __m512 b) {
  return _mm512_mask_mov_ps(max_or_second(a, b), _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), a);
}

GABLE_CPU_BF16 inline __m512 pooled(const Bf16Finish& call, std::int64_t position) {
  const float* above = call.c + position;
  const float* below = call.below + position;
  return nan_max(nan_max(_mm512_loadu_ps(above), _mm512_loadu_ps(above + kBf16Lanes)),
                 nan_max(_mm512_loadu_ps(below), _mm512_loadu_ps(below + kBf16Lanes)));
}

/// What happens to 32 sums after the pool. Conversion rounds to nearest even, bf16's with subnormal results zero.
template <DType kType, bool kMayStream = true>
struct Epilogue {
  __m512 low_bias, high_bias, least;
  bool streams;

  GABLE_CPU_BF16 explicit Epilogue(const Bf16Finish& call) : streams(call.streams) {
    low_bias = high_bias = _mm512_setzero_ps();
    if (call.bias != nullptr) {
      low_bias = _mm512_loadu_ps(call.bias);
      high_bias = _mm512_loadu_ps(call.bias + kBf16Lanes / 2);
    }
    least = _mm512_set1_ps(call.activation == Activation::relu ? 0.0f : -std::numeric_limits<float>::infinity());
  }
  GABLE_CPU_BF16 void store(__m512 low, __m512 high, std::uint16_t* y) const {
    low = max_or_second(least, _mm512_add_ps(low, low_bias));
    high = max_or_second(least, _mm512_add_ps(high, high_bias));
    const __m512i lanes = narrowed(low, high);
    if (kMayStream && streams) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(y), lanes);
    } else {
      _mm512_storeu_si512(y, lanes);
    }
  }
  GABLE_CPU_BF16 static __m512i narrowed(__m512 low, __m512 high) {
    if constexpr (kType == DType::bf16) {
      return (__m512i)_mm512_cvtne2ps_pbh(high, low);
    } else {
      constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
      const __m256i low_half = _mm512_maskz_cvtps_ph(0xffff, low, kNearest);
      const __m256i high_half = _mm512_maskz_cvtps_ph(0xffff, high, kNearest);
      return _mm512_maskz_inserti64x4(0xff, _mm512_castsi256_si512(low_half), high_half, 1);
    }
  }
};

template <DType kType>
GABLE_CPU_BF16 void finish(const Bf16Finish& call) {
  constexpr std::int64_t kHalf = kBf16Lanes / 2;
  const Epilogue<kType> epilogue(call);
  std::uint16_t* y = static_cast<std::uint16_t*>(call.y);
  for (std::int64_t pixel = 0; pixel < call.pixels; ++pixel, y += call.y_pixel) {
    if (call.below != nullptr) {
      const std::int64_t left = 2 * pixel * kBf16Lanes;
      epilogue.store(pooled(call, left), pooled(call, left + kHalf), y);
    } else {
      const float* c = call.c + pixel * kBf16Lanes;
      epilogue.store(_mm512_loadu_ps(c), _mm512_loadu_ps(c + kHalf), y);
    }
  }
}

// Assembly rather than intrinsics: those take only literal register numbers, and g++ 12's forget what memory they read.
struct AmxTiles {
  template <int kTile>
  void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile, bool kKeepsInL1 = true>
  void load(const std::uint16_t* rows, std::int64_t stride) {
    if constexpr (kKeepsInL1) {
      asm volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(kTile), "r"(rows), "r"(stride * 2) : "memory");
    } else {
      asm volatile("tileloaddt1 (%1,%2,1), %%tmm%c0" : : "i"(kTile), "r"(rows), "r"(stride * 2) : "memory");
    }
  }
  template <int kSum, int kA, int kB>
  void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
  template <int kTile>
  void store(float* rows, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(kTile), "r"(rows), "r"(stride * 4) : "memory");
  }

  static bool finishes(const Bf16Finish& call) {
    return call.run == &finish<DType::bf16> && call.below == nullptr && !call.streams;
  }
  class Finish {
   public:
    GABLE_CPU_BF16 explicit Finish(const Bf16Finish& call) : epilogue_(call) {}
    GABLE_CPU_BF16 void line(const float* c, std::uint16_t* y) const {
      epilogue_.store(_mm512_loadu_ps(c), _mm512_loadu_ps(c + kBf16Lanes / 2), y);
    }

   private:
    Epilogue<DType::bf16, false> epilogue_;
  };

  static void will_read(const char* line) { __builtin_prefetch(line, 0, 2); }
  static void will_write(const char* line) { asm volatile("prefetchw %0" : : "m"(*line)); }
};

GABLE_CPU_BF16 inline __m512 widened(__m256i halves) {
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, _mm512_maskz_cvtepu16_epi32(0xffff, halves), 16));
}

template <DType kType>
GABLE_CPU_BF16 inline __m512 load_as_f32(const void* x, std::int64_t element) {
  if constexpr (kType == DType::f32) return _mm512_loadu_ps(static_cast<const float*>(x) + element);
  const void* halves = static_cast<const std::uint16_t*>(x) + element;
  return _mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(static_cast<const __m256i*>(halves)));
}

/// Each part is what the parts before it left, rounded to bf16 (subnormals to zero); subtractions are exact.
template <DType kType, int kParts>
GABLE_CPU_BF16 void split_positions(const void* x, std::int64_t pitch, std::int64_t positions, std::int64_t part,
                                    std::uint16_t* strip) {
  for (std::int64_t i = 0; i < positions; ++i, strip += kBf16Channels) {
    __m512 low = load_as_f32<kType>(x, i * pitch);
    __m512 high = load_as_f32<kType>(x, i * pitch + kBf16Channels / 2);
#pragma GCC unroll 3
    for (int p = 0; p < kParts; ++p) {
      const __m256i low_part = (__m256i)_mm512_cvtneps_pbh(low), high_part = (__m256i)_mm512_cvtneps_pbh(high);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(strip + p * part), low_part);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(strip + p * part + kBf16Channels / 2), high_part);
      low = _mm512_sub_ps(low, widened(low_part));
      high = _mm512_sub_ps(high, widened(high_part));
    }
  }
}

constexpr int kDotPositions = 14;

GABLE_CPU_BF16 inline __m512i broadcast_pair(const std::uint16_t* a) {
  int channels;
  std::memcpy(&channels, a, sizeof channels);
  return _mm512_set1_epi32(channels);
}
/// With zero in place of the second channel, which may be no number.
GABLE_CPU_BF16 inline __m512i broadcast_first(const std::uint16_t* a) {
  __m512i first = _mm512_set1_epi32(0xffff);
  asm("" : "+v"(first));  // made here: kept through the loops, it would take a register from the sums
  return _mm512_and_si512(broadcast_pair(a), first);
}

/// Products of one pair of channels; kSingle: of its first one.
template <int kPositions, bool kSingle>
GABLE_CPU_BF16 inline __attribute__((always_inline)) void dot_pair(__m512 (&sums)[kPositions][2],
                                                                   const std::uint16_t* a, std::int64_t stride,
                                                                   const std::uint16_t* weights) {
  const __m512bh low = (__m512bh)_mm512_loadu_si512(weights);
  const __m512bh high = (__m512bh)_mm512_loadu_si512(weights + kWeightBlock / 2);
#pragma GCC unroll 14
  for (int i = 0; i < kPositions; ++i) {
    const __m512bh x = (__m512bh)(kSingle ? broadcast_first(a + i * stride) : broadcast_pair(a + i * stride));
    sums[i][0] = _mm512_dpbf16_ps(sums[i][0], x, low);
    sums[i][1] = _mm512_dpbf16_ps(sums[i][1], x, high);
  }
}

/// One half of exactly kPositions positions. kStride is the elements between positions, 0: known at run time only.
/// kSingle: the only block ends with half a pair.
template <int kPositions, int kStride, bool kSingle = false>
GABLE_CPU_BF16 void dot_half(const Bf16Call& call, std::size_t half) {
  const std::int64_t stride = kStride == 0 ? call.position : kStride;
  __m512 sums[kPositions][2];
  for (auto& sum : sums) sum[0] = sum[1] = _mm512_setzero_ps();
  const std::int64_t first_tap = call.tap_begin[half], end_tap = call.tap_end[half];
  for (std::int64_t block = 0; block < call.blocks; ++block) {
    const int pairs = kSingle ? call.last_pairs - 1 : block + 1 == call.blocks ? call.last_pairs : kBf16Channels / 2;
    const std::uint16_t* b = call.b + (block * call.tap_count + first_tap) * kWeightBlock;
    for (std::int64_t tap = first_tap; tap < end_tap; ++tap, b += kWeightBlock) {
      const std::uint16_t* a = call.a[half] + block * call.a_block + call.taps[tap];
      const std::uint16_t* weights = b;
      for (int pair = 0; pair < pairs; ++pair, a += 2, weights += kBf16Lanes) {
        // Two blocks ahead: about what L3 needs. L2's own prefetcher loses the thread at each block.
        __builtin_prefetch(weights + 2 * kWeightBlock);
        __builtin_prefetch(weights + 2 * kWeightBlock + kWeightBlock / 2);
        dot_pair<kPositions, false>(sums, a, stride, weights);
      }
      if constexpr (kSingle) dot_pair<kPositions, true>(sums, a, stride, weights);
    }
  }
  if (call.finish[half] != nullptr) {
    const Bf16Finish& finish = *call.finish[half];
    const Epilogue<DType::bf16> epilogue(finish);
    std::uint16_t* y = static_cast<std::uint16_t*>(finish.y);
#pragma GCC unroll 14
    for (int i = 0; i < kPositions; ++i) epilogue.store(sums[i][0], sums[i][1], y + i * finish.y_pixel);
    return;
  }
  float* c = call.c + static_cast<std::int64_t>(half) * kHalfFloats;
#pragma GCC unroll 14
  for (int i = 0; i < kPositions; ++i) {
    _mm512_storeu_ps(c + i * kBf16Lanes, sums[i][0]);
    _mm512_storeu_ps(c + i * kBf16Lanes + kBf16Lanes / 2, sums[i][1]);
  }
}

using DotFunction = void (*)(const Bf16Call&, std::size_t half);
template <int kStride, bool kSingle, int... kPositions>
constexpr std::array<DotFunction, sizeof...(kPositions)> dot_table(std::integer_sequence<int, kPositions...>) {
  return {&dot_half<kPositions + 1, kStride, kSingle>...};
}
constexpr auto kDotDense = dot_table<kBf16Channels, false>(std::make_integer_sequence<int, kDotPositions>());
constexpr auto kDotStrided = dot_table<0, false>(std::make_integer_sequence<int, kDotPositions>());
constexpr auto kDotSingle = dot_table<0, true>(std::make_integer_sequence<int, kDotPositions>());
/// Of images of three channels, at every pixel and at every other one: a constant stride, as below.
constexpr auto kDotThree = dot_table<3, true>(std::make_integer_sequence<int, kDotPositions>());
constexpr auto kDotSix = dot_table<6, true>(std::make_integer_sequence<int, kDotPositions>());

/// Input read in place usually has one of these channel counts: constant strides leave more registers.
DotFunction whole_half(std::int64_t stride) {
  switch (stride) {
    case 64:
      return dot_half<kDotPositions, 64>;
    case 128:
      return dot_half<kDotPositions, 128>;
    case 256:
      return dot_half<kDotPositions, 256>;
    case 512:
      return dot_half<kDotPositions, 512>;
    case 1024:
      return dot_half<kDotPositions, 1024>;
    case 2048:
      return dot_half<kDotPositions, 2048>;
    default:
      return kDotStrided.back();
  }
}

DotFunction dot_function(const Bf16Call& call, std::size_t half) {
  const auto count = static_cast<std::size_t>(call.count[half]);
  if (call.last_is_single) {
    return (call.position == 3 ? kDotThree : call.position == 6 ? kDotSix : kDotSingle)[count - 1];
  }
  if (call.position == kBf16Channels) return kDotDense[count - 1];
  return count == kDotPositions ? whole_half(call.position) : kDotStrided[count - 1];
}

void dot_tile(const Bf16Call& call) {
  for (std::size_t half = 0; half < 2; ++half) {
    if (call.count[half] == 0) continue;
    dot_function(call, half)(call, half);
  }
}

/// The function where this CPU has AVX512-BF16, else null.
template <typename Function>
Function* with_bf16(Function* function) {
  return missing_bf16_dot().empty() ? function : nullptr;
}

}  // namespace

const Bf16Unit& amx_unit() {
  static const Bf16Unit unit{.name = "amx",
                             .missing = missing_amx(),
                             .positions = kHalfPositions,
                             .reads_whole_half = true,
                             .most_padding = 6.0,
                             .begin = begin_tiles,
                             .end = end_tiles,
                             .tile1 = bf16_tile<AmxTiles, 1>,
                             .tile3 = bf16_tile<AmxTiles, 3>,
                             .tile4 = bf16_tile<AmxTiles, 4>,
                             .tile6 = bf16_tile<AmxTiles, 6>,
                             .finishes_in_registers = false,
                             .finish_bf16 = finish<DType::bf16>,
                             .finish_f16 = with_bf16(finish<DType::f16>),
                             .split_f16 = with_bf16(split_positions<DType::f16, 2>),
                             .split_f32 = {nullptr, nullptr, with_bf16(split_positions<DType::f32, 2>),
                                           with_bf16(split_positions<DType::f32, 3>)}};
  return unit;
}

const Bf16Unit& bf16_dot_unit() {
  static const Bf16Unit unit{.name = "bf16_dot",
                             .missing = missing_bf16_dot(),
                             .positions = kDotPositions,
                             .reads_whole_half = false,
                             .most_padding = 1.7,
                             .begin = begin_nothing,
                             .end = end_nothing,
                             .tile1 = dot_tile,
                             .tile3 = nullptr,
                             .tile4 = nullptr,
                             .tile6 = nullptr,
                             .finishes_in_registers = true,
                             .finish_bf16 = finish<DType::bf16>,
                             .finish_f16 = nullptr};
  return unit;
}

#else

const Bf16Unit& amx_unit() {
  static const Bf16Unit unit{.name = "amx", .missing = "AMX is x86's"};
  return unit;
}
const Bf16Unit& bf16_dot_unit() {
  static const Bf16Unit unit{.name = "bf16_dot", .missing = "AVX512-BF16 is x86's"};
  return unit;
}

#endif

}  // namespace gable::cpu
