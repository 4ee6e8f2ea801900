// Events: marks in a device's order of execution, which time the work between them. A CUDA event on CUDA devices; the
// steady clock on CPU devices, where a run has finished when it returns.
#pragma once

#include <gable/export.h>
#include <gable/plan.h>

#include <memory>

namespace gable {

class EventImpl;

/// Made by Device::event(). Copies share the mark.
class GABLE_API Event {
 public:
  explicit Event(std::shared_ptr<EventImpl> impl) : impl_(std::move(impl)) {}  ///< Device::event()'s

  /// Puts the mark on the stream. It is reached when all earlier work on the stream has finished. Throws
  /// Error(device_failure).
  void record(const Stream& stream = {});
  /// Waits until both marks are reached, then returns the seconds from `start` to this one. Throws
  /// Error(invalid_argument) unless both were recorded, on the same device; Error(device_failure).
  double seconds_since(const Event& start) const;

 private:
  std::shared_ptr<EventImpl> impl_;
};

}  // namespace gable
