// See arguments.h.
#include "perfcounters/cupti/injection/arguments.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "perfcounters/cupti/injection/argument_hash.h"

namespace gable::cupti {
namespace {

constexpr std::size_t kMaxParameters = 4096;

/// The sizes of a kernel's parameters; empty if the driver does not say.
template <typename Query, typename Handle>
std::vector<std::size_t> sizes_by(Query query, Handle handle) {
  std::vector<std::size_t> sizes;
  std::size_t offset = 0, size = 0;
  while (sizes.size() < kMaxParameters && query(handle, sizes.size(), &offset, &size) == CUDA_SUCCESS)
    sizes.push_back(size);
  return sizes;
}

}  // namespace

const std::vector<std::size_t>& Arguments::sizes_of(void* function) {
  const auto [place, is_new] = sizes_.try_emplace(function);
  if (is_new && driver().function_parameter != nullptr) {
    place->second = sizes_by(driver().function_parameter, static_cast<CUfunction>(function));
    if (place->second.empty() && driver().kernel_parameter != nullptr)
      place->second = sizes_by(driver().kernel_parameter, static_cast<CUkernel>(function));
  }
  return place->second;
}

bool Arguments::is_address(std::uint64_t word) {
  if (word >= last_begin_ && word < last_end_) return true;
  std::uint64_t& remembered = no_addresses_[(word ^ word >> 32) % kRemembered];
  if (remembered == word) return false;
  if (const auto after = ranges_.upper_bound(word); after != ranges_.begin()) {
    std::tie(last_begin_, last_end_) = *std::prev(after);
    if (word < last_end_) return true;
  }
  CUdeviceptr begin = 0;
  std::size_t size = 0;
  if (driver().pointer_attribute(&begin, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, word) == CUDA_SUCCESS &&
      driver().pointer_attribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, word) == CUDA_SUCCESS && begin != 0) {
    std::uint64_t& end = ranges_[begin];
    end = std::max<std::uint64_t>(end, begin + size);
    return true;
  }
  remembered = word;
  return false;
}

std::uint64_t Arguments::hash(void* function, void* const* parameters, void* const* extra) {
  if (function == nullptr) return 0;
  const std::lock_guard lock(mutex_);
  const auto address = [this](std::uint64_t word) { return is_address(word); };
  ArgumentHash hash;
  if (parameters != nullptr) {
    const std::vector<std::size_t>& sizes = sizes_of(function);
    if (sizes.empty()) return 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (parameters[i] == nullptr) return 0;
      hash.add(parameters[i], sizes[i], address);
    }
    return hash.value();
  }
  // All arguments in one buffer: a list of names and values.
  const void* buffer = nullptr;
  std::size_t size = 0;
  for (; extra != nullptr && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
    if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *static_cast<const std::size_t*>(extra[1]);
  }
  if (buffer == nullptr || size == 0) return 0;
  hash.add(buffer, size, address);
  return hash.value();
}

/// Never destroyed: kernels may be launched during the process's end.
Arguments& arguments() {
  static Arguments* const the_arguments = new Arguments;
  return *the_arguments;
}

}  // namespace gable::cupti
