// See verify_command.h.
#include "bench/cli/verify_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bench/common/text.h"
#include "bench/measure/verify.h"
#include "bench/record/verify_json.h"
#include "bench/workloads/identity.h"
#include "bench/workloads/problem.h"

namespace gable::bench {
namespace {

std::string row(const VerifyResult& r) {
  const std::string state = r.comparison.passed ? "ok"
                                                : fmt::format("MISMATCH in {} elements, the first at {}",
                                                              r.comparison.mismatches, r.comparison.first_mismatch);
  return printable(fmt::format("{:<24} {:<5} {:<14} {:<20} {:>9.2e} {:>9.3f}  {}", r.one->name,
                               to_string(dtype_of(r.one->op)), r.device, r.kernel, r.comparison.max_error,
                               r.comparison.worst_ratio, state));
}

}  // namespace

ExitCode verify_command(const StudyOptions& options, Console& console) {
  console.check_target();
  const Selection selection = select(options.selection, false);
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
  verify(selection.cases, devices, outcome, [&](const VerifyResult& result) {
    console.print(row(result));
    results.push_back({identity_of(*result.one), result.device, result.kernel, result.comparison, result.bound});
  });
  const auto begin = outcome.refused.begin() + static_cast<std::ptrdiff_t>(selection.refused.size());
  print_refusals({begin, outcome.refused.end()}, console);
  console.print(fmt::format("{} passed, {} mismatched, {} refused", outcome.ran - outcome.mismatched,
                            outcome.mismatched, outcome.refused.size()));
  console.emit(to_json(VerifyDocument{std::move(results), outcome.refused}));
  return outcome.exit_code();
}

}  // namespace gable::bench
