// See cases.h.
#include "bench/cases.h"

#include <algorithm>

namespace gable::bench {

void cap_batch(std::vector<Case>& cases, std::int64_t max_batch) {
  for (Case& one : cases) one.conv.input[0] = std::min(one.conv.input[0], max_batch);
}

void cap_work(std::vector<Case>& cases, double gflop) {
  for (Case& one : cases) {
    while (one.conv.input[0] > 1 && work(one.conv).flop > gflop * 1e9) one.conv.input[0] /= 2;
  }
}

std::vector<std::string> drop_repeated(std::vector<Case>& cases) {
  std::vector<Case> kept;
  std::vector<std::string> dropped;
  for (Case& one : cases) {
    const auto same = [&](const Case& other) { return other.conv == one.conv; };
    if (std::any_of(kept.begin(), kept.end(), same)) {
      dropped.push_back(one.name);
    } else {
      kept.push_back(std::move(one));
    }
  }
  cases = std::move(kept);
  std::sort(dropped.begin(), dropped.end());
  dropped.erase(std::unique(dropped.begin(), dropped.end()), dropped.end());
  return dropped;
}

}  // namespace gable::bench
