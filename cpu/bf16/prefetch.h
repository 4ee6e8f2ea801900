// What tiles prefetch to L2 besides their own outputs: the input of the thread's next work unit (most likely), or
// weights that L2 does not keep. Units that load full halves do it; for the others, the CPU's own prefetchers suffice.
#pragma once

#include <cstdint>

#include "cpu/bf16/work_unit.h"

namespace gable::cpu::bf16 {

/// The tiles of one panel, and the steps (products of one block and one tap) that they take.
std::int64_t tiles_of(const Blocking& blocking, const WorkUnit& work);

/// The input of work unit `index` during the products of `current`; of `current` itself, the part that its first tiles
/// do not read. Nothing where there is no such work unit, or where input is staged by images or folded.
Prefetch prefetch_input(const Run& run, const WorkUnit& current, std::int64_t index);

/// The weights of the chunk `next` during the products of the chunk before it.
Prefetch prefetch_weights(const Run& run, const WorkUnit& current, const Chunk& next);

/// Whether chunks prefetch: the chunk after this one, or after the last chunk the next work unit's input. With few
/// tiles, the last level is busy with weights anyway.
bool prefetches_chunks(const Blocking& blocking, const WorkUnit& work);

}  // namespace gable::cpu::bf16
