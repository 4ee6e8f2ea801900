// Options that several subcommands of `gable` have, and checks of options' values.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>

#include "bench/cli/study_run.h"
#include "bench/workloads/selection.h"
#include "common/limits.h"

namespace gable::bench {

inline constexpr std::uint64_t kMaxBatch = 1'000'000'000;  ///< as in a problem
inline constexpr std::uint64_t kMaxCount = 1'000'000'000;  ///< of runs, layers, lines
inline constexpr std::uint64_t kMaxSeed = std::numeric_limits<std::uint64_t>::max();

/// A finite number above 0. (CLI::PositiveNumber accepts nan, and its message has 300 digits.)
CLI::Validator positive();
/// A number from 0 to 1. (CLI::Range accepts nan.)
CLI::Validator share();
/// A whole number. (CLI11 itself clamps a number that is out of range, and wraps -1 to the greatest unsigned one.)
CLI::Validator whole(std::uint64_t least, std::uint64_t most);

void add_json(CLI::App& app, std::string& json);
/// --dtype, --layout, --math.
void add_attributes(CLI::App& app, SelectionOptions& s);
/// --activation, --max-pool.
void add_epilogue(CLI::App& app, SelectionOptions& s);
void add_problem(CLI::App& app, SelectionOptions& s);
/// Everything that selects cases: --problem, --suite, --file, attributes, filters.
void add_selection(CLI::App& app, SelectionOptions& s);
void add_threads(CLI::App& app, int& threads);
/// --device, --threads.
void add_devices(CLI::App& app, StudyOptions& s);
/// --cache, --seconds, --counters, --energy.
void add_measuring(CLI::App& app, StudyOptions& s);
void add_resume(CLI::App& app, StudyOptions& s);

}  // namespace gable::bench
