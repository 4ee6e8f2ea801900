// Where numbers come from. Every source of W, Q or T says what it can give on this machine, or why not and what would
// cure it; nothing falls back in silence to another source.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gable::perf {

struct SourceStatus {
  std::string name;  ///< "steady_clock", "analytic", "perf_event", "pcm", "cupti"
  bool available = false;
  std::string provides;  ///< what it gives here, or would give: "W", "Q(dram)", "T" and their conditions
  std::string reason;    ///< empty when everything in `provides` is available; else why not, in the system's own words
  std::string cure;      ///< empty when there is nothing to cure
};

/// A number or the reason for which there is none.
struct Quantity {
  std::optional<double> value;
  std::string reason;
};

/// What a counter source read around one piece of work.
struct Reading {
  Quantity flop;        ///< W
  Quantity dram_bytes;  ///< Q(dram), the whole socket's traffic meanwhile
};

class CounterSource {
 public:
  virtual ~CounterSource() = default;
  virtual SourceStatus status() const = 0;
  /// Runs `work` once between two readings of the counters. Never use the time of such a run as T.
  virtual Reading measure(const std::function<void()>& work) = 0;
};

/// The status of every source that gable knows, in the order in which a report prefers to name them.
std::vector<SourceStatus> counter_sources();

}  // namespace gable::perf
