// The record (docs/record.md): what this machine, its ceilings, a case and a measurement look like as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/measure/ceilings.h"
#include "bench/measure/op_runner.h"
#include "bench/workloads/bandwidth.h"
#include "bench/workloads/cases.h"
#include "bench/workloads/pagerank.h"
#include "perfcounters/machine.h"
#include "perfcounters/timing.h"

namespace gable::bench {

/// `command` is the command line; versions are gable's and those that the devices' plugins state in their names.
nlohmann::json machine_record(const perf::Machine& machine, const std::string& command);

/// suite, name, op, problem, dtype, and what the op has of layout, epilogue, math and tile.
nlohmann::json case_record(const Case& one);

nlohmann::json refusal_record(const Refusal& refusal);

/// One measurement; nothing is said about roofs yet.
nlohmann::json measurement_record(const Case& one, const OpRunner& runner, const perf::Timing& timing,
                                  perf::Cache cache);

nlohmann::json bandwidth_record(const MeasuredBandwidth& measured);
nlohmann::json graph_record(const MeasuredGraph& measured);

/// Fills in the consistency rules that each measurement breaks and, under its device's ceilings, what bounds it and how
/// much of its roof it reaches. Traffic that was counted or simulated is held against the bandwidth of its level; the
/// analytic traffic of warm tensors that fit a cache against that cache's. Returns the greatest percentage of a roof.
double judge_measurements(nlohmann::json& measurements, const MachineCeilings& ceilings, const perf::Machine& machine);

/// A study of its parts.
nlohmann::json study_record(nlohmann::json machine, const MachineCeilings& ceilings, nlohmann::json measurements,
                            const std::vector<Refusal>& refused);

}  // namespace gable::bench
