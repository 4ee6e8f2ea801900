// Runs one op on one device from host data to host data, whatever memory the device has.
#pragma once

#include <gable/gable.h>

#include <vector>

namespace gable::conformance {

/// Operands of an op in host memory: {x, weights[, bias]}, {x} or {a, b}, as the oracle takes them.
struct Operands {
  std::vector<Tensor> tensors;
  std::vector<ConstTensorView> views() const;
};

/// Values in [-1, 1), or in [-2, -1) for max_pool, where a padding of zero would show; the same for the same op.
Operands make_operands(const Op& op);

/// A tensor of one device that a test can fill and read. Where the device's memory is the host's, it lies at an address
/// aligned to its elements only, between guards.
class Placed {
 public:
  Placed(const Device& device, DType dtype, const Shape& shape, Layout layout);
  Placed(const Device& device, const ConstTensorView& contents);
  const TensorView& view() const { return view_; }
  /// Fills it with NaNs, so that no element can be left unwritten unseen.
  void poison();
  /// A copy on the host.
  Tensor read() const;
  /// Whether the bytes around it are as they were.
  bool guards_hold() const;

 private:
  Device device_;
  std::vector<unsigned char> guarded_;
  Tensor owned_;
  TensorView view_;
};

struct Outcome {
  Tensor y;
  bool guards_hold = false;
};

/// Plans' tensors, placed and ready to run.
class Bench {
 public:
  Bench(const Device& device, const Plan& plan, const Operands& operands);
  void run() const;
  Outcome outcome() const;
  Placed& output() { return output_; }

 private:
  const Device& device_;
  const Plan& plan_;
  std::vector<Placed> inputs_;
  PackedWeights weights_;
  Placed output_;
};

}  // namespace gable::conformance
