// Least bytes a step: 4 an edge for its source, and for a vertex 8 of offsets, 4 of its row number, 4 of its degree,
// its rank read and written, its share written: 32. The shares r(u) / out(u) are gathered, 4 bytes an edge out of a
// vector that stays in the L2 cache while it fits, and in 32-byte sectors out of device memory when it does not.
#include "cuda/studies/pagerank.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include <gable/problem.h>
#include "cuda/common/check.h"

namespace gable::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::array<int, 3> kLanes{4, 32, kThreads};      // that sum a row of each class
constexpr std::array<std::int64_t, 2> kLongest{16, 2048};  // edges of a row of the first two classes

/// Sums over all vertices. The dangling rank of a step's input lies at [step % 2], of its output at the other.
struct Totals {
  double dangling[2];
};

struct Step {
  InEdges graph;
  const std::int32_t* rows;
  std::int32_t count;
  const float* shares;
  float* new_shares;
  float* ranks;
  const double* dangling;
  double* new_dangling;
  double* change;
  float damping;
};

template <int lanes, typename T>
__device__ __forceinline__ T sum_of_lanes(T value) {
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffff, value, distance);
  return value;
}

/// Adds the block's values to totals in memory, one atomic addition a block and total.
__device__ __forceinline__ void add_to_totals(double a, double* total_a, double b, double* total_b) {
  __shared__ double partial[2][kThreads / 32];
  a = sum_of_lanes<32>(a);
  b = sum_of_lanes<32>(b);
  if (threadIdx.x % 32 == 0) {
    partial[0][threadIdx.x / 32] = a;
    partial[1][threadIdx.x / 32] = b;
  }
  __syncthreads();
  if (threadIdx.x >= 2) return;
  double sum = 0;
  for (const double part : partial[threadIdx.x]) sum += part;
  if (sum != 0) atomicAdd(threadIdx.x == 0 ? total_a : total_b, sum);
}

__global__ void pagerank_start_kernel(InEdges graph, float* ranks, float* shares, double* dangling) {
  const std::int32_t v = static_cast<std::int32_t>(blockIdx.x) * kThreads + static_cast<std::int32_t>(threadIdx.x);
  double lost = 0;
  if (v < graph.vertices) {
    const float rank = 1.0f / static_cast<float>(graph.vertices);
    const std::int32_t out = graph.out_degrees[v];
    ranks[v] = rank;
    shares[v] = out > 0 ? rank / static_cast<float>(out) : 0.0f;
    lost = out > 0 ? 0.0 : rank;
  }
  add_to_totals(lost, dangling, 0.0, dangling);
}

/// The sum of a row's shares, in each of the `lanes` that share it. All threads of the block call it.
template <int lanes>
__device__ __forceinline__ float sum_of_row(const Step& s, std::int32_t vertex, bool valid, int lane) {
  float sum = 0;
  if (valid) {
    const std::int64_t end = s.graph.offsets[vertex + 1];
#pragma unroll 4
    for (std::int64_t edge = s.graph.offsets[vertex] + lane; edge < end; edge += lanes)
      sum += __ldg(s.shares + __ldg(s.graph.sources + edge));
  }
  if constexpr (lanes <= 32) {
    return sum_of_lanes<lanes>(sum);
  } else {
    __shared__ float partial[kThreads / 32];
    sum = sum_of_lanes<32>(sum);
    __syncthreads();  // the row before has been read
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (const float part : partial) sum += part;
    return sum;
  }
}

/// Blocks take rows in turn. So few blocks are needed, and few atomic additions to the totals.
template <int lanes>
__global__ __launch_bounds__(kThreads) void pagerank_step_kernel(Step s) {
  constexpr int rows_of_block = kThreads / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const auto n = static_cast<float>(s.graph.vertices);
  const float rest = (1.0f - s.damping) / n + s.damping * (static_cast<float>(*s.dangling) / n);
  double lost = 0;
  double change = 0;
  for (std::int64_t first = std::int64_t{blockIdx.x} * rows_of_block; first < s.count;
       first += std::int64_t{gridDim.x} * rows_of_block) {
    const std::int64_t row = first + static_cast<int>(threadIdx.x) / lanes;
    const bool valid = row < s.count;
    const std::int32_t vertex = valid ? s.rows[row] : 0;
    const float sum = sum_of_row<lanes>(s, vertex, valid, lane);
    if (!valid || lane != 0) continue;
    const float rank = rest + s.damping * sum;
    const std::int32_t out = s.graph.out_degrees[vertex];
    change += fabsf(rank - s.ranks[vertex]);
    s.ranks[vertex] = rank;
    s.new_shares[vertex] = out > 0 ? rank / static_cast<float>(out) : 0.0f;
    lost += out > 0 ? 0.0 : rank;
  }
  add_to_totals(lost, s.new_dangling, change, s.change);
}

