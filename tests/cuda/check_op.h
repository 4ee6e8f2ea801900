// Runs an op on a device and compares every element with the f64 oracle, within the plan's own bound.
#pragma once

#include <doctest/doctest.h>
#include <gable/gable.h>

#include "tests/conformance/conformance_run.h"

namespace gable {

inline void check(const Device& device, const Op& op, const conformance::Operands& operands) {
  INFO(device.info().uri, ": ", describe(op));
  const Plan plan = device.plan(op);
  INFO(plan.explain());
  conformance::Bench bench(device, plan, operands);
  bench.run();
  const Comparison comparison = compare(bench.outcome().y, oracle(op, operands.views()), plan.error_bound());
  INFO("first mismatch at ", comparison.first_mismatch, ", ", comparison.worst_ratio, " of the bound");
  CHECK(comparison.mismatches == 0);
}

inline void check(const Device& device, const Op& op) { check(device, op, conformance::make_operands(op)); }

}  // namespace gable
