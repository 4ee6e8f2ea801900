// The record's fields that identify a case.
#pragma once

#include "bench/record/row.h"
#include "bench/workloads/cases.h"

namespace gable::bench {

Identity identity_of(const Case& one);
Identity identity_of(const BandwidthCase& one);
Identity identity_of(const GraphCase& one);

}  // namespace gable::bench
