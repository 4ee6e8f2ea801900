// Sizes of this machine's caches, which the blockings and the choice of stores are derived from.
#pragma once

#include <gable/problem.h>

#include <cstdint>

namespace gable::cpu {

/// Bytes of one core's L1 for data, at least 32 KiB and at most 128 KiB; 32 KiB where the system does not say.
std::int64_t l1_bytes();

/// Bytes of one way of an L1 of 64 sets of 64-byte lines. Lines whose addresses differ by a multiple of it share a set,
/// which holds as many lines as L1 has ways.
constexpr std::int64_t kL1WayBytes = 4096;

/// Whether L1 has eight ways, as those of 32 KiB have.
bool l1_has_few_ways();

/// Whether the pixels that neighbouring outputs of a tile read lie a multiple of kL1WayBytes apart and so share a set:
/// a pixel has `channels` of `bytes` each.
constexpr bool shares_a_set(std::int64_t stride_w, std::int64_t channels, std::int64_t bytes) {
  return stride_w * channels * bytes % kL1WayBytes == 0;
}

/// Bytes of one core's L2, at least 256 KiB and at most 2 MiB; 1 MiB where the system does not say.
std::int64_t l2_bytes();

/// Bytes of CPU 0's last level, whatever CPUs this process may use; 32 MiB where the system does not say.
std::int64_t l3_bytes();

/// Bytes of the last level that a run may count on: at most 32 MiB, since other cores use a larger one too.
std::int64_t last_level_bytes();

/// Whether a result of so many bytes is stored with non-temporal stores: it exceeds last_level_bytes().
bool beyond_last_level(std::int64_t bytes);

/// Whether the weights come from memory while the input stays in the last level: units that share weights should then
/// follow one another, so that each weight is read once.
bool reads_weights_once(const Conv2dProblem& problem);

}  // namespace gable::cpu
