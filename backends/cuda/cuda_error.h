// From CUDA's errors to gable::Error: what failed, and what to do next.
#pragma once

#include <gable/error.h>

#include <string>

#include "cuda/common/check.h"

namespace gable {

/// Whether the error outlives the call: the context is lost, and every later CUDA call of the process on that device
/// fails with it.
bool is_sticky(cudaError_t code);

/// `where` begins the message, e.g. "cuda:0".
Error to_error(const cuda::CallFailed& failure, const std::string& where);

/// Why no CUDA device can be used, from what cudaGetDeviceCount() returned and the CUDA versions (13000 is 13.0; 0 is
/// no driver at all) that the driver supports and that the runtime was built for. Names what cures it.
std::string why_no_device(cudaError_t status, int driver_version, int runtime_version);

/// Calls `body` and turns a CallFailed into an Error.
template <typename Body>
decltype(auto) reporting(const std::string& where, Body&& body) {
  try {
    return body();
  } catch (const cuda::CallFailed& failure) {
    throw to_error(failure, where);
  }
}

}  // namespace gable
