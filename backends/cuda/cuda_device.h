// Memory, copies, streams, events and synchronisation of one CUDA device, for every backend whose tensors lie there: a
// backend derives from CudaDevice and adds offers().
//
// Order of execution: a default Stream is CUDA's legacy default stream, and the streams made here are blocking ones.
// Allocation, packing and release run on the default stream, so CUDA orders them with the work on all these streams,
// without a wait on the host. An application that borrows in a cudaStreamNonBlocking stream of its own must synchronise
// it before it releases memory that the stream uses.
#pragma once

#include <gable/backend.h>

#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/cuda_error.h"

namespace gable {

/// Makes a device current for the calling thread. The destructor restores the former one.
class CurrentDevice {
 public:
  explicit CurrentDevice(int index);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int former_ = 0;
  bool changed_ = false;
};

/// Every CUDA device as `backend`:N, or one entry `backend` with the reason why there is none.
std::vector<DeviceInfo> probe_cuda_devices(const std::string& backend);

/// The device that the URI means: its selector as an index, 0 without one. Throws Error(unavailable) or
/// Error(invalid_argument) that names the devices there are.
DeviceInfo find_cuda_device(const DeviceUri& uri);

class CudaDevice : public DeviceImpl {
 public:
  /// `info` is find_cuda_device()'s. Throws Error.
  explicit CudaDevice(DeviceInfo info);

  std::shared_ptr<void> allocate(std::size_t bytes) const override;
  /// Between host and device, within the device, and to other devices. Pinned host memory is copied asynchronously;
  /// pageable memory may be read or written after the call as CUDA's own copies allow.
  void copy(const ConstTensorView& from, const TensorView& to, void* stream) const override;
  Stream stream() const override;
  void synchronize(void* stream) const override;
  std::shared_ptr<EventImpl> event() const override;

  int index() const { return info_.memory.index; }
  std::string uri() const { return to_string(info_.memory); }
  const cudaDeviceProp& properties() const { return *properties_; }

 private:
  std::shared_ptr<const cudaDeviceProp> properties_;
  std::shared_ptr<void> pool_;  ///< a cudaMemPool_t
};

/// The part of a plan that all kernels of a CUDA device share: it makes the device current, opens an NVTX range, checks
/// pointers and translates errors. Derived classes launch kernels.
class CudaPlan : public PlanImpl {
 public:
  /// `alignment` is the alignment in bytes that the kernel needs of every tensor's address; 0: that of an element.
  CudaPlan(PlanDetails details, const CudaDevice& device, const Op& op, std::size_t alignment = 0);
  void pack(const void* weights, void* packed) final;
  void run(const RunArguments& arguments) final;

 protected:
  /// Packs on the default stream.
  virtual void launch_pack(const void* weights, void* packed);
  virtual void launch(const RunArguments& arguments, cudaStream_t stream) = 0;
  void* workspace() const { return workspace_.get(); }

 private:
  void check_pointers(const RunArguments& arguments);
  void check_pointer(const void* pointer, const char* role, std::size_t alignment) const;

  std::string where_;  ///< "cuda:0: conv2d"
  std::string range_;  ///< "gable conv2d naive"
  int index_;
  std::size_t element_bytes_;
  std::size_t alignment_;
  std::shared_ptr<void> workspace_;
  const void* known_[5] =
      {};  ///< pointers whose memory was looked up: cudaPointerGetAttributes costs as much as a launch
};

}  // namespace gable
