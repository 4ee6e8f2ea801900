// Roofs as least times: the roof that demands the most time is the one that bounds the point.
#include "perfcounters/roofline/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace gable::perf {
namespace {

struct LevelBytes {
  const char* name;
  std::optional<double> bytes;
};

// From the farthest level to the nearest.
std::array<LevelBytes, 4> by_level(const Traffic& traffic) {
  return {{{"dram", traffic.dram}, {"l3", traffic.l3}, {"l2", traffic.l2}, {"l1", traffic.l1}}};
}

/// Why a ceiling may be too low: what it contradicts, or how far its rounds lie apart.
std::string doubt_of(const MeasuredLimit& limit) {
  constexpr double kSteady = 0.9;
  if (!limit.doubt.empty()) return limit.doubt;
  if (!limit.low || !limit.high || *limit.low >= kSteady * *limit.high) return "";
  return fmt::format("it drifted by {:.0f} % in {} rounds", 100 * (1 - *limit.low / *limit.high), limit.rounds);
}

// The best of the matching ceilings for `threads` (0: the most that were measured).
Roof best_roof(const std::vector<Ceiling>& ceilings, const std::function<bool(const Ceiling&)>& matches, int threads) {
  int most = 0;
  for (const Ceiling& ceiling : ceilings)
    if (matches(ceiling)) most = std::max(most, ceiling.threads);
  const int wanted = threads <= 0 ? most : std::min(threads, most);
  Roof whole;
  Roof exact;
  Roof scaled;  // one thread's value times the threads wanted
  for (const Ceiling& ceiling : ceilings) {
    if (!matches(ceiling)) continue;
    const Roof roof{ceiling.limit.value, ceiling.name, doubt_of(ceiling.limit)};
    if (ceiling.threads == most && roof.value > whole.value) whole = roof;
    if (ceiling.threads == wanted && roof.value > exact.value) exact = roof;
    if (ceiling.threads == 1 && roof.value * wanted > scaled.value)
      scaled = {roof.value * wanted, roof.name, "it is one thread's, scaled"};
  }
  if (exact.value > 0) return exact;
  if (scaled.value > 0 && scaled.value < whole.value) return scaled;
  return whole;
}

void check(const RooflinePoint& point) {
  if (!(point.seconds > 0))
    throw std::invalid_argument(fmt::format("T = {} s; a time above 0 is needed", point.seconds));
  if (!(point.flop >= 0)) throw std::invalid_argument(fmt::format("W = {} FLOP; at least 0 is needed", point.flop));
  for (const auto& [name, bytes] : by_level(point.bytes))
    if (bytes && !(*bytes >= 0))
      throw std::invalid_argument(fmt::format("Q({}) = {} B; at least 0 is needed", name, *bytes));
}

/// Caches exchange whole lines, and a store reads its line first. Q(l1) is what instructions load and store, which may
/// be less: 24 bytes an element of a triad that moves 32, or 8 of each line of 64.
void flag_order(const RooflinePoint& point, double tolerance, std::vector<std::string>& flags) {
  const LevelBytes* farther = nullptr;
  const auto all = by_level(point.bytes);
  for (const LevelBytes& level : all) {
    if (!level.bytes || level.name == std::string_view("l1")) continue;
    if (farther != nullptr && *level.bytes * (1 + tolerance) < *farther->bytes)
      flags.push_back(fmt::format("Q({}) = {:.4g} B is less than Q({}) = {:.4g} B", level.name, *level.bytes,
                                  farther->name, *farther->bytes));
    farther = &level;
  }
}

/// A mix takes the time of its parts one after the other.
Roof mixed_roof(const std::vector<Ceiling>& ceilings, const RooflinePoint& point) {
  double flop = 0;
  double seconds = 0;
  std::string names;
  for (const auto& [dtype, part] : point.flop_by_dtype) {
    if (part <= 0) continue;
    const Roof roof = compute_roof(ceilings, dtype, point.threads);
    if (roof.value <= 0) return {};
    if (part >= point.flop) return roof;
    flop += part;
    seconds += part / roof.value;
    names += fmt::format("{}{:.0f} % {}", names.empty() ? "" : ", ", 100 * part / point.flop, roof.name);
  }
  return flop > 0 ? Roof{flop / seconds, names} : Roof{};
}

/// f32 as bf16 parts uses the bf16 units, with several multiplications for one product.
Roof compute_roof_of(const std::vector<Ceiling>& ceilings, const RooflinePoint& point) {
  if (!point.flop_by_dtype.empty()) return mixed_roof(ceilings, point);
  Roof direct = compute_roof(ceilings, point.dtype, point.threads);
  if (point.products <= 1) return direct;
  const Roof parts = compute_roof(ceilings, "bf16", point.threads);
  if (parts.value / point.products <= direct.value) return direct;
  return {parts.value / point.products, fmt::format("{} / {} products", parts.name, point.products), parts.doubt};
}

/// What may be wrong where a number is above its roof.
std::string why_above(const Roof& roof, const std::string& doubt) {
  const std::string ceiling =
      roof.doubt.empty() ? "other programs may have slowed the ceiling down whenever it was measured" : roof.doubt;
  return fmt::format(": {}{}{}", doubt, doubt.empty() ? "" : ", or ", ceiling);
}

/// The roof that demands the most time bounds the point; the next one would without it.
void set_limits(std::vector<Limit> limits, Verdict& verdict) {
  std::stable_sort(limits.begin(), limits.end(),
                   [](const Limit& a, const Limit& b) { return a.least_seconds > b.least_seconds; });
  if (limits.empty()) return;
  verdict.least_seconds = limits[0].least_seconds;
  verdict.bound = limits[0].bound;
  verdict.roof = limits[0].roof;
  verdict.limits = std::move(limits);
}

}  // namespace

