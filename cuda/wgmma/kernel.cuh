// wgmma: implicit-GEMM convolution on Hopper's warpgroup matrix product, persistent and warp-specialised.
// Sums of 64 output channels x N pixels (N = 256, 224, 192 or 128) += W[64][128 B of input channels] * X[N][same]^T for
// each filter tap: a step, four m64nNk16. Two consumer warpgroups hold N/2 sums a thread; one thread loads for both.
// Shared memory: boxes of input (8x32 pixels with a 3x3 halo: 43.5 KB, 2 to 4 stages) that all taps read as shifted
// operand starts, since the swizzle is a function of the address, or boxes of N pixels that the copy engine gathers by
// tap; weights in a ring of 8 KB stages or, where they fit, for good; 24 KB a consumer of outputs on their way. Taking
// turns on the matrix unit, one consumer's epilogue (maximum, bias, activation, transposition, tensor store) hides
// behind the other's products; side by side on 128 channels they ask L2 for less: 48 KB instead of 80 KB in 1024 cycles
// of 1x1.
#pragma once

#include "cuda/common/halo_tile.h"
#include "cuda/wgmma/geometry.h"
#include "cuda/wgmma/ptx.cuh"

#include <type_traits>

namespace gable::cuda {

/// What the kernel needs of a plan and a call. Lives in the constant bank.
struct WgmmaArguments {
  CUtensorMap x, y;
  const unsigned char* weights;  ///< as pack_wgmma_weights() leaves them
  const float* bias;             ///< or null
  float4* partials;              ///< where blocks of a cluster leave sums for each other
  int outputs;                   ///< output channels
  int items;
  Divisor by_channel_tiles, by_pixel_tiles, by_tiles_x, by_tiles_y, by_out_w, by_out_h;
  int tile_w, tile_h, tile_n, stride_w, stride_h;
  int row;
  int chunk_x, chunk_y, chunks_per_image;  ///< steps of what the epilogue stores at once, in output pixels
  int channel_blocks, parts, box_count, tap_count;
  int share_ends[kWgmmaMaxSplit];
  int split;  ///< blocks of a cluster that share the reduction of one item, a power of two
  int box_stages, box_stage_bytes, box_bytes, weight_stages, group_pitch;
  int first_x, first_y;  ///< for boxes by tap: where the first filter of an image starts
  WgmmaSchedule schedule;
  bool by_tap, pixels_first, resident_weights, pool;
  Activation activation;
  WgmmaBox boxes[kWgmmaMaxBoxes];
  short shifts[kWgmmaMaxSteps];
};

namespace wgmma {

constexpr int kConsumers = 2;
constexpr int kWarpgroup = 128;
constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
constexpr int kMaxStages = 40;  // of boxes and of weights: their barriers fit the first KB

/// Named barriers; 0 is __syncthreads'.
constexpr int kTurnBarrier = 1, kEpilogueBarrier = 3;  // and the next each

/// Stands for f32 tensors of which x is cut into bf16 parts.
struct Parts {};

template <typename T>
struct OperandOf {
  using Type = T;
};
template <>
struct OperandOf<Parts> {
  using Type = __nv_bfloat16;
};

template <typename T>
constexpr int kBlockChannels = std::is_same_v<T, ptx::Tf32> ? 32 : 64;
template <typename T>
constexpr bool kIs16Bit = sizeof(T) == 2;  // of outputs

/// A place in a ring and the parity of its current round.
struct Cursor {
  int slot = 0;
  std::uint32_t round = 0;
  __device__ void advance(int steps, int size) {
    slot += steps;
    while (slot >= size) {
      slot -= size;
      round ^= 1;
    }
  }
  __device__ void advance_one(int size) {
    const bool last = slot + 1 == size;
    slot = last ? 0 : slot + 1;
    round ^= last ? 1 : 0;
  }
};

/// Addresses of what lies in shared memory: barriers in the first KB, then boxes, weights and outputs.
struct Memory {
  std::uint32_t base;
  int box_stages, weight_stages, box_stage_bytes, slices;

