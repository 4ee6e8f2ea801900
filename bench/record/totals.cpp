// See totals.h.
#include "bench/record/totals.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace gable::bench {
namespace {

NetworkTotal empty_total_of(const Row& row) {
  return {.suite = row.identity.suite,
          .dtype = row.identity.dtype,
          .math = row.identity.math,
          .layout = row.identity.layout,
          .cache = row.place.cache,
          .device = row.place.asked.empty() ? row.place.device : row.place.asked};
}

/// Whether the row belongs to the total.
bool is_part_of(const Row& row, const NetworkTotal& total) {
  const auto key = [](const NetworkTotal& t) {
    return std::tie(t.suite, t.dtype, t.math, t.layout, t.cache, t.device);
  };
  const NetworkTotal other = empty_total_of(row);
  return key(other) == key(total);
}

using Names = std::set<std::string>;

/// The layers of a list by suite and dtype, if some device ran or refused them. A problem of a list that can't be read
/// has no dtype and counts for each. A list's options are no layers.
class ListLayers {
 public:
  ListLayers(const std::vector<Row>& rows, const std::vector<Refusal>& refused) {
    for (const Row& row : rows) {
      if (row.identity.count) names_[{row.identity.suite, row.identity.dtype}].insert(row.identity.name);
    }
    for (const Refusal& r : refused) {
      if (!r.dtype.empty()) {
        names_[{r.suite, r.dtype}].insert(r.name);
      } else if (!r.problem.starts_with('-')) {
        names_[{r.suite, ""}].insert(r.name + " " + r.problem);  // the name is the line's, which may have several
      }
    }
  }

  int count(const NetworkTotal& total) const {
    return static_cast<int>(size_of({total.suite, total.dtype}) + size_of({total.suite, ""}));
  }

 private:
  using Key = std::pair<std::string, std::string>;
  std::size_t size_of(const Key& key) const {
    const auto found = names_.find(key);
    return found == names_.end() ? 0 : found->second.size();
  }

  std::map<Key, Names> names_;
};

}  // namespace

std::vector<NetworkTotal> network_totals(const std::vector<Row>& rows, const std::vector<Refusal>& refused) {
  std::vector<NetworkTotal> totals;
  for (const Row& row : rows) {
    if (!row.identity.count) continue;
    auto total = std::find_if(totals.begin(), totals.end(), [&](const auto& one) { return is_part_of(row, one); });
    if (total == totals.end()) total = totals.insert(totals.end(), empty_total_of(row));
    const auto count = static_cast<double>(*row.identity.count);
    ++total->layers;
    total->convolutions += *row.identity.count;
    total->seconds += count * row.time.seconds;
    total->flop += count * row.work.value;
  }
  const ListLayers lists(rows, refused);
  for (NetworkTotal& total : totals) total.layers_of_list = lists.count(total);
  return totals;
}

}  // namespace gable::bench
