// See cuda_error.h.
#include "backends/cuda/cuda_error.h"

namespace gable {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// The first driver branch that supports each major version of CUDA.
std::string driver_needed(int runtime_version) { return runtime_version / 1000 >= 13 ? "580" : "525"; }

}  // namespace

bool is_sticky(cudaError_t code) {
  switch (code) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

Error to_error(const cuda::CallFailed& failure, const std::string& where) {
  const std::string what = where + ": " + failure.what();
  switch (failure.code()) {
    case cudaErrorMemoryAllocation:
      return {ErrorCode::out_of_memory, what + ": release tensors and plans, or take a smaller batch"};
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemDriverMismatch:
      return {ErrorCode::unavailable, what};
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return {ErrorCode::unavailable,
              what +
                  ": this build has no code for this GPU; add its architecture to GABLE_CUDA_ARCHITECTURES and build "
                  "again"};
    default:
      break;
  }
  if (is_sticky(failure.code())) {
    return {
        ErrorCode::device_failure,
        what +
            ": a kernel faulted, now or earlier, on this or another GPU, and CUDA takes the GPU from this process for "
            "good; its tensors there are lost too. Start the process again to use the GPU; devices without CUDA, such "
            "as 'cpu', keep working. compute-sanitizer names the kernel and the address"};
  }
  return {ErrorCode::device_failure, what};
}

std::string why_no_device(cudaError_t status, int driver_version, int runtime_version) {
  std::string reason =
      "cudaGetDeviceCount: " + std::string(cudaGetErrorString(status)) + " (" + cudaGetErrorName(status) + "). ";
  if (driver_version == 0) {
    return reason + "No NVIDIA driver (libcuda.so.1) is loaded: install driver " + driver_needed(runtime_version) +
           " or later, and pass the GPU into the container if this is one";
  }
  reason += "The driver supports CUDA " + version_text(driver_version) + ", this plugin needs " +
            version_text(runtime_version);
  if (status == cudaErrorInsufficientDriver) {
    return reason + ": install driver " + driver_needed(runtime_version) + " or later";
  }
  if (status == cudaErrorNoDevice) {
    return reason + ": no GPU is visible; check nvidia-smi and CUDA_VISIBLE_DEVICES";
  }
  return reason + ": check nvidia-smi and the kernel's log (dmesg)";
}

}  // namespace gable
