// The kernels of one backend of gable's own: the list that offers(), ?kernel= and `gable info` share. CPU and CUDA use
// the same template.
//
// Of the kernels that take an op, the one with the least estimated time makes its plan. Kernels without an estimate
// come after those, in the order of the list.
//
// Each op without weights (max-pool, add, upsample, ...) has one kernel, named after the op. Convolutions have several.
// Matrix products are 1x1 convolutions to them, so one list serves both.
#pragma once

#include <gable/backend.h>

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/problems.h"

namespace gable {

/// A convolution kernel. It takes or refuses an op by the `Machine`: a cpu::Target or a cudaDeviceProp. Plans are made
/// for a `Place`: a target and its threads, or a CudaDevice.
template <typename Machine, typename Place>
struct WeightedKernel {
  const char* name;
  std::string (*missing)(const Machine& machine);  ///< why the machine has no such kernel; empty: it has
  std::string (*refusal)(const WeightedOp& op, const Machine& machine);  ///< empty: it can run the op
  std::unique_ptr<PlanImpl> (*make)(const WeightedOp& op, const Place& place);
  /// How long a run of an op that it takes will last, in seconds; null: the kernel has no model of its time.
  double (*seconds)(const WeightedOp& op, const Place& place) = nullptr;
};

/// The kernels of ops without weights.
inline constexpr std::array kUnweightedKernels{"max_pool", "add",      "transpose", "reorder", "activate",
                                               "concat",   "upsample", "multiply",  "softmax"};

/// Sorts kernels with an estimated time before the others; equals keep their order.
void put_fastest_first(std::vector<KernelOffer>& offers);

template <typename Machine, typename Place>
class KernelList {
 public:
  using Kernel = WeightedKernel<Machine, Place>;
  using MakeUnweighted = std::unique_ptr<PlanImpl> (*)(const Op& op, const Place& place);

  constexpr KernelList(std::span<const Kernel> weighted, MakeUnweighted make_unweighted)
      : weighted_(weighted), make_unweighted_(make_unweighted) {}

  /// Every kernel's name, as ?kernel= takes it.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const Kernel& kernel : weighted_) all.emplace_back(kernel.name);
    all.insert(all.end(), kUnweightedKernels.begin(), kUnweightedKernels.end());
    return all;
  }

  /// The names of the kernels that the machine has.
  std::vector<std::string> names(const Machine& machine) const {
    std::vector<std::string> all;
    for (const Kernel& kernel : weighted_) {
      if (kernel.missing(machine).empty()) all.emplace_back(kernel.name);
    }
    all.insert(all.end(), kUnweightedKernels.begin(), kUnweightedKernels.end());
    return all;
  }

  /// The answers of the kernels for this kind of op, or of `only` if it is not empty: first the kernel that will be
  /// used. `place` outlives them.
  std::vector<KernelOffer> offers(const Op& op, const Machine& machine, const Place& place,
                                  const std::string& only) const {
    std::vector<KernelOffer> all;
    all.reserve(weighted_.size());
    if (has_weights(op)) {
      const auto shared = std::make_shared<const WeightedOp>(weighted_op(op));
      for (const Kernel& kernel : weighted_) {
        if (only.empty() || only == kernel.name) all.push_back(offer(kernel, shared, machine, place));
      }
    } else if (only.empty() || only == name(op)) {
      all.push_back({std::string(name(op)), "", [this, op, &place] { return make_unweighted_(op, place); }});
    }
    if (all.empty()) all.push_back({only, "it is no kernel for " + std::string(name(op))});
    put_fastest_first(all);
    return all;
  }

 private:
  static KernelOffer offer(const Kernel& kernel, const std::shared_ptr<const WeightedOp>& op, const Machine& machine,
                           const Place& place) {
    std::string refusal = kernel.missing(machine);
    if (refusal.empty()) refusal = kernel.refusal(*op, machine);
    if (!refusal.empty()) return {kernel.name, std::move(refusal)};
    KernelOffer made{kernel.name, "", [make = kernel.make, op, &place] { return make(*op, place); }};
    if (kernel.seconds != nullptr) made.seconds = kernel.seconds(*op, place);
    return made;
  }

  std::span<const Kernel> weighted_;
  MakeUnweighted make_unweighted_;
};

/// For kernels that every machine has.
template <typename Machine>
std::string nothing_missing(const Machine&) {
  return "";
}

/// The value of ?kernel=, empty without it. Throws Error(invalid_argument) for a name that is not among `known`.
std::string requested_kernel(const DeviceUri& uri, const std::vector<std::string>& known);

}  // namespace gable
