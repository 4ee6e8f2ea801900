// The arguments of launches, read with the driver's help: the size of each argument, and which words are addresses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "perfcounters/cupti/library.h"

namespace gable::cupti {

/// Thread-safe.
class Arguments {
 public:
  /// ArgumentHash of a launch; 0: not known (a driver before CUDA 12.4). `function`: a CUfunction or a CUkernel, as
  /// cuLaunchKernel() takes either; `parameters` and `extra`: as there.
  std::uint64_t hash(void* function, void* const* parameters, void* const* extra);

 private:
  static constexpr std::size_t kRemembered = 4096;
  const std::vector<std::size_t>& sizes_of(void* function);
  bool is_address(std::uint64_t word);

  std::mutex mutex_;
  std::unordered_map<void*, std::vector<std::size_t>> sizes_;
  std::map<std::uint64_t, std::uint64_t> ranges_;          ///< begin -> end of allocations that were seen
  std::uint64_t last_begin_ = 0, last_end_ = 0;            ///< the one that was found last
  std::array<std::uint64_t, kRemembered> no_addresses_{};  ///< a word's place follows from it
};

Arguments& arguments();

}  // namespace gable::cupti
