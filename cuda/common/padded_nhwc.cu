// See padded_nhwc.h.
#include "cuda/common/padded_nhwc.h"

#include <algorithm>
#include <numeric>

#include <gable/problem.h>
#include "cuda/common/check.h"
#include "cuda/common/overlapped_launch.cuh"

namespace gable::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsInFlight = 4;

struct Rows {
  std::int64_t count;                 // of rows
  std::int64_t words;                 // of a row that are copied
  std::int64_t from_pitch, to_pitch;  // words from one row to the next
  int lanes;                          // threads that move a row, a power of two

  __host__ __device__ int rows_of_block() const { return kThreads / lanes; }
};

/// A thread moves words of four rows at a time.
template <typename Word>
__global__ __launch_bounds__(kThreads) void copy_words(const Word* from, Word* to, Rows r) {
  wait_for_previous_kernel();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * r.rows_of_block();
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * r.rows_of_block() + threadIdx.x / r.lanes;
  for (std::int64_t row = first; row < r.count; row += kRowsInFlight * step) {
    for (std::int64_t column = threadIdx.x % r.lanes; column < r.to_pitch; column += r.lanes) {
      Word values[kRowsInFlight];
#pragma unroll
      for (int i = 0; i < kRowsInFlight; ++i) {
        const std::int64_t at = row + i * step;
        values[i] = at < r.count && column < r.words ? from[at * r.from_pitch + column] : Word{};
      }
#pragma unroll
      for (int i = 0; i < kRowsInFlight; ++i) {
        const std::int64_t at = row + i * step;
        if (at < r.count) to[at * r.to_pitch + column] = values[i];
      }
    }
  }
}

/// Rows without gaps on one side, which begin anywhere, and of whole vectors of 16 bytes on the other: a thread writes
/// 16 bytes, from two aligned vectors that hold them.
struct UnevenRows {
  unsigned from_bytes, to_bytes;  // of both tensors
  unsigned bytes, pitch;          // of a row, and of one with its padding
};

constexpr unsigned kVector = 16;  // bytes

/// 16 bytes from any even address on: those of the aligned vectors in front of it and behind.
__device__ __forceinline__ uint4 shifted(const uint4& front, const uint4& behind, unsigned bytes) {
  std::uint32_t w[8] = {front.x, front.y, front.z, front.w, behind.x, behind.y, behind.z, behind.w};
  const bool by_two_words = (bytes & 8) != 0, by_word = (bytes & 4) != 0;
  const unsigned bits = (bytes & 2) * 8;
#pragma unroll
  for (int i = 0; i < 6; ++i) w[i] = by_two_words ? w[i + 2] : w[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) w[i] = by_word ? w[i + 1] : w[i];
  return make_uint4(__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits),
                    __funnelshift_r(w[2], w[3], bits), __funnelshift_r(w[3], w[4], bits));
}

/// The first `bytes` of `kept`, an even number, then those of `next`.
__device__ __forceinline__ uint4 joined(const uint4& kept, const uint4& next, unsigned bytes) {
  std::uint32_t a[4] = {kept.x, kept.y, kept.z, kept.w};
  const std::uint32_t b[4] = {next.x, next.y, next.z, next.w};
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned left = bytes > 4 * i ? bytes - 4 * i : 0;  // of this word
    a[i] = left >= 4 ? a[i] : left == 0 ? b[i] : __byte_perm(a[i], b[i], 0x7610);
  }
  return make_uint4(a[0], a[1], a[2], a[3]);
}

/// 16 bytes from `at` on, of which those behind the tensor's end are zeros. `at` is even. All lanes of a warp call it:
/// the vector behind a lane's is mostly the one in front of the next lane's.
__device__ __forceinline__ uint4 load_window(const unsigned char* from, unsigned at, unsigned end) {
  const unsigned aligned = at / kVector * kVector;
  const bool whole = aligned + kVector <= end;
  const uint4 front = whole ? __ldcg(reinterpret_cast<const uint4*>(from + aligned)) : make_uint4(0, 0, 0, 0);
  uint4 behind = make_uint4(__shfl_down_sync(~0u, front.x, 1), __shfl_down_sync(~0u, front.y, 1),
                            __shfl_down_sync(~0u, front.z, 1), __shfl_down_sync(~0u, front.w, 1));
  const bool shared = __shfl_down_sync(~0u, aligned, 1) == aligned + kVector && threadIdx.x % 32 != 31;
  if (aligned + 2 * kVector <= end) {
    if (!shared) behind = __ldcg(reinterpret_cast<const uint4*>(from + aligned) + 1);
    return shifted(front, behind, at - aligned);
  }
  std::uint32_t w[4] = {};
#pragma unroll
  for (unsigned i = 0; i < kVector / 2; ++i) {
    if (at + 2 * i >= end) continue;
    const std::uint32_t half = *reinterpret_cast<const std::uint16_t*>(from + at + 2 * i);
    w[i / 2] |= half << (i % 2 * 16);
  }
  return make_uint4(w[0], w[1], w[2], w[3]);
}

