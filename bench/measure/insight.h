// What judged rows mean (bench/record/insight.h): their regime, the naive model's time, what fusion saves.
#pragma once

#include <optional>
#include <vector>

#include "bench/measure/ceilings.h"
#include "bench/record/row.h"

namespace gable::bench {

/// The time below which a row is bound by the cost of a call: on a GPU a launch and its end; on a CPU twice the
/// measured start and end of its threads, at least 2 us. Empty: not measured.
std::optional<double> overhead_seconds(const Row& row, const MachineCeilings& ceilings);

/// Sets regime, naive.seconds and fusion of each row. They need its verdict; rows without one have none.
void set_insights(std::vector<Row>& rows, const MachineCeilings& ceilings);

}  // namespace gable::bench
