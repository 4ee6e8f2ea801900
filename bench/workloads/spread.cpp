// See spread.h.
#include "bench/workloads/spread.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>

namespace gable::bench {
namespace {

constexpr std::int64_t kFewChannels = 4;

std::string family_of(const Case& one) {
  return one.suite + "/" +
         (one.count ? one.name.substr(0, one.name.find(':')) : one.name.substr(0, one.name.find_first_of("_+")));
}

std::string kind_of(const Op& op) {
  const auto* conv = std::get_if<Conv2d>(&op);
  if (conv == nullptr) return fmt::format("op {}", op.index());
  const std::int64_t channels = conv->input[1];
  const char* groups = conv->groups == 1 ? "dense" : conv->groups == channels ? "depthwise" : "grouped";
  const bool pointwise = conv->weights[2] * conv->weights[3] == 1;
  const bool strided = conv->stride.h * conv->stride.w > 1;
  return fmt::format("{}{}{}{}", groups, channels <= kFewChannels ? " few" : "", pointwise ? " 1x1" : "",
                     strided ? " strided" : "");
}

bool is_pooled(const Op& op) {
  const auto* conv = std::get_if<Conv2d>(&op);
  return conv != nullptr && static_cast<bool>(conv->epilogue.max_pool);
}

/// What a case shows, each a text.
std::vector<std::string> features_of(const Case& one) {
  const std::string family = family_of(one), kind = kind_of(one.op), dtype(to_string(dtype_of(one.op)));
  const std::string pool = is_pooled(one.op) ? "pool" : "no pool";
  return {family,
          kind,
          dtype,
          pool,
          family + " " + dtype,
          family + " " + pool,
          kind + " " + dtype,
          kind + " " + pool,
          dtype + " " + pool};
}

/// Neighbours that differ only in their math, as measure_cases() takes them.
struct Group {
  std::size_t first = 0, count = 0;
  std::vector<std::string> features;
};

std::vector<Group> groups_of(const std::vector<Case>& cases) {
  std::vector<Group> groups;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& one = cases[i];
    if (!groups.empty()) {
      const Case& first = cases[groups.back().first];
      if (first.suite == one.suite && first.name == one.name && first.op == in_math(one.op, math_of(first.op))) {
        ++groups.back().count;
        continue;
      }
    }
    groups.push_back({i, 1, features_of(one)});
  }
  return groups;
}

}  // namespace

std::vector<Case> spread(const std::vector<Case>& cases) {
  std::vector<Group> waiting = groups_of(cases);
  std::set<std::string> seen;
  const auto news = [&](const Group& group) {
    return std::count_if(group.features.begin(), group.features.end(),
                         [&](const std::string& feature) { return !seen.contains(feature); });
  };
  std::vector<Case> ordered;
  while (!waiting.empty()) {
    const auto next = std::max_element(waiting.begin(), waiting.end(),
                                       [&](const Group& a, const Group& b) { return news(a) < news(b); });
    const auto first = cases.begin() + static_cast<std::ptrdiff_t>(next->first);
    ordered.insert(ordered.end(), first, first + static_cast<std::ptrdiff_t>(next->count));
    seen.insert(next->features.begin(), next->features.end());
    waiting.erase(next);
  }
  return ordered;
}

}  // namespace gable::bench
