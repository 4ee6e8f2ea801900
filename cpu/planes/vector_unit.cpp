// Register tiles of f32 vectors (tile_unit.h), compiled once for each target.
// Tile: 14 lanes x 2 vectors of positions with 32 registers (28 sums, 2 vectors of x, 1 broadcast weight), 6 x 2 with
// 16; few lanes take 4 vectors. Inner step: one channel of one tap. It reads 2 vectors of x (128 B on AVX-512,
// unaligned, from L1 or L2) and 14 broadcast weights (56 B, a linear stream), and does 28 FMA = 896 FLOP.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/planes/tile_unit.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/planes/vector_unit.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/cache_control.h>

#include <algorithm>
#include <iterator>

#include "cpu/common/half.h"
#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {
namespace planes_vector_unit {

namespace hn = hwy::HWY_NAMESPACE;
using planes::Tile;
using planes::TileUnit;

using F = hn::ScalableTag<float>;
using V = hn::Vec<F>;
constexpr std::int64_t lanes_of_vector() { return static_cast<std::int64_t>(hn::MaxLanes(F())); }

#if HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kTileLanes = 14;
constexpr int kLanesOfFour = 6;
#else
constexpr int kTileLanes = 6;
constexpr int kLanesOfFour = 2;
#endif
/// Weights are prefetched this many floats ahead: a page, which the hardware's stream does not cross.
constexpr std::int64_t kWeightsAhead = 1024;
constexpr std::int64_t kLineFloats = 16;

/// Whether tiles store parts of vectors from registers. Without masks, a part takes so many instructions that tiles
/// share one loop for it.
constexpr bool kStoresParts = HWY_TARGET == HWY_AVX3;

/// Stores the first outputs of each lane from sums, where the tile's vectors are not full.
template <DType kStored>
HWY_INLINE void store_part_as(const Tile& tile, int lanes) {
  const F d;
  const std::int64_t n = lanes_of_vector();
  const V least = hn::Set(d, tile.direct.least);
  auto* y = static_cast<Storage<kStored>*>(tile.direct.y);
  for (int lane = 0; lane < lanes; ++lane, y += tile.direct.plane) {
    const V bias = tile.direct.bias == nullptr ? hn::Zero(d) : hn::Set(d, tile.direct.bias[lane]);
    const float* sums = tile.sums + lane * tile.sums_lane;
    for (std::int64_t i = 0; i < tile.direct.count; i += n) {
      const V value = at_least(d, least, hn::Add(hn::LoadU(d, sums + i), bias));
      const std::int64_t rest = tile.direct.count - i;
      if (rest >= n) {
        store_f32_as<kStored>(d, value, y + i);
      } else {
        store_first_f32_as<kStored>(d, value, y + i, static_cast<int>(rest));
      }
    }
  }
}
HWY_NOINLINE void store_part(const Tile& tile, int lanes) {
  if (tile.direct.type == DType::f32) return store_part_as<DType::f32>(tile, lanes);
  if (tile.direct.type == DType::f16) return store_part_as<DType::f16>(tile, lanes);
  store_part_as<DType::bf16>(tile, lanes);
}

/// Reads a strip, which is f32, or an image of kType in place, of whose type the results are then too.
template <int kVectors, int kLanes, DType kType>
struct PlaneTile {
  static HWY_INLINE void store_sums(const Tile& tile, const V (&sums)[kLanes][kVectors]) {
    const F d;
    const std::int64_t n = lanes_of_vector();
    HWY_UNROLL(14) for (int lane = 0; lane < kLanes; ++lane) {
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[lane][v], d, tile.sums + lane * tile.sums_lane + v * n);
    }
  }

