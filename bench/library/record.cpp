// gable::Record: see gable/measure.h.
#include <fmt/format.h>
#include <gable/measure.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/common/files.h"
#include "bench/library/own_counters.h"
#include "bench/library/own_row.h"
#include "bench/measure/ceiling_rounds.h"
#include "bench/measure/judge.h"
#include "bench/record/study_json.h"
#include "bench/report/study.h"
#include "bench/report/table.h"
#include "common/there.h"

namespace gable {
namespace {

using bench::Row;

/// "./app --size 4".
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

bench::CeilingScope scope_of(const std::vector<Row>& rows) {
  bench::CeilingScope scope;
  for (const Row& row : rows) {
    if (row.on_gpu()) {
      scope.gpus.push_back(row.place.gpu.value());
    } else {
      scope.cpu = true;
    }
  }
  return scope;
}

constexpr const char* kRecord = "this record";

/// measure()'s are right; one may have been made by hand.
void check(const Measurement& m) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::invalid_argument, fmt::format("record: measurement '{}': {}", m.name, what));
  };
  if (m.name.empty()) refuse("the name is empty");
  if (!(m.time.seconds > 0 && std::isfinite(m.time.seconds)))
    refuse(fmt::format("T is {} s; must be above 0", m.time.seconds));
  for (const double seconds : {m.time.q1, m.time.q3, m.time.fastest}) {
    if (!(seconds >= 0 && std::isfinite(seconds))) refuse(fmt::format("a time of {} s; must be 0 or more", seconds));
  }
  const auto check_value = [&](const std::string& what, const MeasuredQuantity& quantity, bool above) {
    const double value = quantity.value.value_or(1);
    if (!(value >= 0 && std::isfinite(value)) || (above && value == 0))
      refuse(fmt::format("{} is {}; must be {}", what, value, above ? "above 0" : "0 or more"));
  };
  check_value("W", m.work, false);
  for (const auto& [level, bytes] : m.traffic) check_value("Q(" + level + ")", bytes, level == "dram");
}

}  // namespace

struct Record::Impl {
  std::vector<Measurement> measured;
  std::vector<Row> rows;  ///< of the points among them, in the same order
  std::vector<bench::Refusal> refused;
  bench::MachineCeilings ceilings;

  nlohmann::json document() const {
    const bench::Study study{bench::ceiling_entries(ceilings), bench::rate_entries(ceilings), rows, refused};
    return bench::to_json(
        study, {.machine = bench::this_machine(), .command = command_line(), .counters = bench::opened_counters()});
  }
};

Record::Record() : impl_(std::make_unique<Impl>()) {}
Record::~Record() = default;
Record::Record(Record&&) noexcept = default;
Record& Record::operator=(Record&&) noexcept = default;

void Record::add(const Measurement& measurement) {
  Impl& record = there(impl_, kRecord);
  check(measurement);
  record.measured.push_back(measurement);
  if (measurement.is_point()) {
    record.rows.push_back(bench::row_of(measurement));
    bench::judge_rows(record.rows, record.ceilings, bench::this_machine());
  } else {
    record.refused.push_back(bench::refusal_of(measurement));
  }
}

void Record::measure_ceilings(bool quick) {
  Impl& record = there(impl_, kRecord);
  const bench::CeilingCallbacks quiet{[](std::size_t, std::size_t, const std::string&) {}, [](const std::string&) {}};
  const auto measure = [&](const bench::CeilingRound& round) {
    return bench::measure_ceilings(bench::this_machine(), round.scope, quick || round.known != nullptr, quiet,
                                   round.known);
  };
  bench::CeilingRounds rounds({measure, bench::steady_seconds}, scope_of(record.rows));
  record.ceilings = rounds.judge(record.rows, bench::this_machine());
}

std::vector<Measurement> Record::measurements() const {
  const Impl& record = there(impl_, kRecord);
  std::vector<Measurement> all = record.measured;
  auto row = record.rows.begin();
  for (Measurement& m : all) {
    if (!m.is_point()) continue;
    const bench::Verdict& verdict = (row++)->verdict;
    m.flags = verdict.flags;
    m.percent_of_roof = verdict.percent_of_roof;
    m.bound = verdict.bound;
    m.roof = verdict.roof;
  }
  return all;
}

std::string Record::table() const {
  return bench::report::table(bench::report::merge({there(impl_, kRecord).document()}));
}

std::string Record::json() const { return bench::json_text(there(impl_, kRecord).document()); }

void Record::write(const std::string& path) const { bench::write_file(path, {json()}); }

}  // namespace gable
