// The oracle with which every kernel is compared: results in f64, and the magnitudes to which error bounds are
// relative.
#pragma once

#include <gable/export.h>
#include <gable/ops.h>
#include <gable/plan.h>
#include <gable/tensor.h>

#include <cstdint>
#include <vector>

namespace gable {

/// Results in the memory order of the op's output, not rounded to the op's dtype.
struct OracleResult {
  std::vector<double> exact;
  std::vector<double> magnitude;  ///< M of ErrorBound, element by element
};

/// Computes `op` in f64 on all threads of the host. `inputs` are host tensors in the op's shapes, dtype and layout:
/// {x, weights[, bias]} for conv2d and matmul, {x} or {a, b} for the rest; the bias is f32. Throws
/// Error(invalid_argument) if they don't fit the op.
GABLE_API OracleResult oracle(const Op& op, const std::vector<ConstTensorView>& inputs);

/// Bytes that oracle() allocates: its result, the weights in f64, and the input patches of each of OpenMP's threads.
GABLE_API double oracle_bytes(const Op& op);

/// How a device's result compares with the oracle.
struct Comparison {
  bool passed = false;
  std::int64_t mismatches = 0;       ///< elements beyond their tolerance
  std::int64_t first_mismatch = -1;  ///< index in memory order
  double max_error = 0;              ///< greatest |y - exact|
  double worst_ratio = 0;            ///< greatest |y - exact| / tolerance: above 1 is a mismatch
};

/// Compares a host tensor with the oracle's result, element by element. A NaN matches a NaN, an infinity one of the
/// same sign; a value that overflows the dtype must become infinity. Throws Error(invalid_argument) unless y is in host
/// memory and has as many elements as the result.
GABLE_API Comparison compare(const ConstTensorView& y, const OracleResult& expected, const ErrorBound& bound);

}  // namespace gable
