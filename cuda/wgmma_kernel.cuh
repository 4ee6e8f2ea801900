// wgmma: implicit-GEMM convolution on Hopper's warpgroup matrix product, persistent and warp-specialised.
// Sums of 64 output channels x N pixels (N = 256, 224 or 128) += W[64][128 B of input channels] * X[N][the same]^T, for
// each filter tap. One m64nNk16 reads 2 KB of weights and 8 KB of pixels (N = 256) for 524,288 FLOP in 128 cycles: 80
// of the 128 bytes a cycle that shared memory gives. A step, one tap of one channel block, is four of them. Registers:
// 64 x N sums in f32 a consumer warpgroup, N/2 a thread. L2 gives a step 8 KB of weights and 5 KB of input. Shared
// memory: boxes of input (8x32 pixels with a 3x3 halo: 43.5 KB, 2 to 4 stages) that all taps read as shifted operand
// starts, since the swizzle is a function of the address; weights in a ring of 8 KB stages or, where they fit, for
// good; 24 KB a consumer of outputs on their way. Two consumers take turns on the matrix unit, so that one's epilogue
// (maximum, bias, activation, transposition, tensor store) hides behind the other's products; one thread feeds both.
#pragma once

#include <type_traits>

#include "cuda/wgmma_geometry.h"
#include "cuda/wgmma_ptx.cuh"

namespace gable::cuda {

/// What the kernel needs of a plan and a call. Lives in the constant bank.
struct WgmmaArguments {
  CUtensorMap x, y;
  const unsigned char* weights;  ///< as pack_wgmma_weights() leaves them
  const float* bias;             ///< or null
  float4* partials;              ///< where blocks of a cluster leave sums for each other
  int outputs;                   ///< output channels
  int items, channel_tiles, tiles_x, tiles_y;
  int tile_w, tile_h, tile_n, stride_w, stride_h;
  int row;
  int chunk_x, chunk_y, chunks_per_image;  ///< steps of what the epilogue stores at once, in output pixels
  int channel_blocks, parts, box_count, tap_count, burst;
  int feeds;  ///< 2: each consumer has its own weights; 1: both read the same, each for its half of the pixels
  int share_ends[kWgmmaMaxSplit];
  int split;  ///< blocks of a cluster that share the reduction of one item, a power of two
  int box_stages, box_stage_bytes, box_bytes, weight_stages, group_pitch;
  bool one_pixel_tile, resident_weights, pool;
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
};

/// Addresses of what lies in shared memory: barriers in the first KB, then boxes, weights and outputs.
struct Memory {
  std::uint32_t base;
  int box_stages, weight_stages, box_stage_bytes;

