// gable::Record: see gable/measure.h.
#include <gable/measure.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <utility>

#include "bench/common/files.h"
#include "bench/library/own_counters.h"
#include "bench/library/own_row.h"
#include "bench/measure/ceiling_rounds.h"
#include "bench/measure/judge.h"
#include "bench/record/study_json.h"
#include "bench/report/study.h"
#include "bench/report/table.h"

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
  impl_->measured.push_back(measurement);
  if (measurement.is_point()) {
    impl_->rows.push_back(bench::row_of(measurement));
    bench::judge_rows(impl_->rows, impl_->ceilings, bench::this_machine());
  } else {
    impl_->refused.push_back(bench::refusal_of(measurement));
  }
}

void Record::measure_ceilings(bool quick) {
  const bench::CeilingCallbacks quiet{[](std::size_t, std::size_t, const std::string&) {}, [](const std::string&) {}};
  const auto measure = [&](const bench::CeilingRound& round) {
    return bench::measure_ceilings(bench::this_machine(), round.scope, quick || round.known != nullptr, quiet,
                                   round.known);
  };
  bench::CeilingRounds rounds({measure, bench::steady_seconds}, scope_of(impl_->rows));
  impl_->ceilings = rounds.judge(impl_->rows, bench::this_machine());
}

std::vector<Measurement> Record::measurements() const {
  std::vector<Measurement> all = impl_->measured;
  auto row = impl_->rows.begin();
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

std::string Record::table() const { return bench::report::table(bench::report::merge({impl_->document()})); }

std::string Record::json() const { return bench::json_text(impl_->document()); }

void Record::write(const std::string& path) const { bench::write_file(path, {json()}); }

}  // namespace gable
