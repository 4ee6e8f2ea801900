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

/// Rows of an odd number of 16-bit elements, without gaps on one side: a thread writes 16 bytes, from single elements.
struct OddRows {
  std::int64_t elements;  // of `to`
  unsigned count, pitch;  // elements of a row, and of one with its padding
};

constexpr int kVector = 8;

/// Padding is zeros.
__device__ __forceinline__ void gather_padded(const std::uint16_t* from, const OddRows& r, unsigned vector,
                                              std::uint16_t (&values)[kVector]) {
  const unsigned vectors = r.pitch / kVector, row = vector / vectors, first = (vector - row * vectors) * kVector;
  from += std::int64_t{row} * r.count + first;
#pragma unroll
  for (unsigned i = 0; i < kVector; ++i) values[i] = first + i < r.count ? from[i] : 0;
}

__device__ __forceinline__ void gather_dense(const std::uint16_t* from, const OddRows& r, unsigned vector,
                                             std::uint16_t (&values)[kVector]) {
  const std::int64_t first = std::int64_t{vector} * kVector;
  const auto row = static_cast<unsigned>(first / r.count);
  auto column = static_cast<unsigned>(first - std::int64_t{row} * r.count);
  from += std::int64_t{row} * r.pitch;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    values[i] = first + i < r.elements ? from[column] : 0;
    if (++column < r.count) continue;
    column = 0;
    from += r.pitch;
  }
}

template <bool pads>
__global__ __launch_bounds__(kThreads) void copy_odd_rows(const std::uint16_t* from, std::uint16_t* to, OddRows r) {
  wait_for_previous_kernel();
  const unsigned vector = blockIdx.x * kThreads + threadIdx.x;
  const std::int64_t first = std::int64_t{vector} * kVector;
  if (first >= r.elements) return;
  alignas(16) std::uint16_t values[kVector];
  if constexpr (pads) {
    gather_padded(from, r, vector, values);
  } else {
    gather_dense(from, r, vector, values);
  }
  if (first + kVector <= r.elements) {
    *reinterpret_cast<uint4*>(to + first) = *reinterpret_cast<const uint4*>(values);
    return;
  }
  for (int i = 0; first + i < r.elements; ++i) to[first + i] = values[i];
}

/// Whether copy_odd_rows() takes these rows.
bool are_odd_rows(std::int64_t rows, std::int64_t count, std::int64_t from_pitch, std::int64_t to_pitch) {
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 31;
  const bool pads = from_pitch == count && to_pitch % kVector == 0;
  return count % 2 != 0 && (pads || to_pitch == count) && rows * std::max(from_pitch, to_pitch) < kMaxElements;
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
  const int word = word_bytes(count, from_pitch, to_pitch, element_bytes);
  const auto words = [&](std::int64_t elements) { return elements * element_bytes / word; };
  const Rows r{
      .count = rows, .words = words(count), .from_pitch = words(from_pitch), .to_pitch = words(to_pitch), .lanes = 0};
  if (word == 8) {
    copy_rows_as<std::uint64_t>(from, to, r, stream);
  } else if (word == 4) {
    copy_rows_as<std::uint32_t>(from, to, r, stream);
  } else if (are_odd_rows(rows, count, from_pitch, to_pitch)) {
    const bool pads = to_pitch != count;
    const OddRows odd{.elements = rows * to_pitch,
                      .count = static_cast<unsigned>(count),
                      .pitch = static_cast<unsigned>(std::max(from_pitch, to_pitch))};
    const LaunchShape shape{dim3(static_cast<unsigned>(ceil_div(odd.elements, kVector * kThreads))), kThreads, 0,
                            launches_overlap()};
    launch(pads ? copy_odd_rows<true> : copy_odd_rows<false>, shape, stream, static_cast<const std::uint16_t*>(from),
           static_cast<std::uint16_t*>(to), odd);
  } else {
    copy_rows_as<std::uint16_t>(from, to, r, stream);
  }
}

}  // namespace gable::cuda