  __device__ std::uint32_t box_full(int i) const { return base + 8 * i; }
  __device__ std::uint32_t box_empty(int i) const { return base + 8 * (box_stages + i); }
  __device__ std::uint32_t weights_full(int i) const { return base + 8 * (2 * box_stages + i); }
  __device__ std::uint32_t weights_empty(int i) const { return base + 8 * (2 * box_stages + weight_stages + i); }
  __device__ std::uint32_t partials_ready(int consumer) const {
    return base + 8 * (2 * box_stages + 2 * weight_stages + consumer);
  }
  __device__ std::uint32_t box(int i) const { return base + 1024 + i * box_stage_bytes; }
  __device__ std::uint32_t weights(int i, int slice) const {
    return box(box_stages) + (i * slices + slice) * kWgmmaWeightBytes;
  }
  __device__ std::uint32_t outputs(int consumer) const {
    return weights(weight_stages, 0) + consumer * kWgmmaStagingBytes;
  }
};

struct Tile {
  int x, y, n, channel_tile;  // of the first output pixel
};

/// An integer division costs some hundred cycles, and the first loads wait for several.
__device__ inline int divide(int a, const Divisor& d) {
  if (d.value == 1) return a;
  return d.reciprocal != 0 ? static_cast<int>(__umulhi(static_cast<unsigned>(a), d.reciprocal))
                           : a / static_cast<int>(d.value);
}
/// Of a power of two.
__device__ inline int log_of(int power) { return __popc(power - 1); }

__device__ inline Tile tile_of(const WgmmaArguments& a, int item) {
  int t, channel_tile;
  if (a.pixels_first) {
    channel_tile = divide(item, a.by_pixel_tiles);
    t = item - channel_tile * static_cast<int>(a.by_pixel_tiles.value);
  } else {
    t = divide(item, a.by_channel_tiles);
    channel_tile = item - t * static_cast<int>(a.by_channel_tiles.value);
  }
  const int row = divide(t, a.by_tiles_x), image = divide(row, a.by_tiles_y);
  const int x = t - row * static_cast<int>(a.by_tiles_x.value), y = row - image * static_cast<int>(a.by_tiles_y.value);
  return {x * a.tile_w, y * a.tile_h, image * a.tile_n, channel_tile};
}

/// What this block works on. In each round, the first item from `begin` and the `partner`th after it are the
/// consumers'. The blocks of a cluster work on the same items, each on its share of the reduction.
struct Rounds {
  int begin, end, step, partner;
};
__device__ inline Rounds rounds_of(const WgmmaArguments& a) {
  const int workers = static_cast<int>(gridDim.x) >> log_of(a.split);
  const int worker = static_cast<int>(blockIdx.x) >> log_of(a.split);
  if (a.schedule != WgmmaSchedule::own_tiles) return {worker, a.items, workers, 0};
  return {worker, a.items, kConsumers * workers, workers};
}
__device__ inline int rank_of(const WgmmaArguments& a) { return static_cast<int>(blockIdx.x) & (a.split - 1); }

/// The boxes of all channel blocks that this block loads for an item.
struct Share {
  int begin, end;
};
__device__ inline Share share_of(const WgmmaArguments& a) {
  const int rank = rank_of(a);
  return {rank == 0 ? 0 : a.share_ends[rank - 1], a.share_ends[rank]};
}
__device__ inline int steps_of(const WgmmaArguments& a, const Share& share) {
  if (a.split == 1) return a.channel_blocks * a.tap_count;
  int steps = 0;
  for (int block = share.begin; block < share.end; ++block) steps += a.boxes[block % a.box_count].taps;
  return steps;
}

__device__ inline int channel_slice(const WgmmaArguments& a, const Tile& tile, int consumer) {
  return a.schedule == WgmmaSchedule::one_tile ? tile.channel_tile * kConsumers + consumer : tile.channel_tile;
}

/// Where a tile's first filter starts in the input.
__device__ inline Tile origin_of(const WgmmaArguments& a, const Tile& tile) {
  if (!a.by_tap) return {tile.x * a.stride_w, tile.y * a.stride_h, tile.n, 0};
  const int y = divide(tile.x, a.by_out_w), image = divide(y, a.by_out_h);  // a tile is a piece of the batch's line
  const int column = tile.x - y * static_cast<int>(a.by_out_w.value);
  const int row = y - image * static_cast<int>(a.by_out_h.value);
  return {a.first_x + column * a.stride_w, a.first_y + row * a.stride_h, image, 0};
}

/// What the one loading thread knows.
template <typename T>
class Producer {
 public:
  __device__ Producer(const WgmmaArguments& a, const Memory& m) : a_(a), m_(m) {}

