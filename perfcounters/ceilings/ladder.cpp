// See ladder.h.
#include "perfcounters/ceilings/ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace gable::perf {
namespace {

constexpr double kTolerance = 0.95;     // two loops with the same limit differ this much by chance
constexpr double kLowerClock = 0.75;    // of a unit that is twice as wide
constexpr double kSharedThreads = 0.9;  // threads that share a core or a cache slow each other down a little

bool is_compute(const Ceiling& ceiling) { return ceiling.kind == "compute"; }
bool is_fused(const Ceiling& ceiling) { return ceiling.name.find(" fma ") != std::string::npos; }

/// The bits of the SIMD widths that are one ladder; 0 for other units.
int width_of(const Ceiling& ceiling) {
  struct Width {
    std::string_view isa;
    int bits;
  };
  constexpr std::array<Width, 5> kWidths{
      {{"scalar", 32}, {"sse4", 128}, {"neon", 128}, {"avx2", 256}, {"avx512", 512}}};
  const auto* found =
      std::find_if(kWidths.begin(), kWidths.end(), [&](const Width& one) { return one.isa == ceiling.isa_or_level; });
  return found == kWidths.end() ? 0 : found->bits;
}

/// The least share of `narrow` that `wide` must reach; 0: they say nothing about each other.
double least_of_unit(const Ceiling& wide, const Ceiling& narrow) {
  if (!is_compute(wide) || !is_compute(narrow)) return 0;
  if (wide.dtype != narrow.dtype || wide.threads != narrow.threads) return 0;
  const int bits = width_of(wide), fewer = width_of(narrow);
  if (bits == 0 || fewer == 0 || bits < fewer || (is_fused(narrow) && !is_fused(wide))) return 0;
  if (bits == fewer && is_fused(wide) == is_fused(narrow)) return 0;
  return bits == 2 * fewer ? kLowerClock : kTolerance;
}

double least_of_threads(const Ceiling& more, const Ceiling& fewer) {
  const bool same = more.name == fewer.name && more.kind == fewer.kind;
  return same && more.threads > fewer.threads ? kSharedThreads : 0;
}

/// The distance of a memory level: 1 is the nearest; 0 for arithmetic.
int distance_of(const Ceiling& ceiling) {
  constexpr std::array<std::string_view, 4> kLevels{"l1", "l2", "l3", "dram"};
  const auto* found = std::find(kLevels.begin(), kLevels.end(), ceiling.isa_or_level);
  return is_compute(ceiling) || found == kLevels.end() ? 0 : 1 + static_cast<int>(found - kLevels.begin());
}

bool is_best_of_level(const Ceiling& one, const std::vector<Ceiling>& ceilings) {
  return std::none_of(ceilings.begin(), ceilings.end(), [&](const Ceiling& other) {
    return distance_of(other) == distance_of(one) && other.threads == one.threads &&
           other.limit.value > one.limit.value;
  });
}

double least_of_level(const Ceiling& near, const Ceiling& far, const std::vector<Ceiling>& ceilings) {
  if (distance_of(near) == 0 || distance_of(far) <= distance_of(near) || near.threads != far.threads) return 0;
  return is_best_of_level(near, ceilings) && is_best_of_level(far, ceilings) ? kTolerance : 0;
}

}  // namespace

std::string name_with_threads(const Ceiling& ceiling) {
  if (ceiling.threads == 0) return ceiling.name;
  return fmt::format("{}, {} thread{}", ceiling.name, ceiling.threads, ceiling.threads == 1 ? "" : "s");
}

void add_round(std::vector<Ceiling>& ceilings, const std::vector<Ceiling>& again) {
  const auto low_of = [](const Ceiling& one) { return one.limit.low.value_or(one.limit.value); };
  for (Ceiling& first : ceilings) {
    const auto same = std::find_if(again.begin(), again.end(), [&](const Ceiling& other) {
      return other.name == first.name && other.threads == first.threads;
    });
    if (same == again.end()) continue;
    const int rounds = first.limit.rounds + same->limit.rounds;
    const double low = std::min(low_of(first), low_of(*same));
    MeasuredLimit& limit = first.limit;
    if (same->limit.value > limit.value) {
      limit.value = same->limit.value;
      limit.q1 = same->limit.q1;
      limit.q3 = same->limit.q3;
      limit.runs = same->limit.runs;
    }
    limit.per_joule = std::max(limit.per_joule, same->limit.per_joule);
    limit.rounds = rounds;
    limit.low = low;
    limit.high = limit.value;
  }
}

std::vector<Contradiction> contradictions(const std::vector<Ceiling>& ceilings) {
  std::vector<Contradiction> found;
  for (std::size_t i = 0; i < ceilings.size(); ++i) {
    const Ceiling& one = ceilings[i];
    const Ceiling* worst = nullptr;  // the highest that it is wrongly below
    for (const Ceiling& other : ceilings) {
      const double least =
          std::max({least_of_unit(one, other), least_of_threads(one, other), least_of_level(one, other, ceilings)});
      if (one.limit.value < least * other.limit.value && (worst == nullptr || other.limit.value > worst->limit.value))
        worst = &other;
    }
    if (worst != nullptr)
      found.push_back({i, fmt::format("it is {:.0f} % below {}, which can't be",
                                      100 * (1 - one.limit.value / worst->limit.value), name_with_threads(*worst))});
  }
  return found;
}

std::set<std::pair<std::string, int>> worth_repeating(const std::vector<Ceiling>& ceilings) {
  std::set<std::pair<std::string, int>> worth;
  for (const Ceiling& one : ceilings) {
    const bool is_best = std::none_of(ceilings.begin(), ceilings.end(), [&](const Ceiling& other) {
      const bool same =
          is_compute(one) ? is_compute(other) && other.dtype == one.dtype : distance_of(other) == distance_of(one);
      return same && other.threads == one.threads && other.limit.value > one.limit.value;
    });
    if (is_best) worth.emplace(one.name, one.threads);
  }
  for (const Contradiction& low : contradictions(ceilings)) {
    worth.emplace(ceilings[low.ceiling].name, ceilings[low.ceiling].threads);
  }
  return worth;
}

void set_doubts(std::vector<Ceiling>& ceilings) {
  for (Ceiling& ceiling : ceilings) ceiling.limit.doubt.clear();
  for (const Contradiction& one : contradictions(ceilings)) ceilings[one.ceiling].limit.doubt = one.reason;
}

}  // namespace gable::perf
