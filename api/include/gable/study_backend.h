// The optional part of a backend behind gable/study.h: a device that can measure itself returns a StudyImpl from
// DeviceImpl::studies(). Backends that only compute ops don't include this.
#pragma once

#include <gable/export.h>
#include <gable/study.h>

#include <memory>
#include <vector>

namespace gable {

/// The backend's side of a Loop. `passes` is at least 1.
class GABLE_API LoopImpl {
 public:
  /// Allocates the loop's memory.
  explicit LoopImpl(LoopDetails details) : details_(std::move(details)) {}
  virtual ~LoopImpl();
  const LoopDetails& details() const { return details_; }  ///< as given to the constructor
  /// Runs on `stream`; null is the default one.
  virtual void run(int passes, void* stream) = 0;
  /// Waits. Empty where the loop computes nothing.
  virtual std::vector<float> result() const;

 private:
  LoopDetails details_;
};

/// The backend's side of device_loop() and device_ceilings(). Requests are checked before they arrive.
class GABLE_API StudyImpl {
 public:
  virtual ~StudyImpl();
  /// Of device_ceilings().
  virtual std::vector<Ceiling> ceilings(const CeilingRequest& request) const = 0;
  /// Throws Error(unsupported) where the device has no such loop, Error(out_of_memory).
  virtual std::shared_ptr<LoopImpl> loop(const MemoryLoop& loop) const = 0;
  /// The same.
  virtual std::shared_ptr<LoopImpl> loop(const PagerankLoop& loop) const = 0;
};

}  // namespace gable
