// A study: rows with the machine, its ceilings and what was refused. study_json.h writes and reads it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/record/row.h"
#include "perfcounters/ceilings/ceilings.h"
#include "perfcounters/machine.h"
#include "perfcounters/sources/calibration.h"
#include "perfcounters/sources/source.h"

namespace gable::bench {

/// Peak arithmetic or bandwidth of a device: a roof.
struct CeilingEntry {
  std::string device{};
  DeviceKind device_kind = DeviceKind::cpu;
  std::string name{};
  std::string kind{};   ///< "compute" or "bandwidth"
  std::string level{};  ///< of a bandwidth
  std::string isa{};    ///< of arithmetic
  std::string dtype{};
  std::optional<int> threads{};  ///< none on a GPU
  std::optional<double> working_set_bytes{};
  std::optional<double> level_bytes{};  ///< of a GPU's memory level: its capacity
  perf::MeasuredLimit limit{};

  bool is_bandwidth() const { return kind == "bandwidth"; }
  bool on_gpu() const { return device_kind == DeviceKind::gpu; }
};

/// A limit that is no roof: instructions a second, the cost of a launch, copies from and to the host.
struct RateEntry {
  std::string device{};
  DeviceKind device_kind = DeviceKind::gpu;
  std::string name{};
  std::string unit{};  ///< "instruction/s", "s", "B/s"
  perf::MeasuredLimit limit{};
};

/// The machine that was measured. `facts` has every field, flattened, for people.
struct MachineEntry {
  std::string cpu{}, gpu{}, date{};
  int cores = 1;
  int threads = 0;
  std::map<std::string, double> caches{};        ///< bytes by name: "l1d", "l2", "l3"
  std::map<std::string, int> cache_instances{};  ///< of "l2" and "l3", that the threads reach; empty in old records
  std::vector<std::pair<std::string, std::string>> facts{};
};

/// "l1d", "l2" or "l3", the first whose size differs; empty: none that both name. Hypervisors call CPUs of several
/// generations "AMD EPYC": their caches tell them apart.
std::string different_cache(const MachineEntry& a, const MachineEntry& b);

/// A counter source and its calibration with known work.
struct CounterSourceEntry {
  perf::SourceStatus status{};
  perf::Provenance provenance = perf::Provenance::analytic;
  std::vector<perf::CalibrationCheck> checks{};
};

/// The mode of --counters and the sources of this machine.
struct CountersEntry {
  std::string mode{};
  std::vector<CounterSourceEntry> sources{};
};

/// Ceilings, rows and refusals, after measuring and after reading a record.
struct Study {
  std::vector<CeilingEntry> ceilings{};
  std::vector<RateEntry> rates{};
  std::vector<Row> rows{};
  std::vector<Refusal> refused{};
  std::optional<ProgramEntry> program{};  ///< of `gable measure`
};

/// The row of a part of a program, which has its kind, name and device; null: the part is no point of the roofline.
const Row* row_of_part(const std::vector<Row>& rows, const ProgramPart& part);
Row* row_of_part(std::vector<Row>& rows, const ProgramPart& part);

/// The run that measured a study.
struct RunEntry {
  perf::Machine machine{};
  std::string command{};  ///< the command line
  std::string mode{};     ///< what --quick left out; empty: nothing
  std::optional<CountersEntry> counters{};
  std::vector<EnergyCounterEntry> energy{};  ///< with --energy
};

}  // namespace gable::bench
