// A mark in a device's order of execution, to measure by when work was done: a CUDA event on CUDA devices, the steady
// clock on devices whose runs have finished when they return.
#pragma once

#include <gable/export.h>
#include <gable/plan.h>

#include <memory>

namespace gable {

class EventImpl;

class GABLE_API Event {
 public:
  explicit Event(std::shared_ptr<EventImpl> impl) : impl_(std::move(impl)) {}

  /// The mark is reached when everything that was put on the stream before it has finished.
  void record(const Stream& stream = {});
  /// Waits until both marks, which must be recorded and of one device, are reached. Throws Error(invalid_argument).
  double seconds_since(const Event& start) const;

 private:
  std::shared_ptr<EventImpl> impl_;
};

}  // namespace gable
