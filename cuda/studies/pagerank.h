// PageRank by power iteration over a graph in CSR, the irregular primitive: r'(v) = (1 - d) / n + d (sum of r(u) /
// out(u) over the edges u -> v, plus the rank of vertices without out-edges / n).
//
// Rows are the vertices' in-edges. They are sorted into three classes by length, and a class is summed by 4 lanes, a
// warp or a block a row: in a graph whose degrees follow a power law the longest row would else hold up its warp.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gable::cuda {

/// In-edges of each vertex, on the device: those of v are sources[offsets[v]] to sources[offsets[v + 1]].
struct InEdges {
  std::int32_t vertices = 0;
  const std::int64_t* offsets = nullptr;  // vertices + 1
  const std::int32_t* sources = nullptr;
  const std::int32_t* out_degrees = nullptr;
};

class Pagerank {
 public:
  /// `offsets` are the graph's, on the host. Throws std::invalid_argument if they are no CSR offsets.
  Pagerank(const std::vector<std::int64_t>& offsets, float damping);

  /// Device memory for the rows in the order of their classes, two vectors of shares, and sums.
  std::size_t workspace_bytes() const;
  /// Copies the rows to the workspace; call it once for each workspace. Asynchronous: this object keeps the source.
  void prepare(void* workspace, cudaStream_t stream) const;

  /// `iterations` steps from the uniform vector; `ranks` are the last one's, `change` the sum of |r' - r| in it, both
  /// on the device. Allocates nothing and waits for nothing.
  void run(const InEdges& graph, int iterations, float* ranks, double* change, void* workspace,
           cudaStream_t stream) const;

  /// Rows in each class, shortest first.
  std::array<std::int32_t, 3> classes() const { return counts_; }

 private:
  std::int32_t vertices_;
  float damping_;
  std::array<std::int32_t, 3> counts_{};
  std::vector<std::int32_t> rows_;  // short ones, then middle ones, then long ones
};

}  // namespace gable::cuda
