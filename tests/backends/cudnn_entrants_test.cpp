// Which of cuDNN's engines are compiled for a race, with a clock that compiling moves. Needs neither cuDNN nor a GPU.
#include <doctest/doctest.h>

#include <map>
#include <vector>

#include "backends/cudnn/entrants.h"

namespace gable::cudnn {
namespace {

constexpr EngineTraits ready(std::int64_t index) { return {.index = index, .tensor_cores = true}; }
constexpr EngineTraits compiled(std::int64_t index) {
  return {.index = index, .tensor_cores = true, .compiled_at_run_time = true};
}

struct Compiler {
  std::map<std::int64_t, double> seconds{};  ///< by the engine's index; 0.01 for others
  double clock = 0;
  std::vector<Entrant> asked{};

  std::vector<Entrant> run(const std::vector<RecipeEngines>& recipes, double end, double ready_end = 9) {
    const auto compile = [&](const Entrant& one) {
      asked.push_back(one);
      const auto found = seconds.find(recipes[one.recipe].engines[one.engine].index);
      clock += found == seconds.end() ? 0.01 : found->second;
      return true;
    };
    return entrants(recipes, {compile, [this] { return clock; }, end, ready_end});
  }
};

TEST_CASE("first engines of recipes come first, then those that need no compiling") {
  Compiler compiler;
  const auto found =
      compiler.run({{{compiled(1), compiled(2), ready(3)}, 0}, {{compiled(4), ready(5), ready(6)}, 1}}, 9);
  CHECK(found == std::vector<Entrant>{{0, 0}, {1, 1}, {1, 2}, {0, 2}, {0, 1}});
}

TEST_CASE("when time is over no engine is compiled but the first of each recipe, whether at run time or not") {
  Compiler compiler;
  compiler.seconds[1] = 5;
  CHECK(compiler.run({{{compiled(1), ready(2), compiled(3)}, 0}, {{ready(4), ready(5)}, 0}}, 2.5, 2.5) ==
        std::vector<Entrant>{{0, 0}, {1, 0}});
  CHECK(compiler.asked.size() == 2);
}

TEST_CASE("engines that need no compiling have a time limit of their own") {
  Compiler compiler;
  CHECK(compiler.run({{{ready(1), compiled(2), ready(3), ready(4)}, 0}}, 0, 0.015) ==
        std::vector<Entrant>{{0, 0}, {0, 2}});
}

TEST_CASE("an engine that took long to compile is not compiled in another configuration") {
  Compiler compiler;
  compiler.seconds[7] = 1.5;
  const auto found =
      compiler.run({{{ready(1), compiled(7), compiled(7), compiled(9)}, 0}, {{ready(1), compiled(7)}, 0}}, 9);
  CHECK(found == std::vector<Entrant>{{0, 0}, {1, 0}, {0, 1}, {0, 3}});
}

TEST_CASE("engines without tensor cores are not compiled where the first has them") {
  Compiler compiler;
  const EngineTraits plain{.index = 9, .compiled_at_run_time = true};
  CHECK(compiler.run({{{ready(1), plain, compiled(2)}, 0}}, 9) == std::vector<Entrant>{{0, 0}, {0, 2}});
  CHECK(compiler.run({{{plain, plain}, 0}}, 9) == std::vector<Entrant>{{0, 0}, {0, 1}});
}

TEST_CASE("engine 8, which the driver compiles for many seconds, takes part only where it is the first") {
  Compiler compiler;
  CHECK(compiler.run({{{ready(1), compiled(8), compiled(2)}, 0}}, 9) == std::vector<Entrant>{{0, 0}, {0, 2}});
  CHECK(compiler.run({{{compiled(8), compiled(8)}, 0}}, 9) == std::vector<Entrant>{{0, 0}, {0, 1}});
}

}  // namespace
}  // namespace gable::cudnn
