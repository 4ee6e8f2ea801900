// The arguments of launches, read with the driver's help: how large each one is, and which words are addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
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
  const std::vector<std::size_t>& sizes_of(void* function);
  bool is_address(std::uint64_t word);

  std::mutex mutex_;
  std::unordered_map<void*, std::vector<std::size_t>> sizes_;
  std::map<std::uint64_t, std::uint64_t> ranges_;  ///< begin -> end of allocations that were seen
  std::unordered_set<std::uint64_t> no_addresses_;
};

Arguments& arguments();

}  // namespace gable::cupti
