// What `gable regret` measured: the choices of an `auto`, layer by layer.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/record/row.h"

namespace gable::bench {

/// A core that runs at less than this share of the fastest rate is slow: something outside of this process slows it.
inline constexpr double kSteadyRate = 0.8;

struct RegretTime {
  std::string device{}, kernel{};
  double seconds = 0;
  std::optional<double> predicted{};  ///< by the model, which a measured choice does not go by
};

struct RegretLayer {
  Identity identity{};
  RegretTime pick{};
  std::string source{};               ///< of the choice: "model" or "measured"
  std::optional<double> predicted{};  ///< of the pick
  std::vector<RegretTime> times{};    ///< of all contestants, the pick's first
  RegretTime best{};
  std::vector<double> rounds{};  ///< of each round that counts: time of the pick / that of the best; empty for one
  /// Of each round: the rate of the slowest core in use over the fastest of all layers; empty for devices without
  /// cores.
  std::vector<double> core_rates{};
  int left_out = 0;  ///< rounds that do not count, since a core was slow

  /// Whether cores were slow in rounds that count, since there were no others.
  bool is_unsteady() const;

  double ratio() const { return pick.seconds / best.seconds; }
  /// What the ratio is at least, beyond the noise: its median over further rounds is below with a probability of 1/16
  /// or less, by the sign test, from four rounds on (of three 1/8, of two 1/4). 1 for one round, which does not tell.
  double at_least() const;
};

/// The layers of one dtype in one layout.
struct RegretSummary {
  std::string dtype{}, layout{};
  int layers = 0;
  double geo = 1, worst = 1;
  int above = 0;                            ///< by more than 5 %
  int surely_above = 0;                     ///< the same by at_least()
  double surely_worst = 1;                  ///< by at_least()
  int unsteady = 0;                         ///< layers that is_unsteady() is true of
  double steady_geo = 1, steady_worst = 1;  ///< without these
  int right = 0;                            ///< the pick is the best
};

struct RegretDocument {
  std::string device{};
  double choosing = 0;  ///< seconds of choosing, median over the layers
  int rounds = 1;
  int without_choice = 0;
  std::vector<RegretLayer> layers{};
  std::vector<RegretSummary> summaries{};
  std::vector<Refusal> refused{};  ///< what left layers without a choice, where it was no lack of candidates
};

nlohmann::json to_json(const RegretDocument& document);

}  // namespace gable::bench
