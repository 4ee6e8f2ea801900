// What a run of the command works through: convolutions with their names, and what was refused on the way.
#pragma once

#include <gable/ops.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gable::bench {

struct Case {
  std::string suite;  ///< name of the suite or of the list file; empty for a single problem
  std::string name;   ///< never empty
  Conv2d conv;
};

/// What could not run, where, and why. An empty device: no device can.
struct Refusal {
  std::string suite;
  std::string name;
  std::string problem;
  std::string dtype;
  std::string math;  ///< empty where there is no case
  std::string device;
  std::string reason;
};

/// Caps the batch of each case.
void cap_batch(std::vector<Case>& cases, std::int64_t max_batch);

/// Halves the batch of each case until it has at most `gflop` of work or one image.
void cap_work(std::vector<Case>& cases, double gflop);

/// Drops the cases whose convolution an earlier case has (batches that were capped to the same); returns their names,
/// once each.
std::vector<std::string> drop_repeated(std::vector<Case>& cases);

}  // namespace gable::bench
