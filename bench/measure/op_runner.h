// One op on one device with its tensors. verify, bench and run share it.
#pragma once

#include <gable/device.h>
#include <gable/plan.h>

#include "bench/measure/devices.h"
#include "bench/workloads/data.h"
#include "perfcounters/timing.h"

namespace gable::bench {

class OpRunner {
 public:
  /// Makes the plan. Throws Error(unsupported) with the reason of every kernel.
  OpRunner(const OpenDevice& device, const Op& op);

  /// Copies the inputs to the device, packs the weights and allocates the output, filled with NaNs. Host devices use
  /// `data` in place, so `data` must outlive the runner.
  void prepare(const OpData& data);
  /// Runs the plan once and waits for its end.
  void run() const;
  /// The timed call. Asynchronous devices are timed with events, with several calls between two events; others with the
  /// clock.
  perf::Subject subject() const;
  /// The source of subject()'s times: "event" or "clock".
  const char* time_source() const { return on_host() ? "clock" : "event"; }
  /// The output as a host tensor.
  Tensor result() const;

  bool timed_by_events() const { return !on_host(); }

  const OpenDevice& device() const { return *device_; }
  /// Where the plan runs, its kernel and that kernel's arithmetic. `cache` is left unset.
  Placement placement() const;
  const Plan& plan() const { return plan_; }

 private:
  bool on_host() const { return plan_.memory().kind == Memory::Kind::host; }
  double seconds_of(int calls) const;
  void enqueue() const;
  /// The tensor itself on a host device, otherwise a copy in `storage`.
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
