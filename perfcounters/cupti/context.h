// A GPU by its number, and its primary context, which the CUDA runtime uses.
#pragma once

#include "perfcounters/cupti/library.h"

namespace gable::cupti {

/// Throws GpuProfilerError(kNoGpu).
CUdevice device_of(int gpu);

/// The primary context, kept alive.
class PrimaryContext {
 public:
  explicit PrimaryContext(CUdevice device);
  ~PrimaryContext();
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

  CUcontext get() const { return context_; }

 private:
  CUdevice device_;
  CUcontext context_ = nullptr;
};

/// Makes the context current for the calling thread; the destructor restores the previous one.
class Current {
 public:
  explicit Current(const PrimaryContext& context);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
};

}  // namespace gable::cupti
