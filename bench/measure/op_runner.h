// One op on one device with its tensors in place: what verify, bench and run have in common.
#pragma once

#include <gable/device.h>
#include <gable/plan.h>

#include "bench/measure/devices.h"
#include "bench/workloads/data.h"
#include "perfcounters/timing.h"

namespace gable::bench {

class OpRunner {
 public:
  /// Plans. Throws Error(unsupported) with the reason of every kernel.
  OpRunner(const OpenDevice& device, const Op& op);

  /// Brings the inputs to the device, packs the weights and makes the output, poisoned. Host devices use `data` in
  /// place, which then outlives the runner.
  void prepare(const OpData& data);
  /// One run, to its end.
  void run() const;
  /// How to time it: by events on devices that run on their own, several calls between two of them, else by the clock.
  perf::Subject subject() const;
  /// Where subject()'s times come from: "event" or "clock".
  const char* time_source() const { return on_host() ? "clock" : "event"; }
  /// The output, on the host.
  Tensor result() const;

  bool timed_by_events() const { return !on_host(); }

  const OpenDevice& device() const { return *device_; }
  /// Where the plan runs, its kernel and what that multiplies in; `cache` is left to who times it.
  Placement placement() const;
  const Plan& plan() const { return plan_; }

 private:
  bool on_host() const { return plan_.memory().kind == Memory::Kind::host; }
  double seconds_of(int calls) const;
  void enqueue() const;
  /// The tensor itself on a host device, else a copy in `storage`.
  ConstTensorView place(const Tensor& tensor, Tensor& storage) const;

  const OpenDevice* device_;
  Plan plan_;
  Tensor x_copy_;
  Tensor second_copy_;
  Tensor bias_copy_;
  ConstTensorView x_;
  ConstTensorView second_;
  ConstTensorView bias_;
  PackedWeights weights_;
  Tensor y_;
};

}  // namespace gable::bench
