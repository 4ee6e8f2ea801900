// Energy of a row and the counters that it came from. bench/measure/energy.h measures it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bench/record/device_kind.h"

namespace gable::bench {

/// The energy of one call, or the reason why it is not known.
struct EnergyFields {
  std::optional<double> joules{};
  std::string reason{};
  std::string by{};    ///< "nvml", "rapl"
  double watts = 0;    ///< mean power, idle power included
  double seconds = 0;  ///< that the calls were repeated for
  std::int64_t calls = 0;
  int updates = 0;         ///< how often the counter was seen to change in that time
  double uncertainty = 0;  ///< share of the energy that the counter's refreshes leave open
};

/// Whether a device's energy can be counted here.
struct EnergyCounterEntry {
  std::string device{};  ///< "cpu", "cuda:0"
  DeviceKind device_kind = DeviceKind::cpu;
  std::string by{};
  std::string reason{}, cure{};        ///< why not; empty: it is counted
  std::string note{};                  ///< what is counted
  std::optional<double> idle_watts{};  ///< while nothing of gable ran
};

}  // namespace gable::bench
