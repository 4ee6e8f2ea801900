// What `gable list` lists, as JSON.
#pragma once

#include <gable/ops.h>

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "bench/record/row.h"

namespace gable::bench {

struct ListedCase {
  Identity identity;
  Op op;
};

/// Each case has its identity, least work and least traffic, a convolution also its shapes.
nlohmann::json list_json(const std::vector<ListedCase>& cases, const std::vector<Refusal>& refused);

}  // namespace gable::bench
