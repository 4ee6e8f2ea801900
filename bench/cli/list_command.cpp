// See list_command.h.
#include "bench/cli/list_command.h"

#include <fmt/format.h>
#include <gable/error.h>
#include <gable/ops.h>
#include <nlohmann/json.hpp>

#include "bench/common/text.h"
#include "bench/measure/outcome.h"
#include "bench/record/list_json.h"
#include "bench/workloads/identity.h"
#include "bench/workloads/problem.h"

namespace gable::bench {
namespace {

/// Three decimals, and of small layers three digits.
std::string amount(double value) {
  return value > 0 && value < 0.1 ? fmt::format("{:.3g}", value) : fmt::format("{:.3f}", value);
}

std::string row(const Case& one) {
  const Work least = work(one.op);
  return printable(fmt::format("{:<24} {:<5} {:<7} {:>9} {:>9}  {}", one.name, to_string(dtype_of(one.op)),
                               to_string(math_of(one.op)), amount(least.flop / 1e9), amount(least.bytes() / 1e6),
                               descriptor(one.op)));
}

}  // namespace

ExitCode list_command(const SelectionOptions& options, bool gpu, Console& console) {
  console.check_target();
  const Selection selection = select(options, gpu);
  Outcome outcome;
  outcome.malformed = selection.malformed;
  outcome.add(selection.refused);
  console.print(
      fmt::format("{:<24} {:<5} {:<7} {:>9} {:>9}  {}", "name", "dtype", "math", "GFLOP", "least MB", "problem"));
  std::vector<ListedCase> cases;
  for (const Case& one : selection.cases) {
    try {
      validate(one.op);
    } catch (const Error& error) {
      outcome.refuse(identity_of(one), "", error);
      continue;
    }
    console.print(row(one));
    if (console.wants_json()) cases.push_back({identity_of(one), one.op});
    ++outcome.ran;
  }
  print_refusals(outcome.refused, console);
  if (console.wants_json()) console.emit(list_json(cases, outcome.refused));
  return outcome.exit_code();
}

}  // namespace gable::bench