/// A vector of a padded row; padding is zeros.
__device__ __forceinline__ uint4 padded_vector(const unsigned char* from, const UnevenRows& r, unsigned at) {
  const unsigned row = at / r.pitch, first = at - row * r.pitch;
  const uint4 all = load_window(from, row * r.bytes + first, r.from_bytes);
  return joined(all, make_uint4(0, 0, 0, 0), r.bytes - min(first, r.bytes));
}

/// A vector of rows without gaps, which may lie in two rows.
__device__ __forceinline__ uint4 dense_vector(const unsigned char* from, const UnevenRows& r, unsigned at) {
  const unsigned row = at / r.bytes, first = at - row * r.bytes, begin = row * r.pitch;
  const uint4 all = load_window(from, begin + first, r.from_bytes);
  const unsigned left = r.bytes - first;  // of the row
  if (left >= kVector || begin + r.pitch >= r.from_bytes) return all;
  const uint4 next = __ldcg(reinterpret_cast<const uint4*>(from + begin + r.pitch));
  return joined(all, shifted(make_uint4(0, 0, 0, 0), next, kVector - left), left);
}

template <bool pads>
__global__ __launch_bounds__(kThreads) void copy_uneven_rows(const unsigned char* from, unsigned char* to,
                                                             UnevenRows r) {
  wait_for_previous_kernel();
  const unsigned at = (blockIdx.x * kThreads + threadIdx.x) * kVector;
  const unsigned within = min(at, r.to_bytes - 1) / 2 * 2;  // lanes past the end load what nobody stores
  const uint4 vector = pads ? padded_vector(from, r, within) : dense_vector(from, r, within);
  if (at >= r.to_bytes) return;
  if (at + kVector <= r.to_bytes) {
    *reinterpret_cast<uint4*>(to + at) = vector;
    return;
  }
  const std::uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
  for (unsigned i = 0; i < kVector / 2; ++i) {
    if (at + 2 * i < r.to_bytes)
      *reinterpret_cast<std::uint16_t*>(to + at + 2 * i) = static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16));
  }
}

/// Whether copy_uneven_rows() takes rows of so many bytes.
bool are_uneven_rows(std::int64_t rows, std::int64_t bytes, std::int64_t from_pitch, std::int64_t to_pitch) {
  constexpr std::int64_t kMaxBytes = std::int64_t{1} << 31;
  const std::int64_t pitch = std::max(from_pitch, to_pitch);
  return bytes >= kVector && std::min(from_pitch, to_pitch) == bytes && pitch % kVector == 0 && pitch > bytes &&
         rows * pitch < kMaxBytes;
}

template <typename Word>
void copy_rows_as(const void* from, void* to, Rows r, cudaStream_t stream) {
  constexpr std::int64_t kMaxBlocks = 8192;
  r.lanes = 8;
  while (r.lanes < r.to_pitch && r.lanes < kThreads) r.lanes *= 2;
  const auto blocks = static_cast<unsigned>(std::min(kMaxBlocks, ceil_div(r.count, kRowsInFlight * r.rows_of_block())));
  const LaunchShape shape{dim3(blocks), kThreads, 0, launches_overlap()};
  launch(copy_words<Word>, shape, stream, static_cast<const Word*>(from), static_cast<Word*>(to), r);
}

/// Bytes that are moved at a time: 2, 4 or 8, by what divides rows and pitches.
int word_bytes(std::int64_t count, std::int64_t from_pitch, std::int64_t to_pitch, int element_bytes) {
  constexpr std::int64_t kWidest = 8;
  return static_cast<int>(std::gcd(std::gcd(std::gcd(count, from_pitch), to_pitch) * element_bytes, kWidest));
}

}  // namespace

void copy_rows(const void* from, void* to, std::int64_t rows, std::int64_t count, std::int64_t from_pitch,
               std::int64_t to_pitch, int element_bytes, cudaStream_t stream) {
  const std::int64_t bytes = count * element_bytes;
  if (are_uneven_rows(rows, bytes, from_pitch * element_bytes, to_pitch * element_bytes)) {
    const auto narrow = [&](std::int64_t elements) { return static_cast<unsigned>(elements * element_bytes); };
    const UnevenRows r{.from_bytes = narrow(rows * from_pitch),
                       .to_bytes = narrow(rows * to_pitch),
                       .bytes = narrow(count),
                       .pitch = narrow(std::max(from_pitch, to_pitch))};
    const LaunchShape shape{dim3(static_cast<unsigned>(ceil_div(r.to_bytes, kVector * kThreads))), kThreads, 0,
                            launches_overlap()};
    launch(to_pitch != count ? copy_uneven_rows<true> : copy_uneven_rows<false>, shape, stream,
           static_cast<const unsigned char*>(from), static_cast<unsigned char*>(to), r);
    return;
  }
  const int word = word_bytes(count, from_pitch, to_pitch, element_bytes);
  const auto words = [&](std::int64_t elements) { return elements * element_bytes / word; };
  const Rows r{
      .count = rows, .words = words(count), .from_pitch = words(from_pitch), .to_pitch = words(to_pitch), .lanes = 0};
  if (word == 8) {
    copy_rows_as<std::uint64_t>(from, to, r, stream);
  } else if (word == 4) {
    copy_rows_as<std::uint32_t>(from, to, r, stream);
  } else {
    copy_rows_as<std::uint16_t>(from, to, r, stream);
  }
}

}  // namespace gable::cuda
