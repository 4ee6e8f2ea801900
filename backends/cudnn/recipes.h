// The ways to run an op with cuDNN, most fused first. offers() checks whether cuDNN takes one; a plan may measure
// all of them.
#pragma once

#include <gable/backend.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/cudnn/steps.h"

namespace gable::cudnn {

struct Recipe {
  std::string kernel;      ///< "convolution", "pooling", ...
  std::size_t number = 0;  ///< among recipes_for() of the op
  std::vector<std::unique_ptr<Step>> steps{};
  GraphStep* product = nullptr;   ///< the convolution among the steps, whose engines are worth measuring
  bool fused = true;              ///< one step does it all
  bool rounds_between = false;    ///< what a step hands to the next is rounded to the op's dtype
  bool rounds_bias = false;       ///< to the op's dtype
  std::size_t between_bytes = 0;  ///< of the tensor between two steps
  std::size_t bias_bytes = 0;     ///< of the bias in the op's dtype

  std::size_t workspace_bytes() const;
};

/// Each makes a recipe or throws Error(unsupported) with the reason. Engines that cuDNN compiles at run time take it a
/// tenth of a second or more each; `compiles` says whether a recipe may have them.
using RecipeMaker = std::function<Recipe(Session&, bool compiles)>;
std::vector<RecipeMaker> recipes_for(const Op& op);

/// Why cuDNN has no recipe for the op, as far as that is known without a call of cuDNN; empty if it may have one.
std::string refusal_without_asking(const Op& op);

/// "convolution" and so on.
std::string kernel_of(const Op& op);

ErrorBound bound_of(const Op& op, const Recipe& recipe);

}  // namespace gable::cudnn
