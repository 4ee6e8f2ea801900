// Device memory of a test, outside gable.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "cuda/common/check.h"

namespace gable {

/// Device memory with a host's contents.
template <typename T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) : bytes_(values.size() * sizeof(T)) {
    GABLE_CUDA_CHECK(cudaMalloc(&memory_, bytes_));
    GABLE_CUDA_CHECK(cudaMemcpy(memory_, values.data(), bytes_, cudaMemcpyHostToDevice));
  }
  ~OnDevice() { cuda::ignore(cudaFree(memory_)); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  T* get() const { return static_cast<T*>(memory_); }
  std::vector<T> read() const {
    std::vector<T> values(bytes_ / sizeof(T));
    GABLE_CUDA_CHECK(cudaMemcpy(values.data(), memory_, bytes_, cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  std::size_t bytes_;
  void* memory_ = nullptr;
};

}  // namespace gable
