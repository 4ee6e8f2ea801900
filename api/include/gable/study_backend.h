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
  explicit LoopImpl(LoopDetails details) : details_(std::move(details)) {}  ///< allocates the loop's memory
  virtual ~LoopImpl();
  const LoopDetails& details() const { return details_; }  ///< as given to the constructor
  virtual void run(int passes, void* stream) = 0;          ///< null is the default stream
  /// Waits. Empty where the loop computes nothing.
  virtual std::vector<float> result() const;

 private:
  LoopDetails details_;
};

/// The backend's side of device_loop() and device_ceilings(). Requests are checked before they arrive.
class GABLE_API StudyImpl {
 public:
  virtual ~StudyImpl();
  virtual std::vector<Ceiling> ceilings(const CeilingRequest& request) const = 0;  ///< device_ceilings()
  virtual std::shared_ptr<LoopImpl> loop(const MemoryLoop& loop) const = 0;        ///< throws what device_loop() throws
  virtual std::shared_ptr<LoopImpl> loop(const PagerankLoop& loop) const = 0;      ///< the same
};

}  // namespace gable