/// The workspace's parts.
struct Parts {
  Totals* totals;
  float* shares[2];
  std::int32_t* rows;
};

constexpr std::size_t kPartAlignment = 256;

std::size_t part_bytes(std::int32_t vertices) {
  return static_cast<std::size_t>(round_up(std::int64_t{vertices} * 4, kPartAlignment));
}

Parts parts_of(void* workspace, std::int32_t vertices) {
  auto* const bytes = static_cast<char*>(workspace);
  const std::size_t part = part_bytes(vertices);
  const auto floats = [&](std::size_t offset) { return reinterpret_cast<float*>(bytes + kPartAlignment + offset); };
  return {reinterpret_cast<Totals*>(bytes),
          {floats(0), floats(part)},
          reinterpret_cast<std::int32_t*>(bytes + kPartAlignment + 2 * part)};
}

unsigned blocks_of(std::int64_t threads) { return static_cast<unsigned>(ceil_div(threads, kThreads)); }

void launch_class(int index, const Step& step, cudaStream_t stream) {
  if (step.count == 0) return;
  constexpr unsigned most_blocks = 2048;  // more than a GPU runs at once
  const unsigned blocks =
      std::min(most_blocks, blocks_of(std::int64_t{step.count} * kLanes[static_cast<std::size_t>(index)]));
  if (index == 0) {
    pagerank_step_kernel<kLanes[0]><<<blocks, kThreads, 0, stream>>>(step);
  } else if (index == 1) {
    pagerank_step_kernel<kLanes[1]><<<blocks, kThreads, 0, stream>>>(step);
  } else {
    pagerank_step_kernel<kLanes[2]><<<blocks, kThreads, 0, stream>>>(step);
  }
  check_launch("pagerank");
}

}  // namespace

Pagerank::Pagerank(const std::vector<std::int64_t>& offsets, float damping) : damping_(damping) {
  constexpr std::size_t most = 0x7fffffff;
  if (offsets.size() < 2 || offsets.size() > most || offsets.front() != 0 ||
      !std::is_sorted(offsets.begin(), offsets.end())) {
    throw std::invalid_argument("pagerank: " + std::to_string(offsets.size()) +
                                " offsets; they must begin with 0, not fall, and be one more than the vertices");
  }
  vertices_ = static_cast<std::int32_t>(offsets.size() - 1);
  const auto class_of = [&](std::int32_t v) {
    const auto at = static_cast<std::size_t>(v);
    const std::int64_t edges = offsets[at + 1] - offsets[at];
    return static_cast<std::size_t>(edges > kLongest[0]) + static_cast<std::size_t>(edges > kLongest[1]);
  };
  rows_.reserve(static_cast<std::size_t>(vertices_));
  for (std::size_t wanted = 0; wanted < counts_.size(); ++wanted) {
    for (std::int32_t v = 0; v < vertices_; ++v) {
      if (class_of(v) != wanted) continue;
      rows_.push_back(v);
      ++counts_[wanted];
    }
  }
}

std::size_t Pagerank::workspace_bytes() const { return kPartAlignment + 3 * part_bytes(vertices_); }

void Pagerank::prepare(void* workspace, cudaStream_t stream) const {
  GABLE_CUDA_CHECK(cudaMemcpyAsync(parts_of(workspace, vertices_).rows, rows_.data(),
                                   rows_.size() * sizeof(std::int32_t), cudaMemcpyHostToDevice, stream));
}

void Pagerank::run(const InEdges& graph, int iterations, float* ranks, double* change, void* workspace,
                   cudaStream_t stream) const {
  const Parts parts = parts_of(workspace, vertices_);
  GABLE_CUDA_CHECK(cudaMemsetAsync(parts.totals, 0, sizeof(Totals), stream));
  pagerank_start_kernel<<<blocks_of(vertices_), kThreads, 0, stream>>>(graph, ranks, parts.shares[0],
                                                                       parts.totals->dangling);
  check_launch("pagerank");
  for (int i = 0; i < iterations; ++i) {
    const int now = i % 2;
    double* const new_dangling = parts.totals->dangling + (1 - now);
    GABLE_CUDA_CHECK(cudaMemsetAsync(new_dangling, 0, sizeof(double), stream));
    GABLE_CUDA_CHECK(cudaMemsetAsync(change, 0, sizeof(double), stream));
    Step step{.graph = graph,
              .rows = parts.rows,
              .count = 0,
              .shares = parts.shares[now],
              .new_shares = parts.shares[1 - now],
              .ranks = ranks,
              .dangling = parts.totals->dangling + now,
              .new_dangling = new_dangling,
              .change = change,
              .damping = damping_};
    for (int index = 0; index < 3; ++index) {
      step.count = counts_[static_cast<std::size_t>(index)];
      launch_class(index, step, stream);
      step.rows += step.count;
    }
  }
}

}  // namespace gable::cuda
