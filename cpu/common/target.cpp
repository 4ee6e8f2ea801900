// The list of compiled targets, and what this CPU supports of it.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/common/target.h"

#include <hwy/targets.h>

#include <algorithm>
#include <array>

namespace gable::cpu {
namespace {

#define GABLE_CPU_COUNT(id, ns, name) +1
constexpr int kCompiled = 0 GABLE_CPU_FOR_EACH_TARGET(GABLE_CPU_COUNT);
static_assert(kCompiled <= kMaxTargets);

bool supported_here(std::int64_t id) {
  constexpr std::int64_t kPortable = HWY_SCALAR | HWY_EMU128;
  return ((hwy::SupportedTargets() | kPortable) & id) != 0;
}

std::array<Target, kCompiled> list_targets() {
#define GABLE_CPU_ENTRY(id, ns, name) Target{name, id, 0, supported_here(id)},
  std::array<Target, kCompiled> targets{GABLE_CPU_FOR_EACH_TARGET(GABLE_CPU_ENTRY)};
  for (int i = 0; i < kCompiled; ++i) targets[static_cast<std::size_t>(i)].index = i;
  return targets;
}

}  // namespace

std::span<const Target> compiled_targets() {
  static const std::array<Target, kCompiled> targets = list_targets();
  return targets;
}

const Target* find_target(std::string_view name) {
  for (const Target& target : compiled_targets()) {
    if (target.name == name) return &target;
  }
  return nullptr;
}

const Target& best_target() {
  const auto targets = compiled_targets();
  return *std::find_if(targets.begin(), targets.end(), [](const Target& target) { return target.supported; });
}

}  // namespace gable::cpu
