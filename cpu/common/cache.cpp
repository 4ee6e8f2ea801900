// Cache sizes out of Linux's sysfs: sysconf knows only some CPUs, and guests often report nothing through it.
#include "cpu/common/cache.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace gable::cpu {
namespace {

/// The size of CPU 0's data or unified cache of this level, or 0.
std::int64_t sysfs_cache_bytes(int level) {
  for (int index = 0; index < 8; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    int found = 0;
    std::string type;
    std::int64_t size = 0;
    char unit = 'K';
    std::ifstream(folder + "level") >> found;
    std::ifstream(folder + "type") >> type;
    if (found != level || type == "Instruction") continue;
    std::ifstream(folder + "size") >> size >> unit;
    return size * (unit == 'M' ? 1 << 20 : 1 << 10);
  }
  return 0;
}

}  // namespace

std::int64_t l1_bytes() {
  static const std::int64_t found = sysfs_cache_bytes(1);
  return found > 0 ? std::clamp<std::int64_t>(found, 32 << 10, 128 << 10) : 32 << 10;
}

bool l1_has_few_ways() { return l1_bytes() <= 8 * kL1WayBytes; }

std::int64_t l2_bytes() {
  static const std::int64_t found = sysfs_cache_bytes(2);
  return found > 0 ? std::clamp<std::int64_t>(found, 256 << 10, 2 << 20) : 1 << 20;
}

std::int64_t l3_bytes() {
  static const std::int64_t found = sysfs_cache_bytes(3);
  return found > 0 ? found : 32 << 20;
}

std::int64_t last_level_bytes() {
  constexpr std::int64_t kMaxCached = 32 << 20;
  return std::min(l3_bytes(), kMaxCached);
}

bool beyond_last_level(std::int64_t bytes) { return bytes > last_level_bytes(); }

bool reads_weights_once(const Conv2dProblem& p) {
  const auto bytes = static_cast<std::int64_t>(size_of(p.dtype));
  return beyond_last_level(p.k * p.group_c() * p.r * p.s * bytes) && !beyond_last_level(p.x_elements() * bytes);
}

}  // namespace gable::cpu
