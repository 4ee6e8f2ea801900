// Every CUDA call's return code is checked. A failure throws CallFailed, which names the call; the glue above turns it
// into gable::Error. Destructors use ignore(), since they must not throw. Another call reports the failures that
// destructors meet, such as a lost context or a driver that is unloading.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace gable::cuda {

class CallFailed : public std::runtime_error {
 public:
  CallFailed(cudaError_t code, std::string_view call)
      : std::runtime_error(std::string(call) + ": " + cudaGetErrorString(code) + " (" + cudaGetErrorName(code) + ")"),
        code_(code) {}
  cudaError_t code() const noexcept { return code_; }

 private:
  cudaError_t code_;
};

/// `call` is the call's text. The message has its name, without the arguments.
inline void check(cudaError_t status, std::string_view call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // errors that are not sticky must not be found again after the next launch
  throw CallFailed(status, call.substr(0, call.find('(')));
}

inline void ignore(cudaError_t status) noexcept {
  if (status != cudaSuccess) cudaGetLastError();
}

/// After a launch: a refused configuration, or the fault of an earlier kernel.
inline void check_launch(std::string_view kernel) {
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) throw CallFailed(status, "launch of " + std::string(kernel));
}

}  // namespace gable::cuda

#define GABLE_CUDA_CHECK(expression) ::gable::cuda::check((expression), #expression)