  /// Loads what the consumers will read, in the order in which they will.
  __device__ void run() {
    const Rounds rounds = rounds_of(a_);
    const Share share = share_of(a_);
    bool weights_there = false;
    for (int first = rounds.begin; first < rounds.end; first += rounds.step) {
      const int tiles = a_.schedule == WgmmaSchedule::own_tiles ? kConsumers : 1;
      for (int consumer = 0; consumer < tiles; ++consumer) {
        const int item = first + consumer * rounds.partner;
        if (item >= rounds.end) continue;
        load(tile_of(a_, item), share, !weights_there);
        weights_there = a_.resident_weights;
      }
    }
  }

 private:
  __device__ void load(const Tile& tile, const Share& share, bool weights) {
    const Tile origin = origin_of(a_, tile);
    const int slice = channel_slice(a_, tile, 0);
    int channel_block = share.begin == 0 ? 0 : share.begin / a_.box_count;
    int index = share.begin - channel_block * a_.box_count;
    for (int block = share.begin; block < share.end; ++block) {
      const WgmmaBox b = a_.boxes[index];
      if (b.first || block == share.begin) load_pixels(origin, b, channel_block);
      if (weights) {
        for (int tap = b.first_tap; tap < b.first_tap + b.taps; ++tap) load_weights(slice, channel_block, tap);
      }
      if (++index == a_.box_count) {
        index = 0;
        ++channel_block;
      }
    }
  }

  __device__ void load_pixels(const Tile& origin, const WgmmaBox& b, int channel_block) {
    const std::uint32_t full = m_.box_full(box_.slot), to = m_.box(box_.slot);
    const int channel = (channel_block * a_.parts + b.part) * kBlockChannels<T>;
    ptx::wait(m_.box_empty(box_.slot), box_.round ^ 1);
    ptx::arrive_expect_bytes(full, a_.box_bytes);
    if (a_.by_tap) {
      ptx::load_pixels_of_tap(to, a_.x, channel, origin.x, origin.y, origin.n, b.dx, b.dy, full);
    } else {
      ptx::load_box(to, a_.x, channel, origin.x + b.dx, origin.y + b.dy, origin.n, full);
    }
    box_.advance_one(a_.box_stages);
  }

  __device__ void load_weights(int first_slice, int channel_block, int tap) {
    const std::uint32_t full = m_.weights_full(weights_.slot);
    if (!a_.resident_weights) ptx::wait(m_.weights_empty(weights_.slot), weights_.round ^ 1);
    ptx::arrive_expect_bytes(full, m_.slices * kWgmmaWeightBytes);
    for (int slice = 0; slice < m_.slices; ++slice) {
      const std::size_t stage =
          (static_cast<std::size_t>(first_slice + slice) * a_.channel_blocks + channel_block) * a_.tap_count + tap;
      ptx::load_bulk(m_.weights(weights_.slot, slice), a_.weights + stage * kWgmmaWeightBytes, kWgmmaWeightBytes, full);
    }
    weights_.advance_one(a_.weight_stages);
  }

