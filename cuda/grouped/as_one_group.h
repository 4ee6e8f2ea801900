// Lets a kernel compute all groups as one: an output channel's weights for other groups' inputs are zeros, which add
// nothing to a finite sum. That is faster where groups are so narrow that tiles of a single one stay mostly empty. The
// estimates of both ways decide.
#pragma once

#include <algorithm>
#include <limits>

#include "cuda/common/conv2d_plan.h"

namespace gable::cuda {

/// The same tensors with one group.
Conv2dProblem as_one_group(const Conv2dProblem& problem);

/// Whether the weights with their zeros, `groups` times as many, are few enough to be worth an estimate: at most 4 MiB.
bool fits_as_one_group(const Conv2dProblem& problem);

/// `kernel` is a plan of as_one_group(problem). `order` names its packing, a literal: no other packing has this name.
std::unique_ptr<Conv2dPlan> with_one_group(const Conv2dProblem& problem, const char* order,
                                           std::unique_ptr<Conv2dPlan> kernel);

/// A kernel (see conv2d_plan.h) that computes groups as `Kernel` does, or as one. `order` is with_one_group()'s.
/// Kernel::seconds() knows several groups, but not groups of one channel: these are computed as one, or, where that is
/// refused, apart with an infinite estimate.
template <typename Kernel, const char* order>
struct OrAsOneGroup {
  static constexpr std::size_t kAlignment = Kernel::kAlignment;

  static std::string missing(const cudaDeviceProp& device) requires requires { Kernel::missing(device); }
  { return Kernel::missing(device); }
  static std::string refusal(const Conv2dProblem& problem, const cudaDeviceProp& device) {
    const std::string refusal = Kernel::refusal(problem, device);
    return refusal.empty() || takes_together(problem, device) ? "" : refusal;
  }
  static double seconds(const Conv2dProblem& problem, const cudaDeviceProp& device) {
    if (problem.groups == 1) return Kernel::seconds(problem, device);
    return std::min(apart(problem, device), together(problem, device));
  }
  static std::unique_ptr<Conv2dPlan> make(const Conv2dProblem& problem, const cudaDeviceProp& device) {
    if (problem.groups == 1) return Kernel::make(problem, device);
    if (apart(problem, device) <= together(problem, device)) return Kernel::make(problem, device);
    return with_one_group(problem, order, Kernel::make(as_one_group(problem), device));
  }

 private:
  static double apart(const Conv2dProblem& problem, const cudaDeviceProp& device) {
    if (problem.group_c() == 1 || !Kernel::refusal(problem, device).empty()) {
      return std::numeric_limits<double>::infinity();
    }
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
