// What a plan will do, decided before anything is compiled or allocated: a chain of oneDNN primitives over a few
// tensors. An offer holds the recipe that it was found with; the plan is made from that.
#pragma once

#include <gable/ops.h>
#include <gable/plan.h>

#include <dnnl.hpp>
#include <string>
#include <utility>
#include <vector>

namespace gable::onednn {

enum class Role { input, second_input, weights, bias, output, scratch };

struct Slot {
  Role role = Role::scratch;
  dnnl::memory::desc description;
};

struct Stage {
  dnnl::primitive_desc_base primitive;
  std::vector<std::pair<int, std::size_t>> arguments;  ///< DNNL_ARG_* and the slot
};

struct Recipe {
  std::string kernel;
  std::vector<Slot> slots;
  std::vector<Stage> stages;
  bool has_weights = false;
  dnnl::memory::desc given_weights;  ///< row-major, as pack() gets them
  dnnl::memory::desc packed_weights;
  bool fused = true;
  ErrorBound bound;
  std::string explanation;

  std::size_t add_slot(Role role, const dnnl::memory::desc& description) {
    slots.push_back({role, description});
    return slots.size() - 1;
  }
};

inline constexpr const char* kDirect = "direct";
inline constexpr const char* kWinograd = "winograd";
inline constexpr const char* kMatmul = "matmul";
inline constexpr const char* kPooling = "pooling";
inline constexpr const char* kBinary = "binary";
inline constexpr const char* kReorder = "reorder";

/// Why oneDNN's brgemm kernels must not compute it, as the end of a sentence about them; empty if they may.
std::string brgemm_fault(const Conv2d& conv);

/// Values of ?kernel= besides auto, in the order that auto tries them.
const std::vector<std::string>& kernels();
/// Whether `kernel` computes this kind of op at all.
bool considers(const std::string& kernel, const Op& op);
/// Throws dnnl::error, or Error(unsupported) with the reason.
Recipe make_recipe(const dnnl::engine& engine, const Op& op, const std::string& kernel);

}  // namespace gable::onednn
