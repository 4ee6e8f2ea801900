// See verify_command.h.
#include "bench/cli/verify_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "bench/common/text.h"
#include "bench/measure/verify.h"
#include "bench/record/verify_json.h"
#include "bench/workloads/identity.h"
#include "bench/workloads/problem.h"
#include "perfcounters/interrupt.h"

namespace gable::bench {
namespace {

constexpr double kListGflop = 1;

std::string row(const VerifyResult& r) {
  const std::string state = r.comparison.passed ? "ok"
                                                : fmt::format("MISMATCH in {} elements, the first at {}",
                                                              r.comparison.mismatches, r.comparison.first_mismatch);
  return printable(fmt::format("{:<24} {:<5} {:<14} {:<20} {:>9.2e} {:>9.3f}  {}", r.one->name,
                               to_string(dtype_of(r.one->op)), r.device, r.kernel, r.comparison.max_error,
                               r.comparison.worst_ratio, state));
}

/// A network's layers with 32 images each would keep the f64 reference busy for an hour. They get as many images as are
/// within kListGflop, so that small layers keep the list's batch. Lists by --file are run as they are.
void cap_lists(std::vector<Case>& cases, Console& console) {
  if (std::none_of(cases.begin(), cases.end(), [](const Case& one) { return one.count.has_value(); })) return;
  cap_work(cases, kListGflop, INFINITY);
  console.print(fmt::format("lists: batches halved until a layer has at most {} GFLOP; --max-batch sets another limit",
                            kListGflop));
}

}  // namespace

ExitCode verify_command(const StudyOptions& options, Console& console) {
  console.check_target();
  Selection selection = select(options.selection, false);
  if (!options.selection.suite.empty() && options.selection.max_batch == 0) cap_lists(selection.cases, console);
  const std::vector<OpenDevice> devices =
      open_devices(options.devices.empty() ? default_devices() : options.devices, options.threads);
  Outcome outcome;
  outcome.malformed = selection.malformed;
  outcome.add(selection.refused);
  print_refusals(selection.refused, console);
  if (!selection.repeated.empty()) {
    console.print(fmt::format("not repeated, since --max-batch made them equal to others: {}",
                              fmt::join(selection.repeated, ", ")));
  }
  console.print(fmt::format("{:<24} {:<5} {:<14} {:<20} {:>9} {:>9}  {}", "name", "dtype", "device", "kernel", "error",
                            "of bound", "result"));
  std::vector<VerifyEntry> results;
  const perf::InterruptKeeper interrupts;
  try {
    verify(selection.cases, devices, outcome, [&](const VerifyResult& result) {
      console.print(row(result));
      results.push_back({identity_of(*result.one), result.device, result.kernel, result.comparison, result.bound});
    });
  } catch (const perf::Interrupted&) {
    console.print("interrupted: the cases after these were not run");
  }
  const auto begin = outcome.refused.begin() + static_cast<std::ptrdiff_t>(selection.refused.size());
  print_refusals({begin, outcome.refused.end()}, console);
  console.print(fmt::format("{} passed, {} mismatched, {} refused", outcome.ran - outcome.mismatched,
                            outcome.mismatched, outcome.refused.size()));
  console.emit(to_json(VerifyDocument{std::move(results), outcome.refused}));
  return outcome.exit_code();
}

}  // namespace gable::bench