  template <DType kStored>
  static HWY_INLINE void store_directly(const Tile& tile, const V (&sums)[kLanes][kVectors]) {
    const F d;
    const std::int64_t n = lanes_of_vector();
    const V least = hn::Set(d, tile.direct.least);
    auto* y = static_cast<Storage<kStored>*>(tile.direct.y);
    [[maybe_unused]] const bool whole = tile.direct.count == kVectors * n;
    HWY_UNROLL(14) for (int lane = 0; lane < kLanes; ++lane) {
      const V bias = tile.direct.bias == nullptr ? hn::Zero(d) : hn::Set(d, tile.direct.bias[lane]);
      HWY_UNROLL(4) for (int v = 0; v < kVectors; ++v) {
        const V value = at_least(d, least, hn::Add(sums[lane][v], bias));
        const std::int64_t rest = tile.direct.count - v * n;
        if (!kStoresParts || whole || rest >= n) {
          store_f32_as<kStored>(d, value, y + v * n);
        } else if constexpr (kStoresParts) {
          if (rest > 0) store_first_f32_as<kStored>(d, value, y + v * n, static_cast<int>(rest));
        }
      }
      y += tile.direct.plane;
    }
  }

  static HWY_INLINE void store(const Tile& tile, const V (&sums)[kLanes][kVectors]) {
    if (tile.direct.y == nullptr) return store_sums(tile, sums);
    if (!kStoresParts && tile.direct.count < kVectors * lanes_of_vector()) {
      store_sums(tile, sums);
      return store_part(tile, kLanes);
    }
    if constexpr (kType != DType::f32) {
      store_directly<kType>(tile, sums);
    } else if (tile.direct.type == DType::f32) {
      store_directly<DType::f32>(tile, sums);
    } else if (tile.direct.type == DType::f16) {
      store_directly<DType::f16>(tile, sums);
    } else {
      store_directly<DType::bf16>(tile, sums);
    }
  }

  template <bool kPrefetches>
  static HWY_INLINE void sum(const Tile& tile, V (&sums)[kLanes][kVectors]) {
    const F d;
    const std::int64_t n = lanes_of_vector();
    const float* HWY_RESTRICT weights = tile.weights;
    const auto* block = static_cast<const Storage<kType>*>(tile.x);
    const std::int64_t x_step = tile.x_step;
    for (std::int64_t left = tile.steps; left > 0; left -= planes::kBlockSteps) {
      const std::int64_t steps = std::min(left, planes::kBlockSteps);
      for (std::int64_t tap = 0; tap < tile.tap_count; ++tap) {
        const Storage<kType>* HWY_RESTRICT x = block + tile.taps[tap];
        for (std::int64_t step = 0; step < steps; ++step) {
          V in[kVectors];
          HWY_UNROLL(4) for (int v = 0; v < kVectors; ++v) {
            in[v] = load_as_f32<kType>(d, x + v * n);
            if constexpr (kPrefetches) hwy::Prefetch(x + v * n + tile.prefetch);
          }
          HWY_UNROLL(14) for (int lane = 0; lane < kLanes; ++lane) {
            const V weight = hn::Set(d, weights[lane]);
            HWY_UNROLL(4)
            for (int v = 0; v < kVectors; ++v) sums[lane][v] = add_product(d, weight, in[v], sums[lane][v]);
          }
          weights += kLanes;
          x += x_step;
        }
      }
      block += planes::kBlockSteps * x_step;
    }
  }

  static void run(const Tile& tile) {
    const F d;
    V sums[kLanes][kVectors];
    HWY_UNROLL(14) for (int lane = 0; lane < kLanes; ++lane) {
      HWY_UNROLL(4) for (int v = 0; v < kVectors; ++v) sums[lane][v] = hn::Zero(d);
    }
    if (tile.prefetch != 0) {
      sum<true>(tile, sums);
    } else {
      sum<false>(tile, sums);
    }
    store(tile, sums);
  }
};

