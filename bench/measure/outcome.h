// The results of a list of cases as counts and refusals, and the exit code for them.
#pragma once

#include <gable/error.h>

#include <string>
#include <unordered_set>
#include <vector>

#include "bench/record/row.h"

namespace gable::bench {

enum ExitCode : int { kDone = 0, kCheckFailed = 1, kBadInput = 2, kUnsupported = 3, kFailure = 4 };

ExitCode exit_code(ErrorCode code);

struct Outcome {
  int ran = 0;         ///< (case, device) pairs that gave a result
  int mismatched = 0;  ///< of those, results beyond their tolerance
  int malformed = 0;   ///< entries of a list that could not be read
  int invalid = 0;     ///< cases that no device could accept: their attributes don't fit their shape
  int no_memory = 0;   ///< pairs for which memory did not suffice
  int failed = 0;      ///< pairs in which the device failed
  std::vector<Refusal> refused;

  /// Counts the error of one case by its kind and keeps it as a refusal. An empty device means all devices.
  void refuse(const Identity& one, const std::string& device, const Error& error,
              std::vector<KernelRefusal> kernels = {});

  /// Adds refusals that were known before anything ran. A case that no device can run is kept once.
  void add(const std::vector<Refusal>& more);

  /// 1 for a mismatch; else 2 for bad input; else 4 if a device failed; else 0 if anything ran; else 4 if memory did
  /// not suffice, 3 if nothing is supported.
  ExitCode exit_code() const;

 private:
  void add(Refusal refusal);

  std::unordered_set<std::string> everywhere_;  ///< the fields of refusals without a device
};

}  // namespace gable::bench
