// A verdict in words, the same in every output.
#pragma once

#include <string>

#include "bench/record/row.h"

namespace gable::bench {

/// "74 % of l2 read; the next limit is avx2 fma f32 (41 %)"; empty without ceilings.
std::string headroom_text(const Verdict& verdict);

/// The limit after the one that bounds the row, or null.
const RoofLimit* next_limit(const Verdict& verdict);

}  // namespace gable::bench
