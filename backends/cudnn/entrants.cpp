// See entrants.h.
#include "backends/cudnn/entrants.h"

#include <set>

namespace gable::cudnn {
namespace {

constexpr std::size_t kMaxEngines = 20;  // a recipe
constexpr double kLong = 1;              // seconds of compiling: most engines take 0.02 to 0.4

/// Whether cuDNN would compile the engine in vain, by cuDNN 9.19: one without tensor cores, where the heuristics' first
/// has them, or engine 8 behind another one. The driver compiles that engine's code: 17 s and more (3x3 with stride 2
/// of 108 to 996 channels in f16), where it has not done so before; other engines take 0.02 to 0.4 s.
bool is_in_vain(const RecipeEngines& recipe, std::size_t engine) {
  constexpr std::int64_t kLeftToTheDriver = 8;
  const EngineTraits& one = recipe.engines[engine];
  const EngineTraits& first = recipe.engines[recipe.first];
  if (!one.compiled_at_run_time) return false;
  if (one.index == kLeftToTheDriver && first.index != kLeftToTheDriver) return true;
  return !one.tensor_cores && first.tensor_cores;
}

}  // namespace

std::vector<Entrant> entrants(const std::vector<RecipeEngines>& recipes, const Compiling& how) {
  std::vector<Entrant> found;
  std::set<std::int64_t> slow;
  const auto add = [&](const Entrant& entrant) {
    const double begin = how.now();
    if (how.compile(entrant)) found.push_back(entrant);
    if (how.now() - begin > kLong) slow.insert(recipes[entrant.recipe].engines[entrant.engine].index);
  };
  for (std::size_t i = 0; i < recipes.size(); ++i) add({i, recipes[i].first});
  for (const bool compiled : {false, true}) {
    for (std::size_t place = 1; place < kMaxEngines; ++place) {
      for (std::size_t i = 0; i < recipes.size(); ++i) {
        const std::size_t engine = recipes[i].first + place;
        if (engine >= recipes[i].engines.size() || is_in_vain(recipes[i], engine)) continue;
        const EngineTraits& traits = recipes[i].engines[engine];
        if (traits.compiled_at_run_time != compiled || slow.count(traits.index) != 0) continue;
        if (how.now() < (compiled ? how.end : how.ready_end)) add({i, engine});
      }
    }
  }
  return found;
}

}  // namespace gable::cudnn
