// See insight.h.
#include <algorithm>

#include "bench/record/insight.h"

namespace gable::bench {

// T = a + b W, and b W has to move the row's bytes as well: what grows, grows at least with the lesser of W and Q.
std::optional<double> Scaling::fixed_share() const {
  constexpr double kMinGrowth = 1.5;
  const double growth = std::min(work, bytes);
  if (growth < kMinGrowth) return std::nullopt;
  return std::clamp(1 - (time - 1) / (growth - 1), 0.0, 1.0);
}

}  // namespace gable::bench
