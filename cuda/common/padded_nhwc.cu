// See padded_nhwc.h.
#include "cuda/common/padded_nhwc.h"

#include <algorithm>

#include <gable/problem.h>
#include "cuda/common/check.h"
#include "cuda/common/overlapped_launch.cuh"

namespace gable::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRowsInFlight = 4;

struct Rows {
  std::int64_t count;                 // of rows
  std::int64_t elements;              // of a row that are copied
  std::int64_t from_pitch, to_pitch;  // elements from one row to the next
  int lanes;                          // threads that move a row, a power of two

  __host__ __device__ int rows_of_block() const { return kThreads / lanes; }
};

/// A thread moves single elements, since an odd pitch aligns rows to nothing more, of four rows at a time.
template <typename E>
__global__ __launch_bounds__(kThreads) void copy_elements(const E* from, E* to, Rows r) {
  wait_for_previous_kernel();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * r.rows_of_block();
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * r.rows_of_block() + threadIdx.x / r.lanes;
  for (std::int64_t row = first; row < r.count; row += kRowsInFlight * step) {
    for (std::int64_t column = threadIdx.x % r.lanes; column < r.to_pitch; column += r.lanes) {
      E values[kRowsInFlight];
#pragma unroll
      for (int i = 0; i < kRowsInFlight; ++i) {
        const std::int64_t at = row + i * step;
        values[i] = at < r.count && column < r.elements ? from[at * r.from_pitch + column] : E{};
      }
#pragma unroll
      for (int i = 0; i < kRowsInFlight; ++i) {
        const std::int64_t at = row + i * step;
        if (at < r.count) to[at * r.to_pitch + column] = values[i];
      }
    }
  }
}

}  // namespace

void copy_rows(const void* from, void* to, std::int64_t rows, std::int64_t count, std::int64_t from_pitch,
               std::int64_t to_pitch, int element_bytes, cudaStream_t stream) {
  constexpr std::int64_t kMaxBlocks = 8192;
  const Rows r{rows, count, from_pitch, to_pitch, to_pitch <= 8 ? 8 : to_pitch <= 16 ? 16 : 32};
  const auto blocks = static_cast<unsigned>(std::min(kMaxBlocks, ceil_div(rows, kRowsInFlight * r.rows_of_block())));
  const LaunchShape shape{dim3(blocks), kThreads, 0, launches_overlap()};
  if (element_bytes == 4) {
    launch(copy_elements<std::uint32_t>, shape, stream, static_cast<const std::uint32_t*>(from),
           static_cast<std::uint32_t*>(to), r);
  } else {
    launch(copy_elements<std::uint16_t>, shape, stream, static_cast<const std::uint16_t*>(from),
           static_cast<std::uint16_t*>(to), r);
  }
}

}  // namespace gable::cuda
