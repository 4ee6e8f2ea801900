// What `gable cliffs` found: layers that take longer than their neighbours promise.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace gable::bench {

/// One op that was timed.
struct CliffTerm {
  std::string op{}, problem{}, dtype{}, layout{}, kernel{};
  double seconds = 0;
};

/// A layer that breaks a property: its T is above limit x times x the sum of the others' T.
struct Cliff {
  std::string property{};
  CliffTerm layer{};
  std::vector<CliffTerm> others{};
  double times = 1;  ///< images of the layer for each image of the others
  double ratio = 0;  ///< T(layer) / (times x sum of the others' T)
  double limit = 0;
};

/// How one property held.
struct PropertyCount {
  std::string property{};
  double limit = 0;
  int checked = 0;
  int broken = 0;
  double worst = 0;  ///< largest ratio
};

struct CliffDocument {
  std::string device{};
  std::uint64_t seed = 0;
  int layers = 0;
  double seconds = 0;  ///< that the run took
  std::vector<PropertyCount> properties{};
  std::vector<Cliff> broken{};  ///< worst first
};

nlohmann::json to_json(const CliffDocument& document);

}  // namespace gable::bench
