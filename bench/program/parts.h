// From what a program left behind to what a report shows: the program as a whole, its regions and its kernels, each
// with its calls and times and, where a source has counted it, W and Q of one call.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/record/program.h"
#include "bench/record/row.h"
#include "perfcounters/program/session.h"

namespace gable::bench {

/// W and Q of one call, from one source.
struct CountedWork {
  std::map<std::string, double> flop{};   ///< by the type of the arithmetic: "f64", "f32", …; empty: W is not known
  std::map<std::string, double> bytes{};  ///< by level: "dram", "l3", "l2", "l1"
  std::string source = "analytic";        ///< "counter", "simulated", or "analytic": declared by the program
  std::string by{};                       ///< "callgrind", "cupti", "perf_event"; empty: declared
  std::string note{};                     ///< limits of these values
  std::string reason{};                   ///< why W or Q of the memory is missing

  bool has(const std::string& level) const { return bytes.count(level) > 0 && bytes.at(level) > 0; }
  /// A point of the roofline needs both. Data that stay in the caches have Q of a cache alone.
  bool is_point() const { return !flop.empty() && (has("dram") || has("l3") || has("l2") || has("l1")); }
};

/// A part with what its row needs.
struct MeasuredPart {
  std::string kind{};  ///< as ProgramPart's
  std::string name{};
  std::string kernel{};  ///< of a kernel: its whole name
  std::string shape{};   ///< of a kernel: "grid 128 block 256", and "work 2" where launches differ
  CallFields called{};
  perf::CallTimes times{};
  std::optional<int> gpu{};  ///< none: a CPU
  std::string device_name{};
  int threads = 1;  ///< of a CPU
  CountedWork counted{};
  std::vector<std::string> flags{};        ///< limits of its T
  std::map<std::string, double> counts{};  ///< of a kernel that was counted deeply: perf::KernelPoint::parts
  std::map<std::string, double> stalls{};
};

/// The type with the most FLOP, f64 for x87's; f32 where there is none.
std::string main_dtype(const std::map<std::string, double>& flop);

/// Parts of the same kind that would have the same name get their shape, then their region, then a number.
void make_names_unique(std::vector<MeasuredPart>& parts);

/// Keeps, of each kind, the `most` parts with the most time. The kernels beyond them become one part "rest".
std::vector<MeasuredPart> with_most_time(std::vector<MeasuredPart> parts, int most);

/// For the record's `program`.
ProgramPart entry_of(const MeasuredPart& part);

/// Adds the parts' flags to those of their rows.
void flag_rows(const std::vector<MeasuredPart>& parts, std::vector<Row>& rows);

/// Precondition: part.counted.is_point(). `program` becomes the suite.
Row row_of(const MeasuredPart& part, const std::string& program);

}  // namespace gable::bench
