// Two studies of one machine, row by row: which rows became slower or faster beyond the noise (statistics.h).
//
// Rows pair by what was computed and where: suite, name, op, problem, dtype, layout, math, epilogue, tile, device,
// cache, threads; of a program's kernel also its region. Rows that are alike in all of these pair in their order.
//
// With rounds (gable bench --rounds), or with several studies a side, each row has its own noise (repeated.h). With one
// study a side and no rounds, noise is learnt from the other rows, as follows.
//
// Rows of a vendor's library of one version, measured in turn with gable's, are controls. Drift is theirs where there
// are enough of them. Where gable's row and the library's of the same case moved alike, the machine was disturbed
// during this case: twice the library's move is added to the row's noise, and the other way round. All intervals are
// wider than the other rows' noise asks for by unseen_noise(); where that leaves a control outside its own, they are
// widened until it is inside.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/diff/statistics.h"
#include "bench/record/study_json.h"

namespace gable::bench {

enum class Judgement { slower, faster, same, cannot_tell };
std::string to_string(Judgement judgement);

/// The factor that widens intervals of rows without rounds: rows differ in their variation from run to run, which one
/// study can't show. For CPUs it is fitted and checked like the constants of repeated.cpp: other programs disturb a row
/// for as long as it is measured. GPU times are not disturbed by these; their factor is that of a quiet CPU.
constexpr double unseen_noise(DeviceKind kind) { return kind == DeviceKind::cpu ? 12 : 3; }

struct DiffOptions {
  NoiseLimits noise;
  double same = 0.03;  ///< a row whose interval is within 1 ± this is the same
};

/// A row of both studies. Ratios are new time / old time, without drift.
struct RowPair {
  const Row* before = nullptr;
  const Row* after = nullptr;
  Judgement judgement = Judgement::cannot_tell;
  double ratio = 1;                     ///< of the medians
  std::optional<double> low{}, high{};  ///< the interval; none where there are too few runs
  std::string reason{};                 ///< why it can't be told
  bool kernel_changed() const { return before->place.kernel != after->place.kernel; }
};

/// Its pointers are to rows of the two studies, of several studies to those of `pooled`.
struct StudyDiff {
  std::vector<RowPair> pairs;  ///< in the order of the old study
  std::vector<const Row*> only_before, only_after;
  std::map<DeviceKind, Noise> noise;
  int in_rounds = 0;                               ///< pairs of studies with rounds, compared by these (repeated.h)
  std::shared_ptr<std::array<Study, 2>> pooled{};  ///< each row's medians over the studies of a side
  double geometric_mean = 1;                       ///< of new time / old time, drift included

  int count(Judgement judgement) const;
};

StudyDiff compare_studies(const Study& before, const Study& after, const DiffOptions& options);

/// Several studies of each build (repeated.h). Rows that are not in all studies of a side are left out.
StudyDiff compare_studies(std::span<const Study> before, std::span<const Study> after, const DiffOptions& options);

/// Why two machines are not the same, or empty.
std::string machine_difference(const MachineEntry& before, const MachineEntry& after);

/// Versions and settings of the machine that changed, a line each: "compiler: GCC 12 -> GCC 13".
std::vector<std::string> changed_facts(const MachineEntry& before, const MachineEntry& after);

}  // namespace gable::bench