  const WgmmaArguments& a_;
  const Memory& m_;
  Cursor box_, weights_;
};

/// The greater; NaN if either is, as the maximum of a window with a NaN is NaN.
__device__ inline float greater(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}

template <Activation activation>
__device__ inline float apply(float v) {
  if constexpr (activation == Activation::relu) return greater(v, 0.0f);
  if constexpr (activation == Activation::tanh) {
    const float square = v * v;
    const float series = v + v * square * (-1.0f / 3 + square * (2.0f / 15 + square * (-17.0f / 315)));
    const float quotient = 1.0f - __fdividef(2.0f, __expf(2.0f * v) + 1.0f);
    return fabsf(v) < 0.2f ? series : v > 15.0f ? 1.0f : quotient;
  }
  return v;
}

/// Two values rounded to 16 bits; with `relu`, the greater of each and 0 in the same instruction (NaN stays NaN).
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

/// The consumer's outputs leave in chunks of 32 pixels through a ring of staging slots. Sums of a thread, for pixels
/// 8 j + 2 (lane % 4) and the next: d[4 j], d[4 j + 1] of channel 16 warp + lane / 4, d[4 j + 2], d[4 j + 3] of 8
/// further.
template <typename T>
class Epilogue {
 public:
  __device__ Epilogue(const WgmmaArguments& a, const Memory& m) : a_(a), m_(m) {}

  __device__ void set_bias(int channel) {
    const int mine = channel + thread() / 32 * 16 + thread() % 32 / 4;
    bias_[0] = a_.bias != nullptr && mine < a_.outputs ? __ldg(a_.bias + mine) : 0.0f;
    bias_[1] = a_.bias != nullptr && mine + 8 < a_.outputs ? __ldg(a_.bias + mine + 8) : 0.0f;
  }

  /// What differs between plans is decided here, once a tile: a test for each element would cost more than its
  /// arithmetic.
  template <int pixels>
  __device__ void run(float (&sums)[pixels / 2], const Tile& tile, int channel, int item) {
    if (a_.split > 1) {
      exchange<pixels / kWgmmaChunk>(sums, item);
      gather<pixels / kWgmmaChunk>(sums, item);
    }
    if (a_.activation == Activation::relu) {
      run_pooled_or_not<pixels, Activation::relu>(sums, tile, channel);
    } else if (a_.activation == Activation::tanh) {
      run_pooled_or_not<pixels, Activation::tanh>(sums, tile, channel);
    } else {
      run_pooled_or_not<pixels, Activation::none>(sums, tile, channel);
    }
  }

 private:
  /// Where a chunk's outputs go.
  struct Place {
    int channel, x, y, n;
  };

  template <int pixels, Activation activation>
  __device__ void run_pooled_or_not(const float (&sums)[pixels / 2], const Tile& tile, int channel) {
    if (a_.pool) {
      store_tile<pixels, activation, true>(sums, {channel, tile.x / 2, tile.y / 2, tile.n});
    } else {
      store_tile<pixels, activation, false>(sums, {channel, tile.x, tile.y, tile.n});
    }
  }

  template <int pixels, Activation activation, bool pool>
  __device__ void store_tile(const float (&sums)[pixels / 2], Place place) {
    constexpr int kChunks = pixels / kWgmmaChunk;
    const int first_y = place.y;
    int chunks_left = a_.chunks_per_image;
    const auto step = [&] {
      place.x += a_.chunk_x;
      place.y += a_.chunk_y;
      if (--chunks_left == 0) {
        chunks_left = a_.chunks_per_image;
        place.y = first_y;
        ++place.n;
      }
    };
    if (a_.schedule == WgmmaSchedule::promoted && consumer() == 1) {  // the other has the first half of the tile
      for (int chunk = 0; chunk < kChunks; ++chunk) step();
    }
#pragma unroll
    for (int first = 0; first < kChunks; first += kTogether) {
      Place places[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int chunk = first + i;
        if (chunk >= kChunks) break;
        places[i] = place;
        if (is_mine(chunk)) {
          float d[16];
#pragma unroll
          for (int j = 0; j < 16; ++j) d[j] = sums[16 * chunk + j];
          stage_chunk<activation, pool>(d, slot(i));
        }
        step();
      }
      store_staged<kChunks>(first, places);
    }
  }

  /// Chunks between two barriers; two barriers apart, their slots are free again.
  static constexpr int kTogether = kIs16Bit<T> ? 2 : 1;
  static constexpr int kSlotBytes = kIs16Bit<T> ? 4096 : 8192;
  static constexpr int kSets = kWgmmaStagingBytes / kSlotBytes / kTogether;
  static constexpr int kSubtile = 4096;  // f32: 32 channels of 32 pixels; 16 bit: all 64

