// The ceilings of a whole machine. perfcounters measures the CPU's, each GPU's backend measures the GPU's.
#pragma once

#include <gable/device.h>
#include <gable/study.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/measure/devices.h"
#include "bench/record/study.h"
#include "perfcounters/ceilings/ceilings.h"
#include "perfcounters/machine.h"
#include "perfcounters/timing.h"

namespace gable::bench {

/// A limit that is no roof: instructions a second, the cost of a launch, copies from and to the host.
struct Rate {
  std::string name;
  std::string unit;  ///< "instruction/s", "s", "B/s"
  perf::MeasuredLimit limit;
};

/// The rate that is a GPU's overhead.
constexpr const char* kWaitedLaunch = "launch and wait";

struct GpuCeilings {
  std::string device;  ///< "cuda:0"; rows of other backends on the same GPU use the same roofs
  Memory memory;
  std::vector<perf::Ceiling> roofs;  ///< threads are 0
  std::vector<Rate> rates;
  double l2_bytes = 0;
  double overhead_seconds = 0;  ///< of a launch and the wait for its end; 0: not known
};

struct MachineCeilings {
  std::vector<perf::Ceiling> cpu{};
  std::map<int, perf::Timing> team_starts{};  ///< by threads: seconds to start and join so many
  std::vector<GpuCeilings> gpus{};

  /// The ceilings of the GPU with this index, or null.
  const GpuCeilings* of_gpu(std::optional<int> index) const;
};

/// The measurements of a GPU's backend as roofs and rates.
GpuCeilings gpu_ceilings(const DeviceInfo& device, const std::vector<Ceiling>& measured);

/// Which hardware to measure: all of it, or only what the devices of a study run on.
struct CeilingScope {
  bool cpu = false;
  std::vector<int> gpus;
};
CeilingScope whole_machine();
CeilingScope scope_of(const std::vector<Memory>& memories);
CeilingScope scope_of(const std::vector<OpenDevice>& devices);

struct CeilingCallbacks {
  std::function<void(std::size_t done, std::size_t total, const std::string& what)> progress;
  std::function<void(const std::string& line)> print;  ///< prints a message for people
  /// FLOP or bytes a joule of a loop; `work()` runs the loop once more and returns the FLOP or bytes that it did.
  using PerJoule = std::function<std::optional<double>(const std::function<double()>& work)>;
  /// That of the CPU's (no index) or a GPU's counter of energy; empty where it has none. Empty: energy is not wanted.
  std::function<PerJoule(std::optional<int> gpu)> per_joule{};
};

/// A GPU that can't be measured is left out; its reason is printed. `known`: a further round, of what is worth it on a
/// CPU (perfcounters/ceilings/ladder.h); null: all.
MachineCeilings measure_ceilings(const perf::Machine& machine, const CeilingScope& scope, bool quick,
                                 const CeilingCallbacks& callbacks, const MachineCeilings* known = nullptr);

/// Adds another round of the hardware that `again` has (perfcounters/ceilings/ladder.h).
void add_round(MachineCeilings& ceilings, const MachineCeilings& again);
/// Adds the ceilings and rates that only `others` has.
void add_missing(MachineCeilings& ceilings, const MachineCeilings& others);
/// Sets the doubt of each ceiling that contradicts another one; returns how many there are.
int set_doubts(MachineCeilings& ceilings);

/// The entries for the record.
std::vector<CeilingEntry> ceiling_entries(const MachineCeilings& ceilings);
std::vector<RateEntry> rate_entries(const MachineCeilings& ceilings);

}  // namespace gable::bench
