// See ceiling_rounds.h.
#include "bench/measure/ceiling_rounds.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "bench/measure/judge.h"
#include "perfcounters/interrupt.h"

namespace gable::bench {
namespace {

constexpr double kShare = 0.1;             // share of the time for rounds between rows
constexpr double kPlausiblePercent = 102;  // RooflineOptions::tolerance
constexpr int kMaxMore = 2;

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

CeilingRounds::CeilingRounds(CeilingSource source, const CeilingScope& scope)
    : source_(std::move(source)), scope_(scope) {
  const double start = source_.now();
  ceilings_ = source_.measure({scope_, nullptr});
  ended_ = source_.now();
  seconds_ = ended_ - start;
}

void CeilingRounds::add_recorded(const MachineCeilings& before) {
  add_round(ceilings_, before);
  add_missing(ceilings_, before);
}

void CeilingRounds::between(DeviceKind kind) {
  if (source_.now() - ended_ >= seconds_ / kShare) add(scope_of(kind));
}

const MachineCeilings& CeilingRounds::judge(std::vector<Row>& rows, const perf::Machine& machine) {
  judge_rows(rows, ceilings_, machine);
  CeilingScope scope = scope_;
  for (int more = 0; more <= kMaxMore && perf::interrupting_signal() == 0; ++more) {
    add(scope);
    set_doubts(ceilings_);
    judge_rows(rows, ceilings_, machine);
    scope = in_trouble(rows);
    if (!scope.cpu && scope.gpus.empty()) break;
  }
  return ceilings_;
}

CeilingScope CeilingRounds::scope_of(DeviceKind kind) const {
  CeilingScope scope;
  if (kind == DeviceKind::gpu) {
    scope.gpus = scope_.gpus;
  } else {
    scope.cpu = scope_.cpu;
  }
  return scope;
}

CeilingScope CeilingRounds::in_trouble(const std::vector<Row>& rows) const {
  const auto doubtful = [](const std::vector<perf::Ceiling>& roofs) {
    return std::any_of(roofs.begin(), roofs.end(), [](const perf::Ceiling& roof) { return !roof.limit.doubt.empty(); });
  };
  const auto above = [&](const auto& is_there) {
    return std::any_of(rows.begin(), rows.end(), [&](const Row& row) {
      return is_there(row) && row.verdict.percent_of_roof.value_or(0) > kPlausiblePercent;
    });
  };
  CeilingScope scope;
  scope.cpu = scope_.cpu && (doubtful(ceilings_.cpu) || above([](const Row& row) { return !row.on_gpu(); }));
  for (const int index : scope_.gpus) {
    const GpuCeilings* gpu = ceilings_.of_gpu(index);
    const auto is_there = [&](const Row& row) { return row.on_gpu() && row.place.gpu == index; };
    if (gpu != nullptr && (doubtful(gpu->roofs) || above(is_there))) scope.gpus.push_back(index);
  }
  return scope;
}

void CeilingRounds::add(const CeilingScope& scope) {
  const double start = source_.now();
  add_round(ceilings_, source_.measure({scope, &ceilings_}));
  ended_ = source_.now();
  seconds_ = ended_ - start;
}

}  // namespace gable::bench
