// Measurement (gable/measure.h) and Row, one made of the other.
#pragma once

#include <gable/measure.h>

#include <optional>
#include <string>
#include <vector>

#include "bench/record/row.h"
#include "perfcounters/machine.h"

namespace gable::bench {

/// What the library's rows have as `op`.
inline constexpr const char* kOwnOp = "callable";

/// This machine, described once.
const perf::Machine& this_machine();

/// Name and dtype as identity, the program as its suite, and where it ran.
Row own_row(const std::string& name, const MeasureOptions& options);

/// The row of a measurement; its verdict has the flags only. Precondition: m.is_point().
Row row_of(const Measurement& m);

/// The measurement as a refused entry. Precondition: !m.is_point().
Refusal refusal_of(const Measurement& m);

}  // namespace gable::bench
