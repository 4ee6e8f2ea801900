// A measured row: one type from the clock to the page. `measure` fills identity, placement, time, and the analytic work
// and traffic; `counting` replaces work and traffic by what counters read; `measure/judge.h` adds the verdict; `report`
// draws it. row_json.h writes and reads it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/record/device_kind.h"
#include "bench/record/energy.h"
#include "bench/record/insight.h"
#include "bench/record/levels.h"
#include "bench/record/program.h"
#include "perfcounters/sources/source.h"

namespace gable::bench {

struct EpilogueFields {
  bool bias = false;
  std::string activation = "none";
  std::optional<std::array<std::int64_t, 2>> max_pool{};         ///< window (h, w)
  std::optional<std::array<std::int64_t, 2>> max_pool_stride{};  ///< where it differs from the window
};

/// What was computed.
struct Identity {
  std::string suite{};  ///< empty for a single problem
  std::string name{};
  std::string op{};
  std::string problem{};
  std::string dtype{};
  std::string math{};    ///< empty: the op has none
  std::string layout{};  ///< empty: the op has none
  std::optional<EpilogueFields> epilogue{};
  std::optional<std::array<std::int64_t, 2>> tile{};  ///< row_chunk and free_dim of an `add` in tiles
  std::optional<double> working_set_bytes{};          ///< of rows that only move bytes
  std::optional<std::int64_t> count{};                ///< of a list's layer: how often it occurs in its network

  bool only_moves_bytes() const { return working_set_bytes.has_value(); }
};

/// The dtype of the kernel's multiplications. It decides the compute roof.
struct ArithmeticFields {
  std::string dtype{};                   ///< empty: not known (old records)
  int products = 1;                      ///< multiplications for one product of the op's dtype
  std::map<std::string, double> flop{};  ///< W by type ("f64", "f32", "x87", ...); empty: all is `dtype`
};

/// Where and how it ran.
struct Placement {
  std::string device{};  ///< URI; words after a space say how it was called ("cuda:0 graph")
  std::string asked{};   ///< "auto?threads=1" where an `auto` chose the device; else empty
  DeviceKind kind = DeviceKind::cpu;
  std::optional<int> gpu{};  ///< index of the GPU, where it is known
  std::string device_name{};
  std::string kernel{};
  std::optional<int> threads{};       ///< of a CPU device
  std::optional<int> used_threads{};  ///< of these, where a run uses fewer
  bool fused = false;
  std::string cache = "warm";  ///< or "cold"
  ArithmeticFields arithmetic{};

  /// Those by whose roofs the row is judged.
  std::optional<int> running_threads() const { return used_threads ? used_threads : threads; }
};

/// T in one of several rounds: processes that measured the same rows, one after the other.
struct TimingRound {
  double q1 = 0, seconds = 0, q3 = 0;
};

/// T, in seconds. Of several rounds median and quartiles are each the median of the rounds'.
struct Timing {
  std::string source = "clock";  ///< or "event"
  double seconds = 0;            ///< median
  double q1 = 0, q3 = 0;
  std::optional<double> fastest{};
  int runs = 1;
  std::optional<int> calls_per_run{};
  std::vector<TimingRound> rounds{};  ///< empty: measured in one go
};

/// How well a counted or simulated value is known.
struct Spread {
  std::optional<double> q1{}, q3{};
  std::optional<int> repetitions{};
  std::optional<double> multiplex{};  ///< time enabled / time running of the counters
};

/// W in FLOP, or Q at one level in bytes.
struct Quantity {
  std::string source = "analytic";  ///< or "counter", "simulated"
  double value = 0;
  std::optional<double> analytic{};
  std::string by{};  ///< the concrete source: perf_event, pcm, callgrind, cupti
  Spread spread{};
  std::optional<double> ratio{};  ///< value / analytic
  std::string note{};
  std::string reason{};                      ///< of an analytic value: why better sources have none
  std::map<std::string, double> resident{};  ///< by source: bytes counted while the tensors stayed in the caches