Roof compute_roof(const std::vector<Ceiling>& ceilings, const std::string& dtype, int threads) {
  const auto of = [&](const std::string& wanted) {
    return best_roof(
        ceilings, [&](const Ceiling& c) { return c.kind == "compute" && c.dtype == wanted; }, threads);
  };
  if (dtype == "x87") {
    Roof scalar = best_roof(
        ceilings, [](const Ceiling& c) { return c.name == "scalar f64"; }, threads);
    return {scalar.value, scalar.name + " for x87", scalar.doubt};
  }
  Roof own = of(dtype);
  Roof f32 = of("f32");
  if (dtype == "f64") {
    // A vector holds half as many f64 as f32, and f64 can't be computed on as f32.
    return own.value > 0 ? own : Roof{f32.value / 2, f32.name + " / 2 for f64", f32.doubt};
  }
  return own.value >= f32.value ? own : f32;
}

Roof bandwidth_roof(const std::vector<Ceiling>& ceilings, const std::string& level, int threads) {
  return best_roof(
      ceilings, [&](const Ceiling& c) { return c.kind == "bandwidth" && c.isa_or_level == level; }, threads);
}

Verdict judge(const std::vector<Ceiling>& ceilings, const RooflinePoint& point, const RooflineOptions& options) {
  check(point);
  Verdict verdict;
  verdict.flops = point.flop / point.seconds;
  flag_order(point, options.tolerance, verdict.flags);

  std::vector<Limit> limits;
  const auto consider = [&](const std::string& bound, const Roof& roof, double amount) {
    if (roof.value > 0 && amount > 0) limits.push_back({bound, roof.name, roof.value, amount / roof.value});
    return roof.value > 0 && amount / point.seconds > roof.value * (1 + options.tolerance);
  };
  const Roof compute = compute_roof_of(ceilings, point);
  if (consider("compute", compute, point.flop))
    verdict.flags.push_back(fmt::format("W/T = {:.4g} FLOP/s is above the peak of {:.4g} FLOP/s ({}){}", verdict.flops,
                                        compute.value, compute.name, why_above(compute, options.work_doubt)));
  for (const auto& [name, bytes] : by_level(point.bytes)) {
    if (!bytes) continue;
    const Roof roof = bandwidth_roof(ceilings, name, point.threads);
    if (consider(std::string("memory:") + name, roof, *bytes))
      verdict.flags.push_back(fmt::format("Q({})/T = {:.4g} B/s is above the bandwidth of {:.4g} B/s ({}){}", name,
                                          *bytes / point.seconds, roof.value, roof.name,
                                          why_above(roof, options.traffic_doubt)));
  }
  set_limits(std::move(limits), verdict);

  verdict.percent_of_roof = 100 * verdict.least_seconds / point.seconds;
  if (verdict.least_seconds > 0) verdict.attainable = point.flop / verdict.least_seconds;
  if (point.seconds < options.overhead_seconds && verdict.percent_of_roof < 50) verdict.bound = "overhead";
  return verdict;
}

}  // namespace gable::perf
