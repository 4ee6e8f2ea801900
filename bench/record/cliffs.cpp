// See cliffs.h.
#include "bench/record/cliffs.h"

#include <nlohmann/json.hpp>

namespace gable::bench {
namespace {

using nlohmann::json;

json term_json(const CliffTerm& term) {
  return {{"op", term.op},         {"problem", term.problem}, {"dtype", term.dtype},
          {"layout", term.layout}, {"kernel", term.kernel},   {"seconds", term.seconds}};
}

json cliff_json(const Cliff& cliff) {
  json others = json::array();
  for (const CliffTerm& term : cliff.others) others.push_back(term_json(term));
  return {
      {"property", cliff.property},      {"ratio", cliff.ratio},       {"limit", cliff.limit}, {"times", cliff.times},
      {"layer", term_json(cliff.layer)}, {"others", std::move(others)}};
}

}  // namespace

json to_json(const CliffDocument& document) {
  json properties = json::array();
  for (const PropertyCount& count : document.properties) {
    properties.push_back({{"property", count.property},
                          {"limit", count.limit},
                          {"checked", count.checked},
                          {"broken", count.broken},
                          {"worst", count.worst}});
  }
  json broken = json::array();
  for (const Cliff& cliff : document.broken) broken.push_back(cliff_json(cliff));
  return {{"schema_version", 1},        {"device", document.device},   {"seed", document.seed},
          {"layers", document.layers},  {"seconds", document.seconds}, {"properties", std::move(properties)},
          {"broken", std::move(broken)}};
}

}  // namespace gable::bench
