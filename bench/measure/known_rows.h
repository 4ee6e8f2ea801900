// The rows that an interrupted run of a study left in its record, by what was measured and where. Cases whose rows are
// all there are not measured again.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "bench/record/row.h"

namespace gable::bench {

class KnownRows {
 public:
  KnownRows() = default;  ///< nothing is known
  explicit KnownRows(std::vector<Row> rows);

  /// Whether two rows are of the same case in the same place.
  static bool alike(const Identity& identity, const Placement& place, const Identity& other_identity,
                    const Placement& other_place);
  bool empty() const { return left_ == 0; }
  /// How many rows of this case in this place, with its cache and threads, were not taken yet.
  std::size_t count(const Identity& identity, const Placement& place) const;
  /// Takes the first of them. There must be one.
  Row take(const Identity& identity, const Placement& place);
  /// Drops the first of them, if there is one: it was measured again.
  void forget(const Identity& identity, const Placement& place);
  std::size_t taken() const { return taken_; }
  /// The rows that were not taken.
  std::vector<Row> rest() const;

 private:
  std::map<std::string, std::deque<Row>> rows_;
  std::size_t left_ = 0, taken_ = 0;
};

}  // namespace gable::bench