  /// Sums of one chunk, as the threads hold them: four float4 a thread, threads innermost.
  template <int chunks>
  __device__ float4* partials(int item, int rank, int chunk) const {
    const std::size_t tile = (static_cast<std::size_t>(item) * kConsumers + consumer()) * a_.split + rank;
    return a_.partials + (tile * chunks + chunk) * (4 * kWarpgroup) + thread();
  }

  /// Leaves the chunks that other blocks of the cluster finish, and waits for the others' shares of mine.
  template <int chunks>
  __device__ void exchange(const float (&sums)[16 * chunks], int item) {
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) {
      if (is_mine(chunk)) continue;
      float4* const to = partials<chunks>(item, rank(), chunk);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* d = sums + 16 * chunk + 4 * i;
        __stcg(to + i * kWarpgroup, make_float4(d[0], d[1], d[2], d[3]));
      }
    }
    ptx::named_sync(barrier(), kWarpgroup);
    if (thread() < a_.split) ptx::arrive_remote(m_.partials_ready(consumer()), thread());
    ptx::wait_cluster(m_.partials_ready(consumer()), exchanges_++ % 2);
  }

  /// Adds the others' shares of the chunks that this block finishes.
  template <int chunks>
  __device__ void gather(float (&sums)[16 * chunks], int item) const {
    for (int other = 1; other < a_.split; ++other) {
#pragma unroll
      for (int chunk = 0; chunk < chunks; ++chunk) {
        if (!is_mine(chunk)) continue;
        const float4* const from = partials<chunks>(item, (rank() + other) & (a_.split - 1), chunk);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float4 v = __ldcg(from + i * kWarpgroup);
          float* const d = sums + 16 * chunk + 4 * i;
          d[0] += v.x;
          d[1] += v.y;
          d[2] += v.z;
          d[3] += v.w;
        }
      }
    }
  }

  __device__ std::uint32_t slot(int i) const { return m_.outputs(consumer()) + (set_ * kTogether + i) * kSlotBytes; }

  template <Activation activation, bool pool>
  __device__ void stage_chunk(float (&d)[16], std::uint32_t to) const {
    if constexpr (pool) {
      stage_pooled<activation>(d, to);
    } else {
      stage<activation>(d, to);
    }
  }

  /// Sends those of the chunks from `first` on that this block finishes.
  template <int chunks>
  __device__ void store_staged(int first, const Place (&places)[kTogether]) {
    ptx::fence_shared_for_async();
    // The barrier also tells all that the set after this one is free: all but kSets - 2 sets have been read.
    if (thread() == 0) ptx::wait_stores_read<kSets - 2>();
    ptx::named_sync(barrier(), kWarpgroup);
    if (thread() == 0) {
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (first + i >= chunks || !is_mine(first + i)) continue;
        const Place& at = places[i];
        ptx::store_box(a_.y, at.channel, at.x, at.y, at.n, slot(i));
        if constexpr (!kIs16Bit<T>) ptx::store_box(a_.y, at.channel + 32, at.x, at.y, at.n, slot(i) + kSubtile);
      }
      ptx::commit_stores();
    }
    set_ = set_ + 1 == kSets ? 0 : set_ + 1;
  }

  template <Activation activation>
  __device__ void finish(float& low, float& high) const {  // the two channels of a thread
    low = apply<activation>(low + bias_[0]);
    high = apply<activation>(high + bias_[1]);
  }

  template <Activation activation>
  __device__ void stage(float (&d)[16], std::uint32_t to) const {
    constexpr bool kReluLater = kIs16Bit<T> && activation == Activation::relu;  // in the conversion
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
      finish<kReluLater ? Activation::none : activation>(d[i], d[i + 2]);
      finish<kReluLater ? Activation::none : activation>(d[i + 1], d[i + 3]);
    }
    const int lane = thread() % 32, warp = thread() / 32;
    if constexpr (kIs16Bit<T>) {
      const int pixel = lane / 16 * 8 + lane % 8;
      const int vector = (2 * warp + lane / 8 % 2) ^ (lane % 8);
      const std::uint32_t mine = to + pixel * 128 + vector * 16;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float* e = d + 8 * i;
        ptx::store_transposed(mine + i * 2048, pack_pair<T, kReluLater>(e[0], e[1]),
                              pack_pair<T, kReluLater>(e[2], e[3]), pack_pair<T, kReluLater>(e[4], e[5]),
                              pack_pair<T, kReluLater>(e[6], e[7]));
      }
    } else {
#pragma unroll
      for (int i = 0; i < 16; ++i) store_f32(to, i / 4 * 8 + lane % 4 * 2 + i % 2, i / 2 % 2, d[i]);
    }
  }

  /// Eight pooled pixels, of which a thread holds lane % 4 and the fourth after it.
  template <Activation activation>
  __device__ void stage_pooled(const float (&d)[16], std::uint32_t to) const {
    const bool wide = a_.row == 16;  // the pixel below lies two groups on instead of one
    float top[2], bottom[2];         // by channel: of pooled pixel lane % 4 and of the fourth after it
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float m[4];
#pragma unroll
      for (int group = 0; group < 4; ++group) m[group] = greater(d[4 * group + 2 * c], d[4 * group + 2 * c + 1]);
      top[c] = greater(m[0], wide ? m[2] : m[1]);
      bottom[c] = greater(m[3], wide ? m[1] : m[2]);
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

  // Recomputed where they are used: registers are scarcer than instructions here.
  __device__ static int thread() { return threadIdx.x % kWarpgroup; }
  __device__ static int consumer() { return threadIdx.x / kWarpgroup; }
  __device__ static int barrier() { return kEpilogueBarrier + consumer(); }
  __device__ int rank() const { return rank_of(a_); }
  __device__ bool is_mine(int chunk) const { return (chunk & (a_.split - 1)) == rank(); }

  const WgmmaArguments& a_;
  const Memory& m_;
  std::uint32_t exchanges_ = 0;
  int set_ = 0;
  float bias_[2] = {};
};