  __device__ std::uint32_t box_full(int i) const { return base + 8 * i; }
  __device__ std::uint32_t box_empty(int i) const { return base + 8 * (box_stages + i); }
  __device__ std::uint32_t weights_full(int i) const { return base + 8 * (2 * box_stages + i); }
  __device__ std::uint32_t weights_empty(int i) const { return base + 8 * (2 * box_stages + weight_stages + i); }
  __device__ std::uint32_t partials_ready(int consumer) const {
    return base + 8 * (2 * box_stages + 2 * weight_stages + consumer);
  }
  __device__ std::uint32_t box(int i) const { return base + 1024 + i * box_stage_bytes; }
  __device__ std::uint32_t weights(int i) const { return box(box_stages) + i * kWgmmaWeightBytes; }
  __device__ std::uint32_t outputs(int consumer) const {
    return weights(weight_stages) + consumer * kWgmmaStagingBytes;
  }
};

struct Tile {
  int x, y, n, channel_tile;  // of the first output pixel
};

__device__ inline Tile tile_of(const WgmmaArguments& a, int item) {
  const int channel_tile = item % a.channel_tiles;
  int t = item / a.channel_tiles;
  const int x = t % a.tiles_x;
  t /= a.tiles_x;
  return {x * a.tile_w, t % a.tiles_y * a.tile_h, t / a.tiles_y * a.tile_n, channel_tile};
}

/// The blocks of a cluster work on the same items, each on its share of the reduction.
__device__ inline int first_item(const WgmmaArguments& a) { return static_cast<int>(blockIdx.x) / a.split; }
__device__ inline int item_stride(const WgmmaArguments& a) { return static_cast<int>(gridDim.x) / a.split; }
__device__ inline int rank_of(const WgmmaArguments& a) { return static_cast<int>(blockIdx.x) % a.split; }

/// Which tile a consumer works on in a round; both work on one, or each on its own.
__device__ inline int item_of(const WgmmaArguments& a, int first, int consumer) {
  return a.one_pixel_tile ? first : first + consumer * item_stride(a);
}
__device__ inline int round_stride(const WgmmaArguments& a) {
  return item_stride(a) * (a.one_pixel_tile ? 1 : kConsumers);
}

/// The boxes of all channel blocks that this block loads for an item.
struct Share {
  int begin, end;
};
__device__ inline Share share_of(const WgmmaArguments& a) {
  const int rank = rank_of(a);
  return {rank == 0 ? 0 : a.share_ends[rank - 1], a.share_ends[rank]};
}

__device__ inline int channel_slice(const WgmmaArguments& a, const Tile& tile, int consumer) {
  return a.one_pixel_tile && a.feeds == kConsumers ? tile.channel_tile * kConsumers + consumer : tile.channel_tile;
}

/// One thread; loads what the consumers will read, in the order in which they will.
template <typename T>
__device__ void produce(const WgmmaArguments& a, const Memory& m) {
  Cursor box, weights;
  bool resident = false;
  const Share share = share_of(a);
  const std::size_t slice_bytes = static_cast<std::size_t>(a.channel_blocks) * a.tap_count * kWgmmaWeightBytes;
  for (int first = first_item(a); first < a.items; first += round_stride(a)) {
    for (int burst = share.begin; burst < share.end; burst += a.burst) {
      for (int consumer = 0; consumer < a.feeds; ++consumer) {
        const int item = item_of(a, first, consumer);
        if (item >= a.items) continue;
        const Tile tile = tile_of(a, item);
        const unsigned char* const slice = a.weights + channel_slice(a, tile, consumer) * slice_bytes;
        for (int block = burst; block < min(burst + a.burst, share.end); ++block) {
          const int channel_block = block / a.box_count;
          const WgmmaBox b = a.boxes[block % a.box_count];
          if ((!a.one_pixel_tile || consumer == 0) && (b.first || block == share.begin)) {
            ptx::wait(m.box_empty(box.slot), box.round ^ 1);
            ptx::arrive_expect_bytes(m.box_full(box.slot), a.box_bytes);
            ptx::load_box(m.box(box.slot), a.x, (channel_block * a.parts + b.part) * kBlockChannels<T>,
                          tile.x * a.stride_w + b.dx, tile.y * a.stride_h + b.dy, tile.n, m.box_full(box.slot));
            box.advance(1, a.box_stages);
          }
          if (resident) continue;
          for (int tap = b.first_tap; tap < b.first_tap + b.taps; ++tap) {
            if (!a.resident_weights) ptx::wait(m.weights_empty(weights.slot), weights.round ^ 1);
            ptx::arrive_expect_bytes(m.weights_full(weights.slot), kWgmmaWeightBytes);
            ptx::load_bulk(m.weights(weights.slot),
                           slice + static_cast<std::size_t>(channel_block * a.tap_count + tap) * kWgmmaWeightBytes,
                           kWgmmaWeightBytes, m.weights_full(weights.slot));
            weights.advance(1, a.weight_stages);
          }
        }
        if (a.resident_weights && burst + a.burst >= share.end) resident = true;
      }
    }
  }
}

template <Activation activation>
__device__ inline float apply(float v) {
  if constexpr (activation == Activation::relu) return v < 0.0f ? 0.0f : v;  // keeps NaN
  if constexpr (activation == Activation::tanh) {
    const float square = v * v;
    const float series = v + v * square * (-1.0f / 3 + square * (2.0f / 15 + square * (-17.0f / 315)));
    const float quotient = 1.0f - __fdividef(2.0f, __expf(2.0f * v) + 1.0f);
    return fabsf(v) < 0.2f ? series : v > 15.0f ? 1.0f : quotient;
  }
  return v;
}

template <typename T>
__device__ inline std::uint32_t pack_pair(float low, float high);
template <>
__device__ inline std::uint32_t pack_pair<__half>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
template <>
__device__ inline std::uint32_t pack_pair<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
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
  __device__ void run(const float (&sums)[pixels / 2], const Tile& tile, int channel, int item) {
    if (a_.activation == Activation::relu) {
      run_pooled_or_not<pixels, Activation::relu>(sums, tile, channel, item);
    } else if (a_.activation == Activation::tanh) {
      run_pooled_or_not<pixels, Activation::tanh>(sums, tile, channel, item);
    } else {
      run_pooled_or_not<pixels, Activation::none>(sums, tile, channel, item);
    }
  }

