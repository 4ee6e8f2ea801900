// See bandwidth.h. Short rows are many: each has a small budget, and samples long enough for starting a team of threads
// not to count.
#include "bench/measure/bandwidth.h"

#include <fmt/format.h>
#include <gable/backend.h>

#include <algorithm>
#include <span>
#include <utility>

#include "bench/measure/device_bandwidth.h"
#include "bench/measure/host_bandwidth.h"
#include "bench/measure/timed_row.h"
#include "bench/workloads/identity.h"

namespace gable::bench {
namespace {

constexpr double kMaxSecondsEach = 0.25;

perf::TimingOptions timing_options(const MeasureOptions& options) {
  perf::TimingOptions timing;
  timing.min_runs = std::min(3, options.max_runs);
  timing.max_runs = std::min(20, options.max_runs);
  timing.budget_seconds = std::min(kMaxSecondsEach, options.seconds_each);
  timing.min_sample_seconds = 2e-3;
  return timing;
}

Placement place_of(const OpenDevice& device, const Mover& mover) {
  Placement place = placement_of(device);
  place.kernel = mover.kernel;
  if (place.kind == DeviceKind::cpu) place.threads = mover.threads;
  return place;
}

/// The row of one case on one device, measured unless it is known.
Row row_of(const BandwidthCase& one, const OpenDevice& device, const Mover& mover, const MeasureJob& job) {
  Placement place = place_of(device, mover);
  if (job.known.count(identity_of(one), place) > 0) return job.known.take(identity_of(one), place);
  const auto timings = perf::measure_alternating(std::span(&mover.subject, 1), timing_options(job.options));
  return timed_row(identity_of(one), std::move(place), {mover.time_source, timings.front(), mover.flop, mover.bytes});
}

/// The cases that remain for a device.
std::vector<BandwidthCase> cases_of(const std::vector<BandwidthCase>& cases, const OpenDevice& device,
                                    const MeasureOptions& options, Outcome& outcome) {
  std::vector<BandwidthCase> kept;
  for (const BandwidthCase& one : cases) {
    if (one.one_thread && device.threads == 1) continue;
    if (options.most_moved_bytes > 0 && static_cast<double>(one.bytes) > options.most_moved_bytes) {
      outcome.refuse(identity_of(one), device.uri,
                     Error(ErrorCode::unsupported,
                           fmt::format("this run moves at most {:.2f} GB", options.most_moved_bytes / 1e9)));
    } else {
      kept.push_back(one);
    }
  }
  return kept;
}

}  // namespace

std::unique_ptr<Bandwidth> open_bandwidth(const OpenDevice& device, const std::vector<BandwidthCase>& cases) {
  const DeviceUri uri = parse_device_uri(device.uri);
  if (uri.backend == "cpu" && uri.selector.empty()) return std::make_unique<HostBandwidth>(device.threads, cases);
  if (device.on_gpu()) return std::make_unique<DeviceBandwidth>(device);
  throw Error(ErrorCode::unsupported, "no loops that only move bytes; the device cpu has the host's");
}

void measure_bandwidths(const std::vector<BandwidthCase>& cases, const MeasureJob& job, const RowCallbacks& callbacks) {
  if (cases.empty()) return;
  for (const OpenDevice& device : job.devices) {
    std::unique_ptr<Bandwidth> bandwidth;
    try {
      bandwidth = open_bandwidth(device, cases);
    } catch (const Error& error) {
      const BandwidthCase any{.suite = cases.front().suite, .name = "bandwidth", .bytes = cases.front().bytes};
      job.outcome.refuse(identity_of(any), device.uri, error);
      continue;
    }
    const std::vector<BandwidthCase> own = cases_of(cases, device, job.options, job.outcome);
    std::size_t done = 0;
    for (const BandwidthCase& one : own) {
      callbacks.progress(done++, own.size(), one.name);
      try {
        callbacks.report(row_of(one, device, bandwidth->mover(one), job));
        ++job.outcome.ran;
      } catch (const Error& error) {
        job.outcome.refuse(identity_of(one), device.uri, error);
      }
    }
  }
}

}  // namespace gable::bench
