// The cases of a run: ops, bandwidths and graphs with their names.
#pragma once

#include <gable/ops.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gable::bench {

struct Case {
  std::string suite;  ///< name of the suite or of the list file; empty for a single problem
  std::string name;   ///< never empty
  Op op;
  std::optional<std::int64_t> count{};  ///< of a list's layer: how often it occurs in its network
};

/// What a bandwidth loop moves. GPUs also have movements into shared memory and between device and host. Files are
/// moved through the page cache, or past it (`direct`).
enum class Movement {
  read,
  copy,
  triad,
  to_shared,
  pinned_to_device,
  device_to_pinned,
  pageable_to_device,
  device_to_pageable,
  file_read,
  file_write,
  file_read_direct,
  file_write_direct
};

constexpr std::string_view to_string(Movement movement) {
  constexpr std::string_view kNames[] = {"read",
                                         "copy",
                                         "triad",
                                         "to_shared",
                                         "pinned_to_device",
                                         "device_to_pinned",
                                         "pageable_to_device",
                                         "device_to_pageable",
                                         "file_read",
                                         "file_write",
                                         "file_read_direct",
                                         "file_write_direct"};
  return kNames[static_cast<int>(movement)];
}
constexpr bool between_files(Movement movement) { return movement >= Movement::file_read; }

/// A bandwidth to measure. No op of the API moves these bytes; each kind of device has its own loops.
struct BandwidthCase {
  std::string suite;
  std::string name;
  Movement movement = Movement::read;
  std::int64_t bytes = 0;   ///< working set: all arrays of all threads, or the file
  bool one_thread = false;  ///< one of the device's threads instead of all
};

/// PageRank on a generated graph.
struct GraphCase {
  std::string suite;
  std::string name;
  bool power_law = false;  ///< else the edges are spread evenly
  std::int32_t vertices = 0;
  std::int64_t edges = 0;
};
std::string problem_of(const GraphCase& one);  ///< "1048576 vertices, 16777216 edges"

/// The math of a convolution or a matrix product; strict for other ops.
Math math_of(const Op& op);
/// The op in another math; only convolutions and matrix products change.
Op in_math(Op op, Math math);
bool has_math(const Op& op);

/// Caps the batch of each convolution and the rows of each matrix product.
void cap_batch(std::vector<Case>& cases, std::int64_t max_batch);

/// Halves each case's batch (a matrix product's rows, the sides of ops that only move or add) until it has at most
/// `gflop` of work, ops that only move or add at most `gigabytes`, or until one image is left.
void cap_work(std::vector<Case>& cases, double gflop, double gigabytes);

/// Drops the cases whose op an earlier case has (batches that were capped to the same); returns their names,
/// once each. Layers of lists stay, since the total of their network needs them all.
std::vector<std::string> drop_repeated(std::vector<Case>& cases);

}  // namespace gable::bench
