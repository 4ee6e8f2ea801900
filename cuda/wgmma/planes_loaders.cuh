// The warps of pointwise_planes by wgmma that load: one loads weights, one or four load pixels of 64 channels a stage,
// by tensor copies, by cp.async or through registers.
#pragma once

#include "cuda/common/async_copy.cuh"
#include "cuda/wgmma/planes_pipeline.cuh"

namespace gable::cuda::wgmma::planes {

/// Calls load(slot, step) for each step, once the slot is free.
template <typename Memory, typename Load>
__device__ void for_each_stage(const WgmmaPlanesArguments& a, const Memory& m, Load load) {
  Cursor at;
  for (int step = 0; step < a.steps; ++step) {
    ptx::wait(m.empty(at.slot), at.round ^ 1);
    load(at.slot, step);
    at.advance_one(a.stages);
  }
}

template <int slices, int chunks>
__device__ void load_weights(const WgmmaPlanesArguments& a, const PlanesMemory<slices, chunks>& m,
                             const PlanesTile& tile) {
  const std::int64_t slice_bytes = std::int64_t{a.steps} * kWgmmaWeightBytes;
  const unsigned char* const from = a.weights + tile.slice * slice_bytes;
  if (!ptx::is_elected()) return;
  for_each_stage(a, m, [&](int slot, int step) {
    ptx::arrive_expect_bytes(m.full(slot), slices * kWgmmaWeightBytes);
#pragma unroll
    for (int i = 0; i < slices; ++i) {
      ptx::load_bulk(m.weights(slot) + i * kWgmmaWeightBytes, from + i * slice_bytes + step * kWgmmaWeightBytes,
                     kWgmmaWeightBytes, m.full(slot));
    }
  });
}

/// What lies behind the last image, pixel or channel is zeros.
template <int slices, int chunks>
__device__ void load_boxes(const WgmmaPlanesArguments& a, const PlanesMemory<slices, chunks>& m,
                           const PlanesTile& tile) {
  ChunkPlace places[chunks];
#pragma unroll
  for (int i = 0; i < chunks; ++i) places[i] = place_of_chunk(a, tile.chunk + i);
  ptx::wait_for_previous_kernel();
  if (!ptx::is_elected()) return;
  for_each_stage(a, m, [&](int slot, int step) {
    ptx::arrive_expect_bytes(m.full(slot), chunks * kChunkBytes);
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
      ptx::load_box(m.pixels(slot) + i * kChunkBytes, a.x, places[i].pixel, step * kChannels, places[i].image, 0,
                    m.full(slot));
    }
  });
}

/// The same by cp.async, of 4 or 8 bytes that are of one plane. The matrix unit sees them after a fence by the thread
/// that copied them, so a stage is announced two stages later.
template <int bytes, int slices, int chunks>
class CopyingLoader {
 public:
  __device__ CopyingLoader(const WgmmaPlanesArguments& a, const PlanesMemory<slices, chunks>& m, const PlanesTile& tile)
      : a_(a), m_(m) {
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
      const ChunkPlace place = place_of_chunk(a, tile.chunk + i);
      const int pixel = place.pixel + Share::byte() / 2;
      const bool valid = place.image < a.n && pixel < a.plane;
      from_[i] = valid ? 2 * (std::int64_t{place.image} * a.c * a.plane + pixel) : -1;
    }
  }

  __device__ void run() {
    ptx::wait_for_previous_kernel();
    Cursor announced;
    for_each_stage(a_, m_, [&](int slot, int step) {
      load(slot, step);
      commit_copies();
      if (step < kBehind) return;
      wait_copies<kBehind>();
      announce(announced);
    });
    wait_copies<0>();
    for (int i = min(kBehind, a_.steps); i > 0; --i) announce(announced);
  }

 private:
  using Share = RowShare<bytes>;
  static constexpr int kBehind = 2;

  __device__ void load(int slot, int step) const {
    const int first = Share::row(static_cast<int>(threadIdx.x) % kWarpgroup);
    const std::int64_t row_bytes = 2 * std::int64_t{a_.plane};
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
      const unsigned char* from = a_.from + from_[i] + (step * kChannels + first) * row_bytes;
      const std::uint32_t to = m_.pixels(slot) + i * kChunkBytes;
#pragma unroll
      for (int row = 0; row < kChannels; row += Share::kStep) {
        const bool valid = from_[i] >= 0 && step * kChannels + first + row < a_.c;
        copy_async<bytes>(to + swizzled(first + row, Share::byte()), valid ? from : a_.from, valid);
        from += Share::kStep * row_bytes;
      }
    }
  }

  __device__ void announce(Cursor& at) const {
    ptx::fence_shared_for_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::arrive(m_.full(at.slot));
    at.advance_one(a_.stages);
  }

  const WgmmaPlanesArguments& a_;
  const PlanesMemory<slices, chunks>& m_;
  std::int64_t from_[chunks];  // bytes of x, of the first channel; negative: zeros
};

/// The same of planes with an odd number of pixels, from single pixels through registers. A step's loads are under way
/// while the loader waits for its stage.
template <int slices, int chunks>
class SingleLoader {
 public:
  __device__ SingleLoader(const WgmmaPlanesArguments& a, const PlanesMemory<slices, chunks>& m, const PlanesTile& tile)
      : a_(a), m_(m) {
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
      const ChunkPlace place = place_of_chunk(a, tile.chunk + i);
      const int pixel = place.pixel + Share::byte() / 2;
      from_[i] = std::int64_t{place.image} * a.c * a.plane + pixel;
      pixels_[i] = place.image < a.n ? a.plane - pixel : 0;
    }
  }

  __device__ void run() {
    ptx::wait_for_previous_kernel();
    fetch(0);
    for_each_stage(a_, m_, [&](int slot, int step) {
      put(slot);
      ptx::fence_shared_for_async();
      __syncwarp();
      if (threadIdx.x % 32 == 0) ptx::arrive(m_.full(slot));
      if (step + 1 < a_.steps) fetch(step + 1);
    });
  }

 private:
  using Share = RowShare<4>;
  static constexpr int kRows = kChannels / Share::kStep;

  __device__ static int first_row() { return Share::row(static_cast<int>(threadIdx.x) % kWarpgroup); }

  __device__ void fetch(int step) {
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const int channel = step * kChannels + first_row() + row * Share::kStep;
        const auto* const at =
            reinterpret_cast<const std::uint16_t*>(a_.from) + from_[i] + std::int64_t{channel} * a_.plane;
        const int valid = channel < a_.c ? pixels_[i] : 0;
        low_[i][row] = valid > 0 ? __ldg(at) : std::uint16_t{0};
        high_[i][row] = valid > 1 ? __ldg(at + 1) : std::uint16_t{0};
      }
    }
  }

  __device__ void put(int slot) const {
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const unsigned word = low_[i][row] | static_cast<unsigned>(high_[i][row]) << 16;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(m_.pixels(slot) + i * kChunkBytes +
                                                     swizzled(first_row() + row * Share::kStep, Share::byte())),
                     "r"(word)
                     : "memory");
      }
    }
  }

  const WgmmaPlanesArguments& a_;
  const PlanesMemory<slices, chunks>& m_;
  std::int64_t from_[chunks];  // elements of x, of the first channel
  int pixels_[chunks];         // from the thread's first to the plane's last
  std::uint16_t low_[chunks][kRows], high_[chunks][kRows];
};

}  // namespace gable::cuda::wgmma::planes
