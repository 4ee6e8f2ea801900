// The instruction sets that the kernels were compiled for, by public name ("avx512", "avx2", "sse4", "neon", "scalar",
// …). A plan takes a Target explicitly and looks its kernels up once, so no dispatch happens while it runs.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace gable::cpu {

struct Target {
  std::string_view name;
  std::int64_t id;  // Highway's bit for it
  int index;        // position in compiled_targets()
  bool supported;   // whether this CPU can run it
};

/// At most this many targets are ever compiled together.
constexpr int kMaxTargets = 16;

/// Every compiled target, best first. Never empty; at least one is supported.
std::span<const Target> compiled_targets();

/// The compiled target of that name, or null. It may be unsupported by this CPU: running it then is undefined.
const Target* find_target(std::string_view name);

/// The best target that this CPU supports.
const Target& best_target();

}  // namespace gable::cpu
