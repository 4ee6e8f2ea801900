// See headroom.h.
#include "bench/record/headroom.h"

#include <fmt/format.h>

namespace gable::bench {

const RoofLimit* next_limit(const Verdict& verdict) { return verdict.limits.size() > 1 ? &verdict.limits[1] : nullptr; }

std::string headroom_text(const Verdict& verdict) {
  if (!verdict.percent_of_roof || verdict.roof.empty()) return "";
  std::string text = fmt::format("{:.0f} % of {}", *verdict.percent_of_roof, verdict.roof);
  if (const RoofLimit* next = next_limit(verdict))
    text += fmt::format("; the next limit is {} ({:.0f} %)", next->roof, next->percent);
  return text;
}

}  // namespace gable::bench