/// Pixels by lanes. Inner step: 2 vectors of weights, a linear stream, and 14 broadcast pixels.
template <int kVectors, int kPixels>
struct PixelTile {
  static void run(const Tile& tile) {
    const F d;
    const std::int64_t n = lanes_of_vector();
    V sums[kPixels][kVectors];
    HWY_UNROLL(14) for (int p = 0; p < kPixels; ++p) {
      HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) sums[p][v] = hn::Zero(d);
    }
    const float* HWY_RESTRICT weights = tile.weights;
    const auto* block = static_cast<const float*>(tile.x);
    const std::int64_t x_step = tile.x_step;
    for (std::int64_t left = tile.steps; left > 0; left -= planes::kBlockSteps) {
      const std::int64_t steps = std::min(left, planes::kBlockSteps);
      weights += tile.first_tap * steps * kVectors * n;
      for (std::int64_t tap = tile.first_tap; tap < tile.end_tap; ++tap) {
        const float* HWY_RESTRICT x = block + tile.taps[tap];
        for (std::int64_t step = 0; step < steps; ++step) {
          V lanes[kVectors];
          HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) {
            lanes[v] = hn::LoadU(d, weights + v * n);
            if (v * n % kLineFloats == 0) hwy::Prefetch(weights + v * n + kWeightsAhead);
          }
          HWY_UNROLL(14) for (int p = 0; p < kPixels; ++p) {
            const V pixel = hn::Set(d, x[p]);
            HWY_UNROLL(2) for (int v = 0; v < kVectors; ++v) sums[p][v] = add_product(d, pixel, lanes[v], sums[p][v]);
          }
          weights += kVectors * n;
          x += x_step;
        }
      }
      weights += (tile.tap_count - tile.end_tap) * steps * kVectors * n;
      block += planes::kBlockSteps * x_step;
    }
    HWY_UNROLL(14) for (int p = 0; p < kPixels; ++p) {
      HWY_UNROLL(2)
      for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[p][v], d, tile.sums + p * tile.sums_lane + v * n);
    }
  }
};

template <int kPixels>
void fill_pixel_tiles(TileUnit& unit) {
  unit.pixel_tile[1][kPixels] = &PixelTile<1, kPixels>::run;
  unit.pixel_tile[2][kPixels] = &PixelTile<2, kPixels>::run;
  if constexpr (kPixels > 1) fill_pixel_tiles<kPixels - 1>(unit);
}

template <int kVectors, int kLanes>
void fill_tiles(TileUnit& unit) {
  unit.tile[kVectors][kLanes] = &PlaneTile<kVectors, kLanes, DType::f32>::run;
  unit.in_place[static_cast<int>(DType::f32)][kVectors][kLanes] = unit.tile[kVectors][kLanes];
  unit.in_place[static_cast<int>(DType::f16)][kVectors][kLanes] = &PlaneTile<kVectors, kLanes, DType::f16>::run;
  unit.in_place[static_cast<int>(DType::bf16)][kVectors][kLanes] = &PlaneTile<kVectors, kLanes, DType::bf16>::run;
  if constexpr (kLanes > 1) fill_tiles<kVectors, kLanes - 1>(unit);
}

/// Nanoseconds of a vector of products, with the costs of planes.cpp that were fitted on Zen 4: of 512 bits, of which
/// it issues one a cycle; of 256 bits, two a cycle; of narrower ones, whose targets have no fused multiply-add. Cores
/// with whole vectors and Xeons with AMX have costs of their own there.
constexpr double kHalvedVectorNs = 0.25, kVectorNs = 0.15, kNarrowVectorNs = 0.3;

TileUnit make_unit() {
  TileUnit unit;
  unit.name = "planes";
  unit.positions = static_cast<int>(lanes_of_vector());
  unit.most_lanes = kTileLanes;
  unit.vector_ns = lanes_of_vector() == 16 ? kHalvedVectorNs : lanes_of_vector() == 8 ? kVectorNs : kNarrowVectorNs;
  std::fill(std::begin(unit.stores), std::end(unit.stores), true);
  fill_tiles<1, kTileLanes>(unit);
  fill_tiles<2, kTileLanes>(unit);
  fill_tiles<4, kLanesOfFour>(unit);
  unit.most_pixels = kTileLanes;
  fill_pixel_tiles<kTileLanes>(unit);
  return unit;
}

const TileUnit& unit_here() {
  static const TileUnit unit = make_unit();
  return unit;
}

}  // namespace planes_vector_unit
}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu::planes {

const TileUnit& vector_unit(const Target& target) { GABLE_CPU_RETURN_OF(target, planes_vector_unit::unit_here()); }

}  // namespace gable::cpu::planes
#endif  // HWY_ONCE
