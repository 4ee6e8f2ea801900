// `gable verify --random N`: random problems on random kernels of random targets, against the f64 oracle. The fuzzer of
// kernels (fuzz/) calls the same function.
#pragma once

#include <gable/backend.h>
#include <gable/device.h>
#include <gable/oracle.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/workloads/random_problem.h"

namespace gable::bench {

/// One problem on one kernel.
struct RandomResult {
  std::uint64_t seed = 0;
  RandomProblem problem;
  std::string device;  ///< "cpu:avx2?kernel=direct&threads=2"
  std::string kernel;  ///< empty: no kernel of the device takes the op
  Comparison comparison;
};

/// Devices that stay open.
class RandomVerifier {
 public:
  /// `devices`: URIs to choose from, without the options kernel and threads.
  explicit RandomVerifier(std::vector<std::string> devices);

  /// The seed says the problem, its data, the device, the kernel among those that take the op, and one or two threads.
  RandomResult run(std::uint64_t seed);

 private:
  const Device& opened(const std::string& uri);
  /// Whether the device lets the caller choose the kernel: cudnn doesn't.
  bool takes_kernel(DeviceUri uri, const std::string& kernel);

  std::vector<std::string> devices_;
  std::map<std::string, Device> open_;
  std::map<std::string, bool> takes_kernel_;
};

/// Every target of this CPU, and every GPU of gable's own kernels.
std::vector<std::string> own_devices();

/// The least f32 input that this arithmetic rounds to infinity, since the type of its operands ends before; infinite
/// where there is none. By docs/devices.md such inputs count as infinities.
double least_rounded_to_infinity(const Arithmetic& arithmetic);

/// compare(), and what docs/devices.md says of inputs that are no numbers. No claim is made of a sum whose terms
/// together overflow f32.
Comparison compare_special(const ConstTensorView& y, const OracleResult& expected, const Plan& plan, Values values);

}  // namespace gable::bench
