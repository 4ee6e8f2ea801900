// When ceilings are measured: before the rows, between them, and after them (A B A B, as devices take turns), because
// the machine's clock and other programs change while a study runs. The best sustained value of all rounds counts, and
// how far the rounds lie apart is kept.
#pragma once

#include <functional>
#include <vector>

#include "bench/measure/ceilings.h"
#include "bench/record/row.h"
#include "perfcounters/machine.h"

namespace gable::bench {

/// What to measure in a round.
struct CeilingRound {
  CeilingScope scope;
  const MachineCeilings* known = nullptr;  ///< from the rounds before; null: the first one. Later rounds are short
};

struct CeilingSource {
  std::function<MachineCeilings(const CeilingRound&)> measure;
  std::function<double()> now;  ///< seconds of a steady clock
};
double steady_seconds();

class CeilingRounds {
 public:
  /// Measures the first round.
  CeilingRounds(CeilingSource source, const CeilingScope& scope);

  /// The rounds of an earlier run on this machine count too. What only they have is kept: the first round of this run
  /// may have been interrupted.
  void add_recorded(const MachineCeilings& before);

  /// Between rows: measures the ceilings of this kind of device again, if rounds take less than a tenth of the time.
  void between(DeviceKind kind);

  const MachineCeilings& so_far() const { return ceilings_; }

  /// After the rows: the closing round, and up to two more of the hardware whose ceilings contradict each other or
  /// where a row is above its roof. Then judges the rows. After an interruption (perfcounters/interrupt.h) nothing more
  /// is measured.
  const MachineCeilings& judge(std::vector<Row>& rows, const perf::Machine& machine);

 private:
  CeilingScope scope_of(DeviceKind kind) const;
  /// The hardware whose ceilings contradict each other or are below a row.
  CeilingScope in_trouble(const std::vector<Row>& rows) const;
  void add(const CeilingScope& scope);

  CeilingSource source_;
  CeilingScope scope_;
  MachineCeilings ceilings_;
  double seconds_ = 0;  ///< that the last round took
  double ended_ = 0;
};

}  // namespace gable::bench