/// The steps of a consumer's item: where each finds its operands. What the next needs is worked out while the matrix
/// unit is busy with one, since the gap between two steps is the unit's idle time.
class Steps {
 public:
  __device__ Steps(const WgmmaArguments& a, const Memory& m, const Share& share, int slice)
      : a_(a),
        m_(m),
        blocks_(share.end - share.begin),
        first_box_(share.begin == 0 ? 0 : share.begin % a.box_count),
        slice_(slice) {}

  __device__ void begin(const Cursor& box, const Cursor& weights) {
    box_ = box;
    weights_ = weights;
    blocks_left_ = blocks_;
    index_ = first_box_;
    const WgmmaBox b = a_.boxes[index_];
    tap_ = b.first_tap;
    end_ = b.first_tap + b.taps;
    opens_box_ = true;
    ready_ = false;
    locate();
  }

  /// Until the step's operands are there.
  __device__ void wait() const {
    if (ready_) return;
    if (opens_box_) ptx::wait(m_.box_full(box_.slot), box_.round);
    ptx::wait(m_.weights_full(weights_.slot), weights_.round);
  }

  /// To the next step; its operands may be there or not. Without branches, since products are being issued around it.
  __device__ void advance() {
    opens_box_ = tap_ + 1 == end_;
    closed_box_ = opens_box_ ? box_.slot : -1;
    used_weights_ = weights_.slot;
    weights_.advance_one(a_.weight_stages);
    Cursor next_box = box_;
    next_box.advance_one(a_.box_stages);
    const int next_index = index_ + 1 == a_.box_count ? 0 : index_ + 1;
    box_.slot = opens_box_ ? next_box.slot : box_.slot;
    box_.round = opens_box_ ? next_box.round : box_.round;
    index_ = opens_box_ ? next_index : index_;
    blocks_left_ -= opens_box_ ? 1 : 0;
    const WgmmaBox b = a_.boxes[index_];
    tap_ = opens_box_ ? b.first_tap : tap_ + 1;
    end_ = b.first_tap + b.taps;
    locate();
    // Of a box that is open already, the phase is complete.
    const bool weights_ready = ptx::is_complete(m_.weights_full(weights_.slot), weights_.round);
    const bool box_ready = ptx::is_complete(m_.box_full(box_.slot), box_.round);
    ready_ = weights_ready & box_ready;
  }

