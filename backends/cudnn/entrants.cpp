// See entrants.h.
#include "backends/cudnn/entrants.h"

#include <set>

namespace gable::cudnn {
namespace {

constexpr std::size_t kMaxEngines = 20;  // a recipe
constexpr double kLong = 1;              // seconds of compiling: most engines take 0.1 to 0.5

/// Whether cuDNN would compile the engine in vain: one without tensor cores, where the heuristics' first has them.
/// cuDNN 9.19 takes more than 20 s for some of these (3x3 with stride 2 of 108 channels in f16).
bool is_in_vain(const RecipeEngines& recipe, std::size_t engine) {
  return recipe.engines[engine].compiled_at_run_time && !recipe.engines[engine].tensor_cores &&
         recipe.engines[recipe.first].tensor_cores;
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
