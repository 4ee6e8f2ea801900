// See cuda_error.h.
#include "backends/cuda/cuda_error.h"

namespace gable {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

constexpr const char* kNoMps =
    ": CUDA_MPS_PIPE_DIRECTORY leads to a multi-process service that takes no client now; start its daemon "
    "(nvidia-cuda-mps-control -d), or unset the variable, and start the process again";

bool is_of_mps(cudaError_t code) {
  return code == cudaErrorMpsConnectionFailed || code == cudaErrorMpsServerNotReady ||
         code == cudaErrorMpsMaxClientsReached || code == cudaErrorMpsMaxConnectionsReached;
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
    case cudaErrorContextIsDestroyed:
    case cudaErrorMpsRpcFailure:
    case cudaErrorUnknown:
      return true;
    default:
      break;
  }
  // Error codes that the oldest supported CUDA lacks.
  constexpr int kContained = 226, kTensorMemoryLeak = 721, kMpsClientTerminated = 810, kExternalDevice = 911;
  const int number = code;
  return number == kContained || number == kTensorMemoryLeak || number == kMpsClientTerminated ||
         number == kExternalDevice;
}

Error to_error(const cuda::CallFailed& failure, const std::string& where) {
  const std::string what = where + ": " + failure.what();
  switch (failure.code()) {
    case cudaErrorMemoryAllocation:
      return {ErrorCode::out_of_memory, what + ": release tensors and plans, or take a smaller batch"};
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
      return {ErrorCode::unavailable, what};
    case cudaErrorDevicesUnavailable:
      return {
          ErrorCode::unavailable,
          what +
              ": another process has this GPU for itself, its compute mode lets none in, the multi-process service of "
              "CUDA_MPS_PIPE_DIRECTORY takes no client, or it is lost; see nvidia-smi -q -d COMPUTE,PIDS and the "
              "kernel's log (dmesg)"};
    case cudaErrorInitializationError:
      return {ErrorCode::device_failure,
              what +
                  ": CUDA does not survive a fork(): if this process was forked from one that had used a GPU, start it "
                  "anew (exec)"};
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return {ErrorCode::unavailable,
              what +
                  ": this build has no code for this GPU; add its architecture to GABLE_CUDA_ARCHITECTURES and build "
                  "again"};
    default:
      break;
  }
  if (is_of_mps(failure.code())) return {ErrorCode::unavailable, what + kNoMps};
  if (is_sticky(failure.code())) {
    return {
        ErrorCode::device_failure,
        what +
            ": a kernel of this process faulted, now or earlier, on this or another GPU, or the GPU itself failed, and "
            "CUDA takes the GPU from this process for good; its tensors there are lost too. Start the process again to "
            "use the GPU; devices without CUDA, such as 'cpu', keep working. compute-sanitizer names the kernel and "
            "the "
            "address; failures of a GPU stand in the kernel's log (dmesg, Xid)"};
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
  if (is_of_mps(status)) return reason + kNoMps;
  return reason + ": check nvidia-smi and the kernel's log (dmesg)";
}

}  // namespace gable
