// What a run of the command works through: ops with their names, and what was refused on the way.
#pragma once

#include <gable/ops.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gable::bench {

struct Case {
  std::string suite;  ///< name of the suite or of the list file; empty for a single problem
  std::string name;   ///< never empty
  Op op;
};

/// What a bandwidth loop moves. On GPUs also into shared memory and between device and host. File movements go through
/// the page cache, or past it (`direct`).
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
  bool one_thread = false;  ///< of a device that has several; else as many as it has
};

/// PageRank over a graph that is made for it.
struct GraphCase {
  std::string suite;
  std::string name;
  bool power_law = false;  ///< else edges are spread evenly
  std::int32_t vertices = 0;
  std::int64_t edges = 0;
};
std::string problem_of(const GraphCase& one);  ///< "1048576 vertices, 16777216 edges"

/// The math of a convolution or a matrix product; other ops know only strict.
Math math_of(const Op& op);
/// The same op in another math; others than those two stay as they are.
Op in_math(Op op, Math math);
bool has_math(const Op& op);

/// Caps the batch of each convolution, and the rows of each matrix product, which are its batch.
void cap_batch(std::vector<Case>& cases, std::int64_t max_batch);

/// Halves each case's batch (or its rows, or the sides of what is only moved or added) until it has at most `gflop` of
/// work, and what is only moved or added at most `gigabytes`, or one image is left.
void cap_work(std::vector<Case>& cases, double gflop, double gigabytes);

/// Drops the cases whose op an earlier case has (batches that were capped to the same); returns their names,
/// once each.
std::vector<std::string> drop_repeated(std::vector<Case>& cases);

}  // namespace gable::bench
