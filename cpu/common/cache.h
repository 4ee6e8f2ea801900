// Sizes of this machine's caches, which the blockings and the choice of stores are derived from.
#pragma once

#include <cstdint>

namespace gable::cpu {

/// Bytes of one core's L1 for data; 32 KiB where the system does not say.
std::int64_t l1_bytes();

/// Bytes of one way of an L1 of 64 sets of 64 bytes: addresses a multiple of them apart share a set, which holds as
/// many as L1 has ways.
constexpr std::int64_t kL1WayBytes = 4096;

/// Bytes of one core's L2; 1 MiB where the system does not say. Kept within what the blockings were thought out for.
std::int64_t l2_bytes();

/// Bytes of the last level that this process's first CPU shares; 32 MiB where the system does not say.
std::int64_t l3_bytes();

/// Whether so large a result would only push other data out of the last level; of a very large one, others have a
/// share.
bool beyond_last_level(std::int64_t bytes);

}  // namespace gable::cpu
