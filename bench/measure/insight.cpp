// See insight.h.
#include "bench/measure/insight.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "bench/common/text.h"
#include "bench/record/headroom.h"
#include "perfcounters/roofline/roofline.h"

namespace gable::bench {
namespace {

constexpr double kNearRoof = 50;       // percent
constexpr double kMinOverhead = 2e-6;  // seconds: a call with its checks, and the clock
constexpr double kTeamStarts = 2;

// ---- regime

/// "twice the batch takes 1.05 times as long"; empty if it was not measured.
std::string scaling_text(const Row& row) {
  if (!row.scaling) return "";
  return fmt::format("twice the batch takes {:.2f} times as long{}", row.scaling->time,
                     row.scaling->kernel.empty() ? "" : fmt::format(" (by {})", row.scaling->kernel));
}

std::optional<double> fixed_seconds(const Row& row) {
  const auto share = row.scaling ? row.scaling->fixed_share() : std::nullopt;
  return share ? std::optional(*share * row.time.seconds) : std::nullopt;
}

/// Most of T does not grow with the work, and a call without work takes much less: the device is not full.
Regime latency_regime(const Row& row, double fixed, std::optional<double> overhead) {
  std::string evidence = fmt::format("{}: {} of T = {} do not grow with the work", scaling_text(row),
                                     seconds_text(fixed), seconds_text(row.time.seconds));
  if (overhead) evidence += fmt::format(", and a call without work takes {}", seconds_text(*overhead));
  if (row.on_gpu())
    return {"latency", evidence + ": multiprocessors are idle", {"a larger batch", "smaller tiles or split-K"}};
  return {"latency", evidence + ": threads are idle", {"a larger batch", "fewer threads for so small a layer"}};
}

Regime overhead_regime(const Row& row, std::optional<double> overhead) {
  constexpr double kLongerThanCalls = 3;
  const std::optional<double> fixed = fixed_seconds(row);
  if (fixed && overhead && *fixed > kLongerThanCalls * *overhead) return latency_regime(row, *fixed, overhead);
  std::string evidence = fmt::format("T = {}", seconds_text(row.time.seconds));
  if (fixed)
    evidence = fmt::format("{}: {} of {} do not grow with the work", scaling_text(row), seconds_text(*fixed), evidence);
  if (overhead)
    evidence += fmt::format("{} {}",
                            row.on_gpu() ? ", and a launch without work that is waited for takes"
                                         : ", and a call without work is expected to take up to",
                            seconds_text(*overhead));
  if (row.on_gpu()) return {"overhead", evidence, {"more work a launch: a larger batch, fused layers", "CUDA graphs"}};
  return {"overhead", evidence, {"more work a call: a larger batch", "fewer threads for so small a layer"}};
}

Regime memory_regime(const Row& row) {
  const std::string level = row.verdict.bound.substr(row.verdict.bound.find(':') + 1);
  std::vector<std::string> advice;
  if (level == "dram") {
    advice = {"fuse what follows (activation, pool), so that the output is not written and read again",
              "16-bit tensors have half the bytes"};
  } else {
    advice = {fmt::format("a larger register tile or panel, so that {} is read less often", level_text(level)),
              "16-bit tensors have half the bytes"};
  }
  return {row.verdict.bound, headroom_text(row.verdict), std::move(advice)};
}

Regime compute_regime(const Row& row) {
  std::vector<std::string> advice;
  if (row.identity.dtype == "f32" && (row.identity.math.empty() || row.identity.math == "strict")) {
    advice = {row.on_gpu() ? "tf32, split3 or 16-bit types use the tensor cores"
                           : "bf16 where the CPU has units for it (AMX, AVX512-BF16)",
              "less arithmetic: a smaller kernel, groups"};
  } else {
    advice = {"little is left on this unit: less arithmetic (a smaller kernel, groups)", "more devices"};
  }
  return {"compute", headroom_text(row.verdict), std::move(advice)};
}

std::optional<Regime> regime_of(const Row& row, const MachineCeilings& ceilings) {
  const Verdict& verdict = row.verdict;
  if (verdict.bound.empty()) return std::nullopt;
  if (verdict.bound == "overhead") return overhead_regime(row, overhead_seconds(row, ceilings));
  if (verdict.percent_of_roof.value_or(0) < kNearRoof) {
    return Regime{"below",
                  headroom_text(verdict) + ": no measured roof explains the time" +
                      (row.scaling ? ", and " + scaling_text(row) : ""),
                  {"`gable profile` shows where it goes (tails, packing, waiting threads)",
                   "`gable bench --device` with a library beside it shows whether the machine can do better"}};
  }
  return verdict.bound == "compute" ? compute_regime(row) : memory_regime(row);
}

// ---- naive model

void set_naive_seconds(Row& row, const MachineCeilings& ceilings) {
  if (!row.naive) return;
  const GpuCeilings* gpu = row.on_gpu() ? ceilings.of_gpu(row.place.gpu) : nullptr;
  if (row.on_gpu() && gpu == nullptr) return;
  const perf::Roof memory =
      perf::bandwidth_roof(gpu != nullptr ? gpu->roofs : ceilings.cpu, "dram", row.place.running_threads().value_or(0));
  if (memory.value > 0) row.naive->seconds = row.naive->bytes / memory.value;
}

// ---- fusion

bool is_pooled(const Row& row) { return row.identity.epilogue && row.identity.epilogue->max_pool; }

/// The same convolution on the same device without the pool.
bool is_without_pool(const Row& one, const Row& pooled) {
  const Identity &a = one.identity, &b = pooled.identity;
  const Placement &p = one.place, &q = pooled.place;
  return a.epilogue && !is_pooled(one) && a.suite == b.suite && a.problem == b.problem && a.dtype == b.dtype &&
         a.math == b.math && a.layout == b.layout && a.epilogue->bias == b.epilogue->bias &&
         a.epilogue->activation == b.epilogue->activation && p.device == q.device && p.threads == q.threads &&
         p.cache == q.cache;
}

const RoofLimit* memory_limit(const Row& row) {
  for (const RoofLimit& limit : row.verdict.limits) {
    if (limit.bound.starts_with("memory:")) return &limit;
  }
  return nullptr;
}

/// A separate pool reads the convolution's output and writes its own. With the window's stride the fused row moves
/// fewer bytes than the row without pool by output * (1 - 1 / stride's area).
std::optional<Fusion> fusion_of(const Row& row, const std::vector<Row>& rows) {
  if (!row.place.fused || !is_pooled(row)) return std::nullopt;
  const auto plain = std::find_if(rows.begin(), rows.end(), [&](const Row& one) { return is_without_pool(one, row); });
  if (plain == rows.end()) return std::nullopt;
  const auto& stride =
      row.identity.epilogue->max_pool_stride ? row.identity.epilogue->max_pool_stride : row.identity.epilogue->max_pool;
  const auto area = static_cast<double>((*stride)[0] * (*stride)[1]);
  const auto least = [](const Row& one) { return one.farthest().analytic.value_or(0); };
  const double fewer = least(*plain) - least(row);
  if (area <= 1 || fewer <= 0) return std::nullopt;
  const double output = fewer * area / (area - 1);
  Fusion fusion{.bytes_saved = 2 * output, .seconds_saved = {}};
  if (const RoofLimit* memory = memory_limit(*plain)) {
    const double pass = (output + output / area) / memory->value;
    fusion.seconds_saved = plain->time.seconds + pass - row.time.seconds;
  }
  return fusion;
}

}  // namespace

std::optional<double> overhead_seconds(const Row& row, const MachineCeilings& ceilings) {
  if (row.on_gpu()) {
    const GpuCeilings* gpu = ceilings.of_gpu(row.place.gpu);
    return gpu != nullptr && gpu->overhead_seconds > 0 ? std::optional(gpu->overhead_seconds) : std::nullopt;
  }
  if (ceilings.team_starts.empty()) return std::nullopt;
  const auto found = ceilings.team_starts.lower_bound(row.place.running_threads().value_or(1));
  const perf::Timing& start = found == ceilings.team_starts.end() ? std::prev(found)->second : found->second;
  return std::max(kMinOverhead, kTeamStarts * start.seconds);
}

void set_insights(std::vector<Row>& rows, const MachineCeilings& ceilings) {
  for (Row& row : rows) {
    if (row.identity.only_moves_bytes()) continue;
    row.regime = regime_of(row, ceilings);
    set_naive_seconds(row, ceilings);
    row.fusion = fusion_of(row, rows);
  }
}

}  // namespace gable::bench
