// Tiles prefetch to L2, besides their own outputs: the input of the next work unit of the thread's share,
// or weights that L2 does not keep. Only units that load full halves do so. For the others, the CPU's hardware
// prefetchers suffice.
#pragma once

#include <cstdint>

#include "cpu/bf16/work_unit.h"

namespace gable::cpu::bf16 {

/// The tiles of one panel, and the steps (products of one block and one tap) that they take.
std::int64_t tiles_of(const Blocking& blocking, const WorkUnit& work);

/// The prefetch of work unit `index`'s input, spread over the products of `current`. If `index` is `current` itself,
/// leaves out the part that its first tiles read. Empty if there is no such work unit, if it is another thread's or
/// reads the same input, and for input that is staged by images or folded.
Prefetch prefetch_input(const Run& run, const WorkUnit& current, std::int64_t index);

/// The prefetch of chunk `next`'s weights, spread over the products of the chunk before it.
Prefetch prefetch_weights(const Run& run, const WorkUnit& current, const Chunk& next);

/// Whether each chunk prefetches the next chunk's weights, and the last chunk the next work unit's input. This does not
/// pay for few tiles, whose weights already keep the last level busy.
bool prefetches_chunks(const Blocking& blocking, const WorkUnit& work);

}  // namespace gable::cpu::bf16
