// Ceilings that are measured again and again, because other programs and the machine's clock change them, and the order
// that they must have among each other.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "perfcounters/ceilings/ceilings.h"

namespace gable::perf {

/// "avx2 fma f32, 2 threads"; without threads the name alone.
std::string name_with_threads(const Ceiling& ceiling);

/// Adds another round of the same ceilings. Each keeps the higher value, since other programs can only lower it, and
/// the range of its rounds. Ceilings that `again` lacks are unchanged. Formulas are those of the first round.
void add_round(std::vector<Ceiling>& ceilings, const std::vector<Ceiling>& again);

struct Contradiction {
  std::size_t ceiling = 0;  ///< index of the one that is too low
  std::string reason{};
};

/// The ceilings that are below one that they can't be below:
///   - a wider or fused unit below a narrower one of the same dtype and threads (half as wide: below three quarters of
///     it, since some CPUs lower their clock for wide vectors);
///   - more threads below fewer, of the same loop;
///   - a nearer memory level below a farther one, of the same threads, by their best loops.
std::vector<Contradiction> contradictions(const std::vector<Ceiling>& ceilings);

/// The ceilings that are worth another round, by name and threads: the best of each dtype and level, which are the
/// roofs of rows, and doubtful ones.
std::set<std::pair<std::string, int>> worth_repeating(const std::vector<Ceiling>& ceilings);

/// Sets each ceiling's `doubt`.
void set_doubts(std::vector<Ceiling>& ceilings);

}  // namespace gable::perf
