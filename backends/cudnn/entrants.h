// Which engines take part in a race. Compiling one takes between microseconds and more than ten seconds, which nothing
// interrupts. So time is looked at before each, and an engine that took long is not compiled in further configurations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace gable::cudnn {

/// What is known of an engine before it is compiled.
struct EngineTraits {
  std::int64_t index = 0;  ///< the engine's number in cuDNN; configurations of one engine share it
  bool tensor_cores = false;
  bool compiled_at_run_time = false;
};

/// The engines of one recipe in the order of cuDNN's heuristics. Those before `first` do not compile.
struct RecipeEngines {
  std::vector<EngineTraits> engines{};
  std::size_t first = 0;
};

struct Entrant {
  std::size_t recipe = 0;
  std::size_t engine = 0;
  bool operator==(const Entrant&) const = default;
};

struct Compiling {
  std::function<bool(const Entrant&)> compile;  ///< false: the engine does not compile
  std::function<double()> now;                  ///< seconds
  double end = 0;                               ///< then no more engines are compiled at run time
  double ready_end = 0;                         ///< then no others either, but for the first of each recipe
};

/// The first engine of each recipe, then those that need no compiling, then the others, as far as they compile.
std::vector<Entrant> entrants(const std::vector<RecipeEngines>& recipes, const Compiling& how);

}  // namespace gable::cudnn
