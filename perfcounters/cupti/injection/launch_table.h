// What is known of each launch until the record of its kernel comes, by CUPTI's correlation number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>

namespace gable::cupti {

struct Launch {
  const char* region;  ///< lives until the process ends; null: nothing is known of this launch
  std::uint64_t arguments;
  std::uint64_t graph;  ///< Graphs::number(); 0: no graph
};

/// A ring of launches by correlation number. The launch that is kPlaces later overwrites one; by then the record of its
/// kernel has long come, since records take tenths of a second. So put() allocates nothing and never waits for whoever
/// reads the records. Thread-safe.
class LaunchTable {
 public:
  static constexpr std::size_t kPlaces = std::size_t{1} << 20;

  LaunchTable() : places_(static_cast<Place*>(std::calloc(kPlaces, sizeof(Place)))) {  // pages come when they are used
    if (places_ == nullptr) throw std::bad_alloc();
  }

  void put(std::uint32_t correlation, const Launch& launch) {
    const std::lock_guard lock(mutex_);
    places_[correlation % kPlaces] = {launch, correlation};
  }

  /// Leaves the launch in its place, since all kernels of a graph belong to one launch.
  Launch get(std::uint32_t correlation) const {
    const std::lock_guard lock(mutex_);
    const Place& place = places_[correlation % kPlaces];
    return place.correlation == correlation ? place.launch : Launch{};
  }

 private:
  struct Place {
    Launch launch;
    std::uint32_t correlation;
  };
  struct Free {
    void operator()(Place* places) const { std::free(places); }
  };

  mutable std::mutex mutex_;
  std::unique_ptr<Place[], Free> places_;
};

}  // namespace gable::cupti
