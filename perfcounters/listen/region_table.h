// The regions of this process: the mapped file (region_file.h) and the index of its slots by parent and name. It is
// made at the first region, and again in a forked child, which has a file of its own.
#pragma once

#include <cstdint>

#include "perfcounters/listen/region_file.h"

namespace gable::listen {

/// A region's slot is number - 1; 0: outside of all regions.
using RegionNumber = std::uint32_t;

enum class Mode { time, counters, simulated };

class RegionTable {
 public:
  /// Whether regions are recorded; a load and a comparison, but at first and after a fork.
  bool ready() {
    const std::uint32_t state = this->state();
    return state == kListening || (state == kNew && start());
  }

  FileHeader& header() { return *header_; }
  Slot& slot(RegionNumber region) { return slots_[region - 1]; }
  /// "outer/inner"; empty for 0.
  const char* path(RegionNumber region) const { return region == 0 ? "" : nodes_[region - 1].path; }
  Mode mode() const { return mode_; }
  /// Changes with every process: what threads remember of the parent process's file is void.
  std::uint32_t process() const { return process_; }

  /// The region of this name inside `parent`, a new one if need be; 0, and counted in the header, where there can be
  /// none.
  RegionNumber find(RegionNumber parent, const char* name, Origin origin);

  /// At exit().
  void end_well();

 private:
  static constexpr std::uint32_t kNew = 0, kListening = 1, kOff = 2;
  static constexpr std::uint32_t kBuckets = 1024;

  struct Node {
    const char* path;
    std::uint32_t path_bytes;
    std::uint32_t hash;
    RegionNumber next;  ///< in its bucket
  };

  std::uint32_t state() const { return __atomic_load_n(alive_.load(std::memory_order_acquire), __ATOMIC_ACQUIRE); }
  bool start();
  bool open_file();
  bool reserve(std::uint32_t slots);
  void describe_process();
  RegionNumber look_up(std::uint32_t hash, RegionNumber parent, const char* name, Origin origin) const;
  RegionNumber add(std::uint32_t hash, RegionNumber parent, const char* name, Origin origin, bool cut);

  std::uint32_t never_ = kNew;
  /// A page that the kernel wipes in a forked child.
  std::atomic<std::uint32_t*> alive_{&never_};
  FileHeader* header_ = nullptr;
  Slot* slots_ = nullptr;
  char file_[4096] = {};  ///< its path: no descriptor is kept, since a program may close what it did not open
  Mode mode_ = Mode::time;
  std::uint32_t process_ = 0;
  std::uint32_t slot_limit_ = 0;
  std::uint32_t reserved_ = 0;         ///< slots that have disk blocks
  std::atomic<std::int32_t> lock_{0};  ///< the holder's process; a forked child takes it from its parent's threads
  std::atomic<RegionNumber> buckets_[kBuckets]{};
  Node nodes_[kMaxRegions]{};
};

extern RegionTable table;

}  // namespace gable::listen
