// See cliffs_command.h.
#include "bench/cli/cliffs_command.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/common/text.h"
#include "bench/record/study_json.h"
#include "perfcounters/interrupt.h"

namespace gable::bench {
namespace {

std::string text_of(const CliffTerm& term) {
  return printable(
      fmt::format("{} {} {} {} ({})", seconds_text(term.seconds), term.dtype, term.layout, term.problem, term.kernel));
}

void print(const CliffDocument& document, Console& console) {
  for (const Cliff& cliff : document.broken) {
    console.print(
        fmt::format("{:<15} {:>5.2f} > {:.2f}  {}", cliff.property, cliff.ratio, cliff.limit, text_of(cliff.layer)));
    for (const CliffTerm& other : cliff.others) {
      const std::string times = cliff.times > 1 ? fmt::format("{} x ", cliff.times) : "";
      console.print(fmt::format("{:>31}{}{}", "against ", times, text_of(other)));
    }
  }
  console.print(fmt::format("{} layers in {:.0f} s on {} (seed {})", document.layers, document.seconds, document.device,
                            document.seed));
  console.print(fmt::format("{:<15} {:>5} {:>8} {:>7} {:>6}", "property", "limit", "checked", "broken", "worst"));
  for (const PropertyCount& count : document.properties) {
    console.print(fmt::format("{:<15} {:>5.2f} {:>8} {:>7} {:>6.2f}", count.property, count.limit, count.checked,
                              count.broken, count.worst));
  }
}

}  // namespace

ExitCode cliffs_command(const CliffOptions& options, Console& console) {
  console.check_target();
  const std::vector<OpenDevice> devices = open_devices({options.device}, options.threads);
  const auto progress = [&](int done) {
    console.progress(static_cast<std::size_t>(done), static_cast<std::size_t>(options.job.layers), "random layers");
  };
  const perf::InterruptKeeper interrupts;
  CliffDocument document = find_cliffs(options.job, timer_on(devices.front()), progress);
  console.finish_progress();
  document.device = devices.front().uri;
  print(document, console);
  nlohmann::json record = to_json(document);
  record["machine"] = machine_json(perf::describe_machine(), options.command);
  console.emit(record);
  return document.broken.empty() ? kDone : kCheckFailed;
}

}  // namespace gable::bench
