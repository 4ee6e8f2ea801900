// How good the choices of an `auto` are: time of what it chose / time of the best that it could have chosen, in turn.
#pragma once

#include <gable/choose.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/measure/core_rates.h"
#include "bench/measure/devices.h"
#include "bench/record/regret.h"
#include "bench/workloads/cases.h"

namespace gable::bench {

struct RegretJob {
  double seconds_each = 0.1;  ///< budget of one contestant on one layer
  bool kernels = false;       ///< contestants are all kernels of each device, not only the one that it would take
};

/// Opens devices once, by URI.
class RegretMeter {
 public:
  RegretMeter(OpenDevice automatic, const RegretJob& job);

  /// Adds the layer to the document; without anything to choose, or with a refusal, only counts it.
  void measure(const Case& one, RegretDocument& document);

 private:
  std::vector<OpenDevice> contestants(const Ranking& ranking);
  const OpenDevice* opened(const std::string& uri);
  double slowest_core(DType dtype);

  OpenDevice automatic_;
  RegretJob job_;
  std::vector<OpenDevice> opened_;
  std::map<bool, CoreRates> rates_;  ///< by whether the type is f32
};

/// What the ranking predicts for a kernel of a device, by their names in a row; nothing where it has no prediction.
std::optional<double> predicted_seconds(const Ranking& ranking, const std::string& device, const std::string& kernel);

/// One document of several of the same layers: of each contestant's time the median. Within one round a contestant
/// keeps its memory, whose place in the caches may change its time by some percent. Rounds in which one of the cores
/// was slow do not count where there are two others, whoever was faster in them.
RegretDocument median_of(std::vector<RegretDocument> rounds);

/// Geometric mean, worst and counts for each dtype and layout.
void summarize(RegretDocument& document);

}  // namespace gable::bench
