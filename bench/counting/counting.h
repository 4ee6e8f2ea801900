// W and Q of rows that were timed: which source gives which quantity (--counters), and what the record says of it.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bench/measure/measure.h"
#include "perfcounters/sources/calibration.h"
#include "perfcounters/sources/source.h"

namespace gable::bench {

enum class CounterMode { automatic, counter, simulated, analytic };

/// "auto", "counter", "simulated", "analytic". Throws Error(invalid_argument).
CounterMode parse_counter_mode(std::string_view text);

class Counting {
 public:
  /// `sources` best first; each is calibrated before it is believed. `helper` is the gable program that runs workloads
  /// in processes of their own, `seconds_limit` the longest that one such process may take.
  Counting(CounterMode mode, std::vector<std::unique_ptr<perf::CounterSource>> sources, std::string helper,
           double seconds_limit);

  /// Throws Error(unsupported) with every source's reason and cure when the mode names a kind of source and none of
  /// that kind works on any of these devices.
  void require_sources(const std::vector<OpenDevice>& devices) const;

  /// Sets W, Q and what follows from them in a measurement's record: each quantity from the best source of the mode
  /// that gives it, else analytic with the reason.
  void count(const Measured& measured, nlohmann::json& record);

  /// Rows for which a source gave something.
  int rows_counted() const { return rows_counted_; }
  /// The mode names a kind of source, and that gave nothing for any of the rows.
  bool gave_nothing() const;

  /// The mode, each source's status and what its calibration read, for the record; null in analytic mode.
  nlohmann::json record() const;
  /// The same for people, a line each.
  std::vector<std::string> summary() const;

 private:
  bool wants(const perf::CounterSource& source, bool gpu) const;

  CounterMode mode_;
  std::vector<std::unique_ptr<perf::CalibratedSource>> sources_;
  std::string helper_;
  double seconds_limit_;
  int rows_ = 0;
  int rows_counted_ = 0;
};

/// A row's workload, as sources need it. What it points to must outlive it.
perf::Workload workload_of(const Measured& measured, const std::string& helper);

}  // namespace gable::bench