  __device__ bool done() const { return blocks_left_ == 0; }
  __device__ std::uint64_t left() const { return combine(left_, high_of(kWeightsPitch)); }
  __device__ std::uint64_t right() const { return combine(right_, high_of(a_.group_pitch)); }
  /// What the step before advance() read for the last time; -1: no box.
  __device__ int used_weights() const { return used_weights_; }
  __device__ int closed_box() const { return closed_box_; }
  __device__ const Cursor& box() const { return box_; }
  __device__ const Cursor& weights() const { return weights_; }

 private:
  static constexpr int kPixel = 128 >> 4;  // in the descriptor's units of 16 bytes
  static constexpr int kWeightsPitch = 1024;
  __device__ static std::uint32_t high_of(int group_pitch) {
    return static_cast<std::uint32_t>(ptx::operand_descriptor(0, group_pitch) >> 32);
  }
  __device__ static std::uint64_t combine(std::uint32_t low, std::uint32_t high) {
    return static_cast<std::uint64_t>(high) << 32 | low;
  }
  __device__ void locate() {
    left_ = static_cast<std::uint32_t>(ptx::operand_descriptor(m_.weights(weights_.slot, slice_), 0));
    right_ = static_cast<std::uint32_t>(ptx::operand_descriptor(m_.box(box_.slot), 0)) + a_.shifts[tap_] * kPixel;
    asm volatile("" : "+r"(left_), "+r"(right_));  // here, not where they are used
  }

  const WgmmaArguments& a_;
  const Memory& m_;
  int blocks_, first_box_, slice_;
  Cursor box_, weights_;
  int blocks_left_ = 0, index_ = 0, tap_ = 0, end_ = 0, used_weights_ = -1, closed_box_ = -1;
  bool opens_box_ = true, ready_ = false;
  std::uint32_t left_ = 0, right_ = 0;
};

/// Frees stages for the loading thread once no product reads them.
struct Release {
  int box = -1, weights = -1;
  __device__ void operator()(const Memory& m) const {
    if (threadIdx.x % 32 != 0) return;  // barriers count warps
    if (weights >= 0) ptx::arrive(m.weights_empty(weights));
    if (box >= 0) ptx::arrive(m.box_empty(box));
  }
};

/// Issues an item's products. The last may still run; what they read is returned.
template <typename T, int pixels>
__device__ Release multiply_item(const WgmmaArguments& a, const Memory& m, Steps& steps, float (&sums)[pixels / 2]) {
  constexpr int kDescriptorStep = 32 >> 4;
  Release old;
  int accumulate = 0;
  do {
    steps.wait();
    const std::uint64_t left = steps.left(), right = steps.right();
    ptx::fence_operands();
    ptx::multiply<typename OperandOf<T>::Type, pixels>(sums, left, right, accumulate);
    steps.advance();
    accumulate = 1;
#pragma unroll
    for (int k = 1; k < 4; ++k) {
      ptx::multiply<typename OperandOf<T>::Type, pixels>(sums, left + k * kDescriptorStep, right + k * kDescriptorStep,
                                                         accumulate);
    }
    ptx::commit_products();
    ptx::wait_products<1>();
    old(m);
    old = {steps.closed_box(), a.resident_weights ? -1 : steps.used_weights()};
  } while (!steps.done());
  return old;
}

