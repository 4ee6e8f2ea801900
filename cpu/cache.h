// Sizes of this machine's caches, which the blockings and the choice of stores are derived from.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace gable::cpu {

/// Bytes of one core's L2; 1 MiB where the system does not say. Kept within what the blockings were thought out for.
inline std::int64_t l2_bytes() {
#ifdef _SC_LEVEL2_CACHE_SIZE
  static const long reported = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (reported > 0) return std::clamp<std::int64_t>(reported, 256 << 10, 2 << 20);
#endif
  return 1 << 20;
}

/// Bytes of the last level, shared by its cores; 32 MiB where the system does not say.
inline std::int64_t l3_bytes() {
#ifdef _SC_LEVEL3_CACHE_SIZE
  static const long reported = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (reported > 0) return reported;
#endif
  return 32 << 20;
}

}  // namespace gable::cpu
