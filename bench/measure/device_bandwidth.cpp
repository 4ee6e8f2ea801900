// See device_bandwidth.h. The passes of one sample are one launch: a small working set is then found in its cache.
#include "bench/measure/device_bandwidth.h"

#include <gable/error.h>

#include <string>

namespace gable::bench {
namespace {

MemoryLoop::Movement movement_of(const BandwidthCase& one) {
  using To = MemoryLoop::Movement;
  switch (one.movement) {
    case Movement::read:
      return To::read;
    case Movement::copy:
      return To::copy;
    case Movement::triad:
      return To::triad;
    case Movement::to_shared:
      return To::to_shared;
    case Movement::pinned_to_device:
      return To::pinned_to_device;
    case Movement::device_to_pinned:
      return To::device_to_pinned;
    case Movement::pageable_to_device:
      return To::pageable_to_device;
    case Movement::device_to_pageable:
      return To::device_to_pageable;
    default:
      throw Error(ErrorCode::unsupported, std::string(to_string(one.movement)) + " is the host's: take the device cpu");
  }
}

}  // namespace

DeviceBandwidth::DeviceBandwidth(const OpenDevice& device) : device_(device.device) {
  constexpr std::int64_t some_bytes = 1 << 20;
  device_loop(device_, MemoryLoop{.bytes = some_bytes});
}

Mover DeviceBandwidth::mover(const BandwidthCase& one) {
  const Loop loop = device_loop(device_, MemoryLoop{.movement = movement_of(one), .bytes = one.bytes});
  return {.subject = subject_of(device_, loop),
          .time_source = "event",
          .kernel = loop.details().kernel,
          .bytes = loop.details().bytes,
          .flop = loop.details().flop};
}

perf::Subject subject_of(const Device& device, const Loop& loop) {
  perf::Subject subject;
  subject.time = [device, loop](int calls) {
    Event start = device.event();
    Event end = device.event();
    start.record();
    loop.run(calls);
    end.record();
    return end.seconds_since(start);
  };
  return subject;
}

}  // namespace gable::bench
