// The epilogue of the wgmma kernel: from a consumer's accumulators to the output. Sums partial accumulators over the
// cluster (split-K), takes the 2x2 maximum, adds the bias, applies the activation, and stores through shared memory.
#pragma once

#include "cuda/common/device_code.cuh"
#include "cuda/wgmma/pipeline.cuh"
#include "cuda/wgmma/schedule.cuh"

namespace gable::cuda::wgmma {

template <Activation activation>
__device__ inline float apply(float v) {
  if constexpr (activation == Activation::relu) return max_or_nan(v, 0.0f);
  if constexpr (activation == Activation::tanh) return tanh_f32(v);
  return v;
}

/// Two values rounded to 16 bits; `relu` is part of the same instruction and keeps NaN.
template <typename T, bool relu = false>
__device__ inline std::uint32_t pack_pair(float low, float high) {
  std::uint32_t pair;
  if constexpr (std::is_same_v<T, __half>) {
    if constexpr (relu) {
      asm("cvt.rn.relu.f16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(low), "f"(high));
    } else {
      asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(low), "f"(high));
    }
  } else {
    if constexpr (relu) {
      asm("cvt.rn.relu.bf16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(low), "f"(high));
    } else {
      asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(low), "f"(high));
    }
  }
  return pair;
}

/// The epilogue of one consumer. It stores outputs in chunks of 32 pixels through a ring of slots in shared memory. For
/// pixels 8 j + 2 (lane % 4) and the next, a thread's accumulators d[4 j], d[4 j + 1] are those of channel
/// c = 16 warp + lane / 4, and d[4 j + 2], d[4 j + 3] those of channel c + 8.
template <typename T, typename Memory = SharedMemory>
class Epilogue {
 public:
  __device__ Epilogue(const WgmmaArguments& a, const Memory& m) : a_(a), m_(m) {}

  __device__ void set_bias(int channel) {
    const int mine = channel + thread() / 32 * 16 + thread() % 32 / 4;
    bias_[0] = a_.bias != nullptr && mine < a_.output.channels ? __ldg(a_.bias + mine) : 0.0f;
    bias_[1] = a_.bias != nullptr && mine + 8 < a_.output.channels ? __ldg(a_.bias + mine + 8) : 0.0f;
  }

  /// Activation and pool are template arguments from here on: a branch for each element would cost more than its
  /// arithmetic.
  template <int pixels>
  __device__ void run(float (&sums)[pixels / 2], const Tile& tile, int channel) {
    if constexpr (Memory::kSplits && pixels % kWgmmaChunk == 0) {
      if (a_.reduction.split > 1) {
        exchange<pixels / kWgmmaChunk>(sums);
        gather<pixels / kWgmmaChunk>(sums);
      }
    }
    if (a_.output.activation == Activation::relu) {
      run_pooled_or_not<pixels, Activation::relu>(sums, tile, channel);
    } else if (a_.output.activation == Activation::tanh) {
      run_pooled_or_not<pixels, Activation::tanh>(sums, tile, channel);
    } else {
      run_pooled_or_not<pixels, Activation::none>(sums, tile, channel);
    }
  }

 private:
  /// The place of a chunk's outputs in y.
  struct Place {
    int channel, x, y, n;
  };

  template <int pixels, Activation activation>
  __device__ void run_pooled_or_not(const float (&sums)[pixels / 2], const Tile& tile, int channel) {
    if (a_.output.pool) {
      store_tile<pixels, activation, true>(sums, {channel, tile.x / 2, tile.y / 2, tile.n});
    } else {
      store_tile<pixels, activation, false>(sums, {channel, tile.x, tile.y, tile.n});
    }
  }

