// See known_rows.h.
#include "bench/measure/known_rows.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "bench/record/row_json.h"

namespace gable::bench {
namespace {

/// The kernel is left out: which one runs is found out by running.
std::string key_of(const Identity& identity, const Placement& place) {
  return fmt::format("{}\n{}\n{}\n{}", to_json(identity).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                     place.device, place.threads.value_or(0), place.cache);
}

}  // namespace

KnownRows::KnownRows(std::vector<Row> rows) : left_(rows.size()) {
  for (Row& row : rows) {
    std::deque<Row>& same = rows_[key_of(row.identity, row.place)];
    same.push_back(std::move(row));
  }
}

bool KnownRows::alike(const Identity& identity, const Placement& place, const Identity& other_identity,
                      const Placement& other_place) {
  return key_of(identity, place) == key_of(other_identity, other_place);
}

std::size_t KnownRows::count(const Identity& identity, const Placement& place) const {
  const auto found = rows_.find(key_of(identity, place));
  return found == rows_.end() ? 0 : found->second.size();
}

Row KnownRows::take(const Identity& identity, const Placement& place) {
  std::deque<Row>& same = rows_.at(key_of(identity, place));
  Row row = std::move(same.front());
  same.pop_front();
  --left_;
  ++taken_;
  return row;
}

void KnownRows::forget(const Identity& identity, const Placement& place) {
  const auto found = rows_.find(key_of(identity, place));
  if (found == rows_.end() || found->second.empty()) return;
  found->second.pop_front();
  --left_;
}

std::vector<Row> KnownRows::rest() const {
  std::vector<Row> rows;
  for (const auto& [key, same] : rows_) rows.insert(rows.end(), same.begin(), same.end());
  return rows;
}

}  // namespace gable::bench
