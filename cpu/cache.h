// Sizes of this machine's caches, which the blockings are derived from.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>

namespace gable::cpu {

/// Bytes of one core's L2; 1 MiB where the system does not say. Kept within what the blockings were thought out for.
inline std::int64_t l2_bytes() {
#ifdef _SC_LEVEL2_CACHE_SIZE
  static const long reported = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (reported > 0) return std::clamp<std::int64_t>(reported, 256 << 10, 2 << 20);
#endif
  return 1 << 20;
}

/// Bytes of the last level that this core shares; 32 MiB where the system does not say. sysconf is not asked: on some
/// CPUs it adds up every such cache of the package.
inline std::int64_t l3_bytes() {
  static const std::int64_t bytes = [] {
    std::int64_t kib = 0;
    std::ifstream("/sys/devices/system/cpu/cpu0/cache/index3/size") >> kib;
    return kib > 0 ? kib << 10 : std::int64_t{32} << 20;
  }();
  return bytes;
}

}  // namespace gable::cpu