  template <int pixels, Activation activation, bool pool>
  __device__ void store_tile(const float (&sums)[pixels / 2], Place place) {
    // Of a tile that is no multiple of a chunk, the last chunk begins in the one before and stores part of it again.
    constexpr int kChunks = (pixels + kWgmmaChunk - 1) / kWgmmaChunk, kAgain = kChunks * kWgmmaChunk - pixels;
    const int first_y = place.y;
    int chunks_left = a_.output.chunks_per_image;
    const auto step = [&] {
      place.x += a_.output.chunk_x;
      place.y += a_.output.chunk_y;
      if (--chunks_left == 0) {
        chunks_left = a_.output.chunks_per_image;
        place.y = first_y;
        ++place.n;
      }
    };
    // Promoted: consumer 0 has the first half of the tile, consumer 1 the second.
    if (a_.reduction.schedule == WgmmaSchedule::promoted && consumer() == 1) {
      for (int chunk = 0; chunk < kChunks; ++chunk) step();
    }
#pragma unroll
    for (int first = 0; first < kChunks; first += kTogether) {
      Place places[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int chunk = first + i;
        if (chunk >= kChunks) break;
        const int again = chunk + 1 == kChunks ? kAgain : 0;
        places[i] = place;
        places[i].x -= again;
        if (finishes(chunk)) {
          float d[16];
#pragma unroll
          for (int j = 0; j < 16; ++j) d[j] = sums[16 * chunk - again / 2 + j];
          put_chunk<activation, pool>(d, slot(i));
        }
        step();
      }
      store_chunks<kChunks>(first, places);
    }
  }

  /// Chunks between two barriers. Their slots are free again two barriers later.
  static constexpr int kTogether = kIs16Bit<T> ? 2 : 1;
  static constexpr int kSlotBytes = kIs16Bit<T> ? 4096 : 8192;
  static_assert(kTogether * kSlotBytes == kWgmmaOutputSetBytes);
  static constexpr int kChunkBytes = 4 * 16 * kWarpgroup;  // of partial accumulators
  static constexpr int kSubtile = 4096;                    // f32: 32 channels of 32 pixels; 16 bit: all 64

  /// Where partial accumulators of a chunk lie in the shared memory of the block that finishes it, in the place of
  /// outputs: four vectors a thread, threads innermost. `sender` counts the other blocks from 1.
  template <int chunks>
  __device__ std::uint32_t partials(int sender, int chunk) const {
    const int finished = (chunks + a_.reduction.split - 1) >> log_of(a_.reduction.split);
    const int place = (sender - 1) * finished + (chunk >> log_of(a_.reduction.split));
    return m_.outputs(consumer()) + place * kChunkBytes + thread() * 16;
  }