template <typename T, int pixels>
__device__ void consume(const WgmmaArguments& a, const Memory& m, int consumer) {
  const bool turns = a.schedule != WgmmaSchedule::one_tile;
  const int other = 1 - consumer;
  const Rounds rounds = rounds_of(a);
  const Share share = share_of(a);
  // Of the partner's item, between this consumer's in the rings.
  const int partner_boxes = turns ? share.end - share.begin : 0;
  const int partner_steps = turns && !a.resident_weights ? steps_of(a, share) : 0;
  Epilogue<T> epilogue(a, m);
  Steps steps(a, m, share, turns ? 0 : consumer);
  Cursor box, weights;
  float sums[pixels / 2];
  if (turns && consumer == 1) ptx::named_arrive(kTurnBarrier, kConsumers * kWarpgroup);
  for (int first = rounds.begin; first < rounds.end; first += rounds.step) {
    const int item = first + consumer * rounds.partner;
    const bool active = item < rounds.end;
    const bool partner = first + other * rounds.partner < rounds.end;
    const Tile tile = tile_of(a, active ? item : first);
    const int channel = channel_slice(a, tile, consumer) * kWgmmaChannels;
    epilogue.set_bias(channel);
    if (a.resident_weights) weights = {};
    if (partner && consumer == 1) {
      box.advance(partner_boxes, a.box_stages);
      weights.advance(partner_steps, a.weight_stages);
    }
    Release old;
    if (turns) ptx::named_sync(kTurnBarrier + consumer, kConsumers * kWarpgroup);
    if (active) {
      steps.begin(box, weights);
      old = multiply_item<T, pixels>(a, m, steps, sums);
      box = steps.box();
      weights = steps.weights();
    }
    if (turns && (consumer == 0 || first + rounds.step < rounds.end)) {
      ptx::named_arrive(kTurnBarrier + other, kConsumers * kWarpgroup);
    }
    ptx::wait_products<0>();
    old(m);
    if (partner && consumer == 0) {
      box.advance(partner_boxes, a.box_stages);
      weights.advance(partner_steps, a.weight_stages);
    }
    if (!active) continue;
    ptx::fence_sums(sums);
    epilogue.template run<pixels>(sums, tile, channel, item);
  }
  if (threadIdx.x % kWarpgroup == 0) ptx::wait_stores_read<0>();  // the last read of shared memory
}

__device__ inline void set_up(const WgmmaArguments& a, const Memory& m) {
  if (threadIdx.x == 0) {
    const int box_readers = a.schedule == WgmmaSchedule::own_tiles ? 4 : 4 * kConsumers;  // warps
    for (int i = 0; i < a.box_stages; ++i) {
      ptx::init_barrier(m.box_full(i), 1);
      ptx::init_barrier(m.box_empty(i), box_readers);
    }
    for (int i = 0; i < a.weight_stages; ++i) {
      ptx::init_barrier(m.weights_full(i), 1);
      ptx::init_barrier(m.weights_empty(i), a.schedule == WgmmaSchedule::own_tiles ? 4 : 4 * kConsumers);
    }
    for (int i = 0; i < kConsumers; ++i) ptx::init_barrier(m.partials_ready(i), a.split);
    ptx::fence_barrier_init();
    ptx::prefetch_map(a.x);
    ptx::prefetch_map(a.y);
  }
  // What lies behind a box is read for rows below the last image, which must find zeros.
  for (int i = 0; i < a.box_stages; ++i) {
    for (int at = a.box_bytes + 4 * threadIdx.x; at < a.box_stage_bytes; at += 4 * kThreads) {
      ptx::store_word(m.box(i) + at, 0.0f);
    }
  }
  ptx::fence_shared_for_async();
  __syncthreads();
  if (a.split > 1) ptx::sync_cluster();  // no block signals a barrier before its owner has set it up
}

/// `consumer`: the work of a consumer warpgroup, consume<> or another in its place.
template <typename T, auto consumer, int feeding_registers = 56, int consuming_registers = 224>
__global__ void __launch_bounds__(kThreads, 1) kernel(const __grid_constant__ WgmmaArguments a) {
  extern __shared__ unsigned char shared[];
  const Memory m{(ptx::shared_address(shared) + 1023) & ~1023u, a.box_stages, a.weight_stages, a.box_stage_bytes,
                 a.schedule == WgmmaSchedule::one_tile ? kConsumers : 1};
  set_up(a, m);
  ptx::allow_next_kernel();
  ptx::wait_for_previous_kernel();
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / kWarpgroup, 0);  // the same in a warp, visibly
  if (warpgroup == kConsumers) {
    ptx::release_registers<feeding_registers>();
    if (threadIdx.x == kConsumers * kWarpgroup) Producer<T>(a, m).run();
  } else {
    ptx::take_registers<consuming_registers>();
    consumer(a, m, warpgroup);
  }
}

}  // namespace wgmma
}  // namespace gable::cuda
