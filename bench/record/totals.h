// Whole networks: the time of all convolutions of a list, each layer's T times how often it occurs.
#pragma once

#include <string>
#include <vector>

#include "bench/record/row.h"

namespace gable::bench {

/// One network on one device.
struct NetworkTotal {
  std::string suite{}, dtype{}, math{}, layout{}, cache{}, device{};
  int layers = 0;                 ///< distinct layers that were measured; seconds and flop are theirs
  int layers_of_list = 0;         ///< layers that some device ran or refused
  std::int64_t convolutions = 0;  ///< the layers' counts, summed
  double seconds = 0;
  double flop = 0;

  bool is_whole() const { return layers == layers_of_list; }
};

/// One total for each network, dtype, math, layout, cache state and device of the rows that have a count, in the order
/// of their first rows.
std::vector<NetworkTotal> network_totals(const std::vector<Row>& rows, const std::vector<Refusal>& refused);

}  // namespace gable::bench
