// See verify_command.h.
#include "bench/cli/verify_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gable/backend.h>
#include <gable/error.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/common/text.h"
#include "bench/measure/random_verify.h"
#include "bench/measure/verify.h"
#include "bench/record/study_json.h"
#include "bench/record/verify_json.h"
#include "bench/workloads/identity.h"
#include "bench/workloads/problem.h"
#include "perfcounters/interrupt.h"

namespace gable::bench {
namespace {

constexpr double kListGflop = 1;
constexpr int kProgressEvery = 100;  // random problems, each of a millisecond

std::string row(const VerifyResult& r) {
  const std::string state = r.comparison.passed ? "ok"
                                                : fmt::format("MISMATCH in {} elements, the first at {}",
                                                              r.comparison.mismatches, r.comparison.first_mismatch);
  return printable(fmt::format("{:<24} {:<5} {:<14} {:<20} {:>9.2e} {:>9.3f}  {}", r.one->name,
                               to_string(dtype_of(r.one->op)), r.device, r.kernel, r.comparison.max_error,
                               r.comparison.worst_ratio, state));
}

/// A network's layers with 32 images each would keep the f64 reference busy for an hour. The batch is reduced to stay
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
  std::vector<std::string> closed;
  const std::vector<OpenDevice> devices = open_asked(options.devices, options.threads, closed);
  for (const std::string& line : closed) console.print(line);
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

ExitCode random_verify_command(const StudyOptions& options, const RandomVerifyOptions& random, Console& console) {
  if (options.threads > 0 || !(options.selection == SelectionOptions{})) {
    throw Error(
        ErrorCode::invalid_argument,
        "--random draws its own problems and threads: leave out --threads and what selects or changes problems");
  }
  for (const std::string& uri : options.devices) {
    if (parse_device_uri(uri).backend == "auto") {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("--random --device {}: it draws a kernel of each device, and auto chooses itself; name the "
                      "devices",
                      printable(uri)));
    }
  }
  console.check_target();
  const std::vector<std::string> devices = options.devices.empty() ? own_devices() : options.devices;
  open_devices(devices, 0);  // throws where one can't be opened
  const auto start = std::chrono::steady_clock::now();
  RandomVerifier verifier(devices);
  RandomVerifyDocument document{.first_seed = random.seed, .kernels = {}, .values = {}, .mismatches = {}};
  const perf::InterruptKeeper interrupts;
  for (; document.problems < random.count && perf::interrupting_signal() == 0; ++document.problems) {
    if (document.problems % kProgressEvery == 0) {
      console.progress(static_cast<std::size_t>(document.problems), static_cast<std::size_t>(random.count),
                       "random problems");
    }
    const RandomResult result = verifier.run(random.seed + static_cast<std::uint64_t>(document.problems));
    if (result.kernel.empty()) {
      ++document.refused;
      continue;
    }
    KernelChecks& checks = document.kernels[result.device.substr(0, result.device.find('&'))];
    ++checks.checked;
    checks.worst_ratio = std::max(checks.worst_ratio, result.comparison.worst_ratio);
    ++document.values[std::string(to_string(result.problem.values))];
    if (result.comparison.passed) continue;
    const RandomMismatch mismatch{result.seed, result.device, describe(result.problem.op),
                                  std::string(to_string(result.problem.values)), result.comparison};
    console.print(fmt::format("MISMATCH in {} elements, the first at {}, seed {}: {} on {}, values {}",
                              mismatch.comparison.mismatches, mismatch.comparison.first_mismatch, mismatch.seed,
                              mismatch.problem, mismatch.device, mismatch.values));
    document.mismatches.push_back(mismatch);
  }
  console.finish_progress();
  document.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (const auto& [kernel, checks] : document.kernels)
    console.print(
        fmt::format("{:<44} {:>7} checked, worst {:.3f} of the bound", kernel, checks.checked, checks.worst_ratio));
  console.print(fmt::format("{} problems from seed {}: {} mismatched, {} that no kernel of the device takes",
                            document.problems, document.first_seed, document.mismatches.size(), document.refused));
  nlohmann::json record = to_json(document);
  record["machine"] = machine_json(perf::describe_machine(), options.line.text);
  console.emit(record);
  return document.mismatches.empty() ? kDone : kCheckFailed;
}

}  // namespace gable::bench
