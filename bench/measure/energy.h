// --energy: the energy of rows and of ceilings, from the counters of perfcounters/energy.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/record/energy.h"
#include "bench/record/row.h"
#include "perfcounters/energy/energy.h"
#include "perfcounters/timing.h"

namespace gable::bench {

class EnergyMeasurer {
 public:
  /// The source of a GPU, or of the CPU (no index).
  using Open = std::function<perf::EnergySource(std::optional<int> gpu)>;

  /// Measures nothing.
  EnergyMeasurer() = default;
  explicit EnergyMeasurer(Open open, perf::EnergyProtocol protocol = {});

  bool wanted() const { return open_ != nullptr; }

  /// Looks for the device's counter and measures its idle power; the first time only. `gpu`: none for the CPU.
  void prepare(std::optional<int> gpu);

  /// Whether the device has a counter that can be read.
  bool available(std::optional<int> gpu) { return wanted() && counter_of(gpu).source.available(); }

  /// Sets the row's energy by repeating `subject`, the call that was timed. A cold row is refused.
  void measure(Row& row, const perf::Subject& subject);

  /// FLOP or bytes a joule of a ceiling's loop; none where its energy is not known. `work()` runs the loop once more
  /// and returns the FLOP or bytes that it did.
  std::optional<double> per_joule(std::optional<int> gpu, const std::function<double()>& work);

  std::vector<EnergyCounterEntry> entries() const;
  /// The entries as text: "energy: none here: no /sys/class/powercap, no NVML".
  std::vector<std::string> summary() const;

 private:
  struct Counter {
    perf::EnergySource source;
    EnergyCounterEntry entry;
  };
  const Counter& counter_of(std::optional<int> gpu);

  Open open_{};
  perf::EnergyProtocol protocol_{};
  std::map<std::optional<int>, Counter> counters_{};
};

/// The machine's own counters.
EnergyMeasurer::Open open_energy();

}  // namespace gable::bench