  /// Writes the partial accumulators of chunks that other blocks of the cluster finish, and waits until the others have
  /// written those of this block's chunks. A cluster has one item, so nothing else lies there yet.
  template <int chunks>
  __device__ void exchange(const float (&sums)[16 * chunks]) {
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) {
      if (finishes(chunk)) continue;
      const int owner = chunk & (a_.reduction.split - 1), sender = (rank() - owner) & (a_.reduction.split - 1);
      const std::uint32_t to = ptx::remote_address(partials<chunks>(sender, chunk), owner);
      const std::uint32_t ready = ptx::remote_address(m_.partials_ready(consumer()), owner);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* d = sums + 16 * chunk + 4 * i;
        ptx::store_remote(to + i * kWarpgroup * 16, d[0], d[1], d[2], d[3], ready);
      }
    }
    if (thread() == 0) {
      const int finished = (chunks - 1 - rank() + a_.reduction.split) >> log_of(a_.reduction.split);
      ptx::arrive_expect_bytes(m_.partials_ready(consumer()), (a_.reduction.split - 1) * finished * kChunkBytes);
    }
    ptx::wait_cluster(m_.partials_ready(consumer()), 0);
  }

  /// Adds the other blocks' partial accumulators of the chunks that this block finishes.
  template <int chunks>
  __device__ void gather(float (&sums)[16 * chunks]) const {
    for (int sender = 1; sender < a_.reduction.split; ++sender) {
#pragma unroll
      for (int chunk = 0; chunk < chunks; ++chunk) {
        if (!finishes(chunk)) continue;
        const std::uint32_t from = partials<chunks>(sender, chunk);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float4 v = ptx::load_vector(from + i * kWarpgroup * 16);
          float* const d = sums + 16 * chunk + 4 * i;
          d[0] += v.x;
          d[1] += v.y;
          d[2] += v.z;
          d[3] += v.w;
        }
      }
    }
    ptx::named_sync(barrier(), kWarpgroup);  // outputs take the place of what has been read
  }

  __device__ std::uint32_t slot(int i) const { return m_.outputs(consumer()) + (set_ * kTogether + i) * kSlotBytes; }

  template <Activation activation, bool pool>
  __device__ void put_chunk(float (&d)[16], std::uint32_t to) const {
    if constexpr (pool) {
      put_pooled<activation>(d, to);
    } else {
      put<activation>(d, to);
    }
  }

  /// Starts the tensor stores of the chunks from `first` on, as far as this block finishes them.
  template <int chunks>
  __device__ void store_chunks(int first, const Place (&places)[kTogether]) {
    constexpr int kSets = wgmma_output_sets(chunks * kWgmmaChunk);
    ptx::fence_shared_for_async();
    // After the barrier the next set of slots is free for all threads: at most kSets - 2 sets are still being read.
    if (thread() == 0) ptx::wait_stores_read<kSets - 2>();
    ptx::named_sync(barrier(), kWarpgroup);
    if constexpr (Memory::kStoresWords) {
      if (a_.output.words.y != nullptr) {
        for (int i = 0; i < kTogether && first + i < chunks; ++i) store_words(places[i], slot(i));
        set_ = set_ + 1 == kSets ? 0 : set_ + 1;
        return;
      }
    }
    if (thread() == 0) {
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (first + i >= chunks || !finishes(first + i)) continue;
        const Place& at = places[i];
        store_chunk(at, 0, slot(i));
        if constexpr (!kIs16Bit<T>) store_chunk(at, 32, slot(i) + kSubtile);
      }
      ptx::commit_stores();
    }
    set_ = set_ + 1 == kSets ? 0 : set_ + 1;
  }

  /// 128 bytes of a chunk's channels, from `channel` of the slice on.
  __device__ void store_chunk(const Place& at, int channel, std::uint32_t from) const {
    constexpr int kVector = kIs16Bit<T> ? 8 : 4;
    if (a_.output.windows) {
      ptx::store_window(a_.y, channel, at.channel / kVector, at.x, at.y, at.n, from);
    } else {
      ptx::store_box(a_.y, at.channel + channel, at.x, at.y, at.n, from);
    }
  }

  /// The chunk's outputs one by one, as they follow one another in y.
  __device__ void store_words(const Place& at, std::uint32_t from) const {
    using Word = std::conditional_t<kIs16Bit<T>, std::uint16_t, std::uint32_t>;
    const int channels = min(kWgmmaChannels, a_.output.channels - at.channel);
    const int pixels = min(kWgmmaChunk, a_.output.words.pixels - at.x);
    if (channels <= 0) return;
    auto* const y = static_cast<Word*>(a_.output.words.y) + std::int64_t{at.x} * a_.output.channels + at.channel;
    const int pixel_step = kWarpgroup / channels, channel_step = kWarpgroup - pixel_step * channels;
    int pixel = thread() / channels, channel = thread() - pixel * channels;
    while (pixel < pixels) {
      y[pixel * a_.output.channels + channel] = load_output<Word>(from, pixel, channel);
      pixel += pixel_step;
      channel += channel_step;
      if (channel >= channels) {
        channel -= channels;
        ++pixel;
      }
    }
  }

  /// As put() and store_f32() lay outputs out.
  template <typename Word>
  __device__ static Word load_output(std::uint32_t from, int pixel, int channel) {
    if constexpr (kIs16Bit<T>) {
      return ptx::load_half(from + pixel * 128 + ((channel / 8) ^ (pixel % 8)) * 16 + channel % 8 * 2);
    } else {
      return ptx::load_word(from + channel / 32 * kSubtile + pixel * 128 + ((channel % 32 / 4) ^ (pixel % 8)) * 16 +
                            channel % 4 * 4);
    }
  }

  template <Activation activation>
  __device__ void finish(float& low, float& high) const {  // of a thread's two channels
    low = apply<activation>(low + bias_[0]);
    high = apply<activation>(high + bias_[1]);
  }

  template <Activation activation>
  __device__ void put(float (&d)[16], std::uint32_t to) const {
    constexpr bool kReluInConversion = kIs16Bit<T> && activation == Activation::relu;
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
      finish<kReluInConversion ? Activation::none : activation>(d[i], d[i + 2]);
      finish<kReluInConversion ? Activation::none : activation>(d[i + 1], d[i + 3]);
    }
    const int lane = thread() % 32, warp = thread() / 32;
    if constexpr (kIs16Bit<T>) {
      const int pixel = lane / 16 * 8 + lane % 8;
      const int vector = (2 * warp + lane / 8 % 2) ^ (lane % 8);
      const std::uint32_t mine = to + pixel * 128 + vector * 16;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float* e = d + 8 * i;
        ptx::store_transposed(mine + i * 2048, pack_pair<T, kReluInConversion>(e[0], e[1]),
                              pack_pair<T, kReluInConversion>(e[2], e[3]), pack_pair<T, kReluInConversion>(e[4], e[5]),
                              pack_pair<T, kReluInConversion>(e[6], e[7]));
      }
    } else {
#pragma unroll
      for (int i = 0; i < 16; ++i) store_f32(to, i / 4 * 8 + lane % 4 * 2 + i % 2, i / 2 % 2, d[i]);
    }
  }

  /// Eight pooled pixels; a thread holds lane % 4 and lane % 4 + 4.
  template <Activation activation>
  __device__ void put_pooled(const float (&d)[16], std::uint32_t to) const {
    const bool rows_of_16 = a_.output.row == 16;  // then the pixel below lies two groups further, else one
    float top[2], bottom[2];                      // by channel: of pooled pixels lane % 4 and lane % 4 + 4
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float m[4];
#pragma unroll
      for (int group = 0; group < 4; ++group) m[group] = max_or_nan(d[4 * group + 2 * c], d[4 * group + 2 * c + 1]);
      top[c] = max_or_nan(m[0], rows_of_16 ? m[2] : m[1]);
      bottom[c] = max_or_nan(m[3], rows_of_16 ? m[1] : m[2]);
    }
    finish<activation>(top[0], top[1]);
    finish<activation>(bottom[0], bottom[1]);
    const int lane = thread() % 32, warp = thread() / 32;
    if constexpr (kIs16Bit<T>) {
      const int pixel = lane % 8 / 2 + lane % 2 * 4;
      const int vector = (2 * warp + lane / 8 % 2) ^ pixel;
      ptx::store_transposed(to + pixel * 128 + vector * 16, pack_pair<T>(top[0], bottom[0]),
                            pack_pair<T>(top[1], bottom[1]));
    } else {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        store_f32(to, lane % 4, c, top[c]);
        store_f32(to, lane % 4 + 4, c, bottom[c]);
      }
    }
  }

  __device__ void store_f32(std::uint32_t to, int pixel, int half, float value) const {
    const int lane = thread() % 32, warp = thread() / 32;
    const int vector = (warp % 2 * 4 + lane / 16 + half * 2) ^ (pixel % 8);
    ptx::store_word(to + warp / 2 * kSubtile + pixel * 128 + vector * 16 + lane / 4 % 4 * 4, value);
  }

  // Recomputed at each use, which saves registers.
  __device__ static int thread() { return threadIdx.x % kWarpgroup; }
  __device__ static int consumer() { return threadIdx.x / kWarpgroup; }
  __device__ static int barrier() { return kEpilogueBarrier + consumer(); }
  __device__ int rank() const { return rank_of(a_); }
  __device__ bool finishes(int chunk) const { return !Memory::kSplits || (chunk & (a_.reduction.split - 1)) == rank(); }

  const WgmmaArguments& a_;
  const Memory& m_;
  int set_ = 0;
  float bias_[2] = {};
};

}  // namespace gable::cuda::wgmma