 private:
  /// Where a chunk's outputs go.
  struct Place {
    int channel, x, y, n;
  };

  template <int pixels, Activation activation>
  __device__ void run_pooled_or_not(const float (&sums)[pixels / 2], const Tile& tile, int channel, int item) {
    if (a_.pool) {
      store_tile<pixels, activation, true>(sums, {channel, tile.x / 2, tile.y / 2, tile.n}, item);
    } else {
      store_tile<pixels, activation, false>(sums, {channel, tile.x, tile.y, tile.n}, item);
    }
  }

  template <int pixels, Activation activation, bool pool>
  __device__ void store_tile(const float (&sums)[pixels / 2], Place place, int item) {
    constexpr int kChunks = pixels / kWgmmaChunk;
    if (a_.split > 1) exchange<kChunks>(sums, item);
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
    if (a_.feeds == 1 && consumer() == 1) {  // the other has the first half of the tile
      for (int chunk = 0; chunk < kChunks; ++chunk) step();
    }
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      if ((chunk & (a_.split - 1)) == rank()) {
        float d[16];
#pragma unroll
        for (int i = 0; i < 16; ++i) d[i] = sums[16 * chunk + i];
        for (int other = 1; other < a_.split; ++other) {
          add_partial(d, partials<kChunks>(item, (rank() + other) & (a_.split - 1), chunk));
        }
        store_chunk<activation, pool>(d, place);
      }
      step();
    }
  }

  static constexpr int kSlotBytes = kIs16Bit<T> ? 4096 : 8192;
  static constexpr int kSlots = kWgmmaStagingBytes / kSlotBytes;
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
      if ((chunk & (a_.split - 1)) == rank()) continue;
      float4* const to = partials<chunks>(item, rank(), chunk);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* d = sums + 16 * chunk + 4 * i;
        __stcg(to + i * kWarpgroup, make_float4(d[0], d[1], d[2], d[3]));
      }
    }
    __threadfence();
    ptx::named_sync(barrier(), kWarpgroup);
    if (thread() < a_.split) ptx::arrive_remote(m_.partials_ready(consumer()), thread());
    ptx::wait_cluster(m_.partials_ready(consumer()), exchanges_++ % 2);
  }

  __device__ void add_partial(float (&d)[16], const float4* from) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float4 v = __ldcg(from + i * kWarpgroup);
      d[4 * i] += v.x;
      d[4 * i + 1] += v.y;
      d[4 * i + 2] += v.z;
      d[4 * i + 3] += v.w;
    }
  }

  template <Activation activation, bool pool>
  __device__ void store_chunk(float (&d)[16], const Place& place) {
    const std::uint32_t to = m_.outputs(consumer()) + slot_ * kSlotBytes;
    slot_ = slot_ + 1 == kSlots ? 0 : slot_ + 1;
    if constexpr (pool) {
      stage_pooled<activation>(d, to);
    } else {
      stage<activation>(d, to);
    }
    ptx::fence_shared_for_async();
    // The barrier also tells all that the slot after this one is free: all but kSlots - 2 stores have been read.
    if (thread() == 0) ptx::wait_stores_read<kSlots - 2>();
    ptx::named_sync(barrier(), kWarpgroup);
    if (thread() == 0) {
      ptx::store_box(a_.y, place.channel, place.x, place.y, place.n, to);
      if constexpr (!kIs16Bit<T>) ptx::store_box(a_.y, place.channel + 32, place.x, place.y, place.n, to + kSubtile);
      ptx::commit_stores();
    }
  }

  template <Activation activation>
  __device__ void finish(float& low, float& high) const {  // the two channels of a thread
    low = apply<activation>(low + bias_[0]);
    high = apply<activation>(high + bias_[1]);
  }

  template <Activation activation>
  __device__ void stage(float (&d)[16], std::uint32_t to) const {
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
      finish<activation>(d[i], d[i + 2]);
      finish<activation>(d[i + 1], d[i + 3]);
    }
    const int lane = thread() % 32, warp = thread() / 32;
    if constexpr (kIs16Bit<T>) {
      const int pixel = lane / 16 * 8 + lane % 8;
      const int vector = (2 * warp + lane / 8 % 2) ^ (lane % 8);
      const std::uint32_t mine = to + pixel * 128 + vector * 16;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float* e = d + 8 * i;
        ptx::store_transposed(mine + i * 2048, pack_pair<T>(e[0], e[1]), pack_pair<T>(e[2], e[3]),
                              pack_pair<T>(e[4], e[5]), pack_pair<T>(e[6], e[7]));
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

  /// The greater; NaN if either is, as the maximum of a window with a NaN is NaN.
  __device__ static float greater(float a, float b) {
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
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

  const WgmmaArguments& a_;
  const Memory& m_;
  std::uint32_t exchanges_ = 0;
  int slot_ = 0;
  float bias_[2] = {};
};

template <typename T, int pixels>
__device__ void consume(const WgmmaArguments& a, const Memory& m, int consumer) {
  constexpr int kDescriptorPixel = 128 >> 4, kDescriptorStep = 32 >> 4;  // in the descriptor's units of 16 bytes
  const bool speaker = threadIdx.x % 32 == 0;  // of its warp, at the barriers that count warps
  const int other = 1 - consumer;
  const Share share = share_of(a);
  Epilogue<T> epilogue(a, m);
  Cursor box, weights;
  float sums[pixels / 2];
  if (consumer == 1) ptx::named_arrive(kTurnBarrier, kConsumers * kWarpgroup);
  for (int first = first_item(a); first < a.items; first += round_stride(a)) {
    const int item = item_of(a, first, consumer);
    const bool active = item < a.items;
    const bool partner = item_of(a, first, other) < a.items;
    const Tile tile = tile_of(a, active ? item : first);
    const int channel = channel_slice(a, tile, consumer) * kWgmmaChannels;
    epilogue.set_bias(channel);
    if (a.resident_weights) weights = {};
    int accumulate = 0;
    for (int burst = share.begin; burst < share.end; burst += a.burst) {
      const int end = min(burst + a.burst, share.end);
      int partner_boxes = 0, partner_steps = 0;  // between this consumer's in the rings
      if (partner) {
        if (!a.one_pixel_tile) partner_boxes = end - burst;
        if (!a.resident_weights) {
          for (int block = burst; block < end; ++block) partner_steps += a.boxes[block % a.box_count].taps;
        }
      }
      if (consumer == 1) {
        box.advance(partner_boxes, a.box_stages);
        weights.advance(partner_steps, a.weight_stages);
      }
      ptx::named_sync(kTurnBarrier + consumer, kConsumers * kWarpgroup);
      int old_box = -1, old_weights = -1;  // read by products that may still run
      if (active) {
        for (int block = burst; block < end; ++block) {
          const WgmmaBox b = a.boxes[block % a.box_count];
          ptx::wait(m.box_full(box.slot), box.round);
          const std::uint64_t pixel_operand = ptx::operand_descriptor(m.box(box.slot), a.group_pitch);
          for (int tap = b.first_tap; tap < b.first_tap + b.taps; ++tap) {
            ptx::wait(m.weights_full(weights.slot), weights.round);
            const std::uint64_t left = ptx::operand_descriptor(m.weights(weights.slot), 1024);
            const std::uint64_t right = pixel_operand + a.shifts[tap] * kDescriptorPixel;
            ptx::fence_operands();
#pragma unroll
            for (int k = 0; k < 4; ++k) {
              ptx::multiply<typename OperandOf<T>::Type, pixels>(sums, left + k * kDescriptorStep,
                                                                 right + k * kDescriptorStep, accumulate);
              accumulate = 1;
            }
            ptx::commit_products();
            ptx::wait_products<1>();
            if (speaker) {
              if (old_weights >= 0) ptx::arrive(m.weights_empty(old_weights));
              if (old_box >= 0) ptx::arrive(m.box_empty(old_box));
            }
            old_box = -1;
            old_weights = a.resident_weights ? -1 : weights.slot;
            weights.advance(1, a.weight_stages);
          }
          old_box = box.slot;
          box.advance(1, a.box_stages);
        }
      }
      if (consumer == 0 || first + round_stride(a) < a.items || end < share.end) {
        ptx::named_arrive(kTurnBarrier + other, kConsumers * kWarpgroup);
      }
      ptx::wait_products<0>();
      if (speaker) {
        if (old_weights >= 0) ptx::arrive(m.weights_empty(old_weights));
        if (old_box >= 0) ptx::arrive(m.box_empty(old_box));
      }
      if (consumer == 0) {
        box.advance(partner_boxes, a.box_stages);
        weights.advance(partner_steps, a.weight_stages);
      }
    }
    if (!active) continue;
    ptx::fence_sums(sums);
    epilogue.template run<pixels>(sums, tile, channel, item);
  }
  if (threadIdx.x % kWarpgroup == 0) ptx::wait_stores();
}

__device__ inline void set_up(const WgmmaArguments& a, const Memory& m) {
  if (threadIdx.x == 0) {
    const int box_readers = 4 * (a.one_pixel_tile ? kConsumers : 1);  // warps
    for (int i = 0; i < a.box_stages; ++i) {
      ptx::init_barrier(m.box_full(i), 1);
      ptx::init_barrier(m.box_empty(i), box_readers);
    }
    for (int i = 0; i < a.weight_stages; ++i) {
      ptx::init_barrier(m.weights_full(i), 1);
      ptx::init_barrier(m.weights_empty(i), a.feeds == 1 ? 4 * kConsumers : 4);
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
template <typename T, auto consumer>
__global__ void __launch_bounds__(kThreads, 1) kernel(const __grid_constant__ WgmmaArguments a) {
  extern __shared__ unsigned char shared[];
  const Memory m{(ptx::shared_address(shared) + 1023) & ~1023u, a.box_stages, a.weight_stages, a.box_stage_bytes};
  set_up(a, m);
  ptx::allow_next_kernel();
  ptx::wait_for_previous_kernel();
  const int warpgroup = threadIdx.x / kWarpgroup;
  if (warpgroup == kConsumers) {
    ptx::release_registers<24>();
    if (threadIdx.x == kConsumers * kWarpgroup) produce<T>(a, m);
  } else {
    ptx::take_registers<240>();
    consumer(a, m, warpgroup);
  }
}

}  // namespace wgmma
}  // namespace gable::cuda