  bool is_analytic() const { return source == "analytic"; }
};

/// One of the roofs above a row.
struct RoofLimit {
  std::string bound{};  ///< as Verdict's
  std::string roof{};   ///< name of the ceiling
  double value = 0;     ///< of it, for this row's threads and products: FLOP/s or B/s
  double percent = 0;   ///< of it that the row reaches
};

/// What bounds the row under its device's ceilings, and which consistency rules it breaks.
struct Verdict {
  std::string bound{};  ///< "compute", "memory:LEVEL", "overhead"; empty: no ceiling was measured
  std::string roof{};   ///< name of the limiting ceiling
  std::optional<double> percent_of_roof{};
  std::vector<RoofLimit> limits{};   ///< all roofs, the lowest first: that one is `roof`
  std::vector<std::string> flags{};  ///< one sentence a broken rule
};

/// Errors relative to the reference, if they were checked.
struct Accuracy {
  std::optional<double> max_error{}, error_bound{}, relative_error{};
};

struct CounterPasses {
  int passes = 1;
  std::string plan{};
};

/// What counter sources report besides W and Q.
struct CounterDetails {
  std::map<std::string, double> extra{};           ///< by the vendor's names
  std::map<std::string, CounterPasses> sources{};  ///< by source
};

struct Row {
  Identity identity{};
  Placement place{};
  Timing time{};
  Quantity work{};  ///< W
  /// Q by level (kLevels). Only rows of a program whose data stay in the caches lack dram.
  std::map<std::string, Quantity> traffic;
  Verdict verdict{};
  Accuracy accuracy{};
  CounterDetails counters{};
  std::optional<double> edges_per_second{};  ///< of PageRank
  std::optional<CallFields> called{};        ///< of a program that is not gable's, its regions and kernels
  std::optional<Regime> regime{};
  std::optional<Scaling> scaling{};   ///< of short convolutions in a study with ceilings
  std::optional<NaiveModel> naive{};  ///< of convolutions
  std::optional<Fusion> fusion{};     ///< of fused max-pools, where the study has the row without it
  std::optional<perf::InstructionCounts> instructions{};  ///< of a GPU, where they were counted
  std::optional<EnergyFields> energy{};                   ///< with --energy

  bool on_gpu() const { return place.kind == DeviceKind::gpu; }
  bool flagged() const { return !verdict.flags.empty(); }
  double flops() const { return work.value / time.seconds; }
  /// The farthest level that has Q: of this one are bandwidth and intensity.
  const char* level() const {
    const char* farthest = farthest_level([&](const char* one) { return traffic.count(one) > 0; });
    return farthest != nullptr ? farthest : kLevels.back();
  }
  const Quantity& farthest() const { return traffic.at(level()); }
  double bandwidth() const { return farthest().value / time.seconds; }
  /// FLOP a joule; none where the energy is not known.
  std::optional<double> flop_per_joule() const {
    return energy && energy->joules ? std::optional(work.value / *energy->joules) : std::nullopt;
  }
  double intensity() const { return work.value / farthest().value; }
};

struct KernelRefusal {
  std::string kernel{};
  std::string reason{};
  bool operator==(const KernelRefusal&) const = default;
};

/// A case that could not run, with device and reason. An empty device: no device can run it.
struct Refusal {
  std::string suite{};
  std::string name{};
  std::string problem{};
  std::string dtype{};
  std::string math{};  ///< empty where there is no case
  std::string device{};
  std::string reason{};
  std::vector<KernelRefusal> kernels{};  ///< where several refuse

  /// For people. A line of a list that is no problem has no name of its own: "toy, line 4".
  std::string label() const { return dtype.empty() && !suite.empty() ? suite + ", " + name : name; }
  bool operator==(const Refusal&) const = default;
};

}  // namespace gable::bench
