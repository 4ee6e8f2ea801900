// Copies from global to shared memory that don't pass through registers (cp.async, sm_80 and later). A thread waits for
// its groups of copies in order. Before sm_80 they are plain copies, which are complete when the call returns.
#pragma once

#include <cstdint>

namespace gable::cuda {

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// 4, 8 or 16 bytes, both sides aligned to that; zeros where not `valid`, and then nothing is read.
template <int bytes>
__device__ __forceinline__ void copy_async(void* shared, const void* global, bool valid) {
#if __CUDA_ARCH__ >= 800
  if constexpr (bytes == 16) {  // bypasses L1: its lines are not read twice
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
                 "r"(valid ? 16 : 0)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)), "l"(global), "n"(bytes),
                 "r"(valid ? bytes : 0)
                 : "memory");
  }
#else
  if constexpr (bytes == 16) {
    *static_cast<uint4*>(shared) = valid ? *static_cast<const uint4*>(global) : uint4{};
  } else if constexpr (bytes == 8) {
    *static_cast<uint2*>(shared) = valid ? *static_cast<const uint2*>(global) : uint2{};
  } else {
    *static_cast<unsigned*>(shared) = valid ? *static_cast<const unsigned*>(global) : 0u;
  }
#endif
}

/// The same to an address of shared memory. Whether it is `valid` is a predicate here, which takes no arithmetic.
template <int bytes>
__device__ __forceinline__ void copy_async(std::uint32_t shared, const void* global, bool valid) {
#if __CUDA_ARCH__ >= 800
  if constexpr (bytes == 16) {
    asm volatile(
        "{\n.reg .pred none;\nsetp.eq.s32 none, %2, 0;\ncp.async.cg.shared.global [%0], [%1], 16, none;\n}" ::"r"(
            shared),
        "l"(global), "r"(static_cast<int>(valid))
        : "memory");
  } else {
    asm volatile(
        "{\n.reg .pred none;\nsetp.eq.s32 none, %3, 0;\ncp.async.ca.shared.global [%0], [%1], %2, none;\n}" ::"r"(
            shared),
        "l"(global), "n"(bytes), "r"(static_cast<int>(valid))
        : "memory");
  }
#else
  copy_async<bytes>(__cvta_shared_to_generic(shared), global, valid);
#endif
}

/// Ends a group of copies.
__device__ __forceinline__ void commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/// Waits until all but the latest `pending` groups of this thread have arrived. A barrier then makes them visible to
/// the other threads.
template <int pending>
__device__ __forceinline__ void wait_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
#endif
}

}  // namespace gable::cuda
