// See ceilings_text.h.
#include "bench/cli/ceilings_text.h"

#include <fmt/format.h>

#include <functional>
#include <string>

#include "bench/common/text.h"

namespace gable::bench {

void print_ceilings(const MachineCeilings& ceilings, Console& console) {
  const auto line = [&](const std::string& device, const std::string& name, int threads, const std::string& measured,
                        const std::string& theoretical, const std::string& formula) {
    console.print(fmt::format("{:<8} {:<26} {:>8} {:>16} {:>16}  {}", device, name,
                              threads > 0 ? std::to_string(threads) : "-", measured, theoretical, formula));
  };
  const auto operations_text = [](double rate) { return si_text(rate, "OP/s"); };
  const auto roof = [&](const std::string& device, const perf::Ceiling& c) {
    const std::function<std::string(double)> text = c.kind != "compute" ? bandwidth_text
                                                    : c.dtype == "i8"   ? operations_text
                                                                        : std::function(flops_text);
    const perf::MeasuredLimit& limit = c.limit;
    std::string formula = limit.formula;
    if (limit.low && limit.high)
      formula += fmt::format("; {} rounds from {} to {}", limit.rounds, text(*limit.low), text(*limit.high));
    if (!limit.doubt.empty()) formula += "; doubtful: " + limit.doubt;
    line(device, c.name, c.threads, text(limit.value), limit.theoretical ? text(*limit.theoretical) : "-", formula);
  };
  console.print(fmt::format("{:<8} {:<26} {:>8} {:>16} {:>16}  {}", "device", "ceiling", "threads", "measured",
                            "theoretical", "formula"));
  for (const perf::Ceiling& c : ceilings.cpu) roof("cpu", c);
  for (const GpuCeilings& gpu : ceilings.gpus) {
    for (const perf::Ceiling& c : gpu.roofs) roof(gpu.device, c);
    for (const Rate& r : gpu.rates) {
      line(gpu.device, r.name, 0, rate_text(r.limit.value, r.unit),
           r.limit.theoretical ? rate_text(*r.limit.theoretical, r.unit) : "-", r.limit.formula);
    }
  }
}

}  // namespace gable::bench
