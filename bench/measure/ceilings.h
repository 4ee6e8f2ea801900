// The ceilings of a whole machine: the CPU's, which perfcounters measures, and each GPU's, which its backend does.
#pragma once

#include <gable/device.h>
#include <gable/study.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/measure/devices.h"
#include "bench/record/study.h"
#include "perfcounters/ceilings/ceilings.h"
#include "perfcounters/machine.h"
#include "perfcounters/timing.h"

namespace gable::bench {

/// A limit that is no roof: instructions a second, what a launch costs, copies from and to the host.
struct Rate {
  std::string name;
  std::string unit;    ///< "instruction/s", "s", "B/s"
  perf::Timing value;  ///< in `unit`, whatever its fields are called
  double theoretical = 0;
  std::string formula;
  std::string note;
};

struct GpuCeilings {
  std::string device;  ///< "cuda:0"; other backends of the same GPU are held against the same roofs
  Memory memory;
  std::vector<perf::Ceiling> roofs;  ///< threads are 0
  std::vector<Rate> rates;
  double l2_bytes = 0;
  double overhead_seconds = 0;  ///< of a launch that is waited for; 0 where that is not known
};

struct MachineCeilings {
  std::vector<perf::Ceiling> cpu;
  std::vector<GpuCeilings> gpus;

  /// Those of the GPU with this index; null if there are none.
  const GpuCeilings* of_gpu(std::optional<int> index) const;
};

/// What a GPU's backend measured, as roofs and rates.
GpuCeilings gpu_ceilings(const DeviceInfo& device, const std::vector<Ceiling>& measured);

/// Whose ceilings: of everything that is there, or of what the devices of a study run on.
struct CeilingScope {
  bool cpu = false;
  std::vector<int> gpus;
};
CeilingScope whole_machine();
CeilingScope scope_of(const std::vector<Memory>& memories);
CeilingScope scope_of(const std::vector<OpenDevice>& devices);

struct CeilingCallbacks {
  std::function<void(std::size_t done, std::size_t total, const std::string& what)> progress;
  std::function<void(const std::string& line)> print;  ///< what people should know
};

/// A GPU that can't be measured is left out; its reason is printed.
MachineCeilings measure_ceilings(const perf::Machine& machine, const CeilingScope& scope, bool quick,
                                 const CeilingCallbacks& callbacks);

/// Of two measurements of the same roof the higher: whatever else runs can only lower it.
void keep_higher(MachineCeilings& ceilings, const MachineCeilings& again);

/// As the record has them.
std::vector<CeilingEntry> ceiling_entries(const MachineCeilings& ceilings);
std::vector<RateEntry> rate_entries(const MachineCeilings& ceilings);

}  // namespace gable::bench
