// Extends a kernel to groups that it computes faster as one: the weights that an output channel doesn't see are zeros,
// which add nothing to a finite sum. For groups so narrow that tiles of single ones stay mostly empty; the estimates of
// both ways decide.
#pragma once

#include <algorithm>
#include <limits>

#include "cuda/common/conv2d_plan.h"

namespace gable::cuda {

/// The same tensors with one group.
Conv2dProblem as_one_group(const Conv2dProblem& problem);

/// Whether the weights of one group, which are `groups` times as many, are few enough to be worth an estimate.
bool fits_as_one_group(const Conv2dProblem& problem);

/// `kernel` is a plan of as_one_group(problem), `order` names the packing of its weights with zeros among them.
std::unique_ptr<Conv2dPlan> with_one_group(const Conv2dProblem& problem, const char* order,
                                           std::unique_ptr<Conv2dPlan> kernel);

/// A kernel (see conv2d_plan.h). `order` is with_one_group()'s. Where `Kernel` has no estimate of groups, which it also
/// lacks for groups of one channel, they are computed as one or left to other kernels.
template <typename Kernel, const char* order, bool estimates_groups = true>
struct OrAsOneGroup {
  static constexpr std::size_t kAlignment = Kernel::kAlignment;

  static std::string missing(const cudaDeviceProp& device) requires requires { Kernel::missing(device); }
  { return Kernel::missing(device); }
  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device) {
    const std::string refusal = Kernel::refusal(problem, device);
    return refusal.empty() || takes_together(problem, device) ? "" : refusal;
  }
  static double seconds(const Conv2dProblem& problem, const cudaDeviceProp& device) {
    return std::min(apart(problem, device), together(problem, device));
  }
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device) {
    if (apart(problem, device) <= together(problem, device)) return Kernel::make(problem, device);
    return with_one_group(problem, order, Kernel::make(as_one_group(problem), device));
  }

 private:
  static double apart(const Conv2dProblem& problem, const cudaDeviceProp& device) {
    const bool estimated = problem.groups == 1 || (estimates_groups && problem.group_c() > 1);
    if (!estimated || !Kernel::refusal(problem, device).empty()) return std::numeric_limits<double>::infinity();
    return Kernel::seconds(problem, device);
  }
  static double together(const Conv2dProblem& problem, const cudaDeviceProp& device) {
    if (!takes_together(problem, device)) return std::numeric_limits<double>::infinity();
    return Kernel::seconds(as_one_group(problem), device);
  }
  static bool takes_together(const Conv2dProblem& problem, const cudaDeviceProp& device) {
    return fits_as_one_group(problem) && Kernel::refusal(as_one_group(problem), device).empty();
  }
};

}  // namespace gable::cuda
