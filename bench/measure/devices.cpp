// See devices.h.
#include "bench/measure/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gable/backend.h>
#include <gable/error.h>
#include <omp.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace gable::bench {
namespace {

std::string with_threads(const std::string& text, int threads) {
  DeviceUri uri = parse_device_uri(text);
  const auto [at, added] = uri.options.emplace("threads", std::to_string(threads));
  if (!added && at->second != std::to_string(threads)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("device '{}' and --threads {} contradict each other; give one of them", text, threads));
  }
  return to_string(uri);
}

/// Backends without the option `threads` use all of OpenMP's threads.
int threads_of(const std::string& text) {
  const DeviceUri uri = parse_device_uri(text);
  const auto found = uri.options.find("threads");
  int threads = omp_get_max_threads();
  if (found != uri.options.end()) {
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), threads);
  }
  return threads;
}

}  // namespace

std::vector<std::string> default_devices() {
  std::vector<std::string> uris;
  for (const DeviceInfo& info : devices()) {
    const bool wanted = info.uri == "cpu" || info.uri == "onednn" || kind_of(info.memory) == DeviceKind::gpu;
    if (info.available && wanted) uris.push_back(info.uri);
  }
  if (uris.empty()) {
    throw Error(ErrorCode::unavailable, "no device is available but the reference; `gable info` says why");
  }
  return uris;
}

DeviceKind kind_of(const Memory& memory) {
  return memory.kind == Memory::Kind::cuda ? DeviceKind::gpu : DeviceKind::cpu;
}

std::vector<DeviceKind> kinds_of(const std::vector<OpenDevice>& devices) {
  std::vector<DeviceKind> kinds;
  for (const OpenDevice& device : devices) kinds.push_back(device.kind);
  return kinds;
}

Placement placement_of(const OpenDevice& device) {
  const DeviceInfo& info = device.device.info();
  Placement place{.device = device.uri, .kind = device.kind, .device_name = info.name};
  if (device.on_gpu()) {
    place.gpu = info.memory.index;
  } else {
    place.threads = device.threads;
  }
  return place;
}

Placement placement_of(const OpenDevice& device, const Plan& plan) {
  Placement place = placement_of(device);
  if (parse_device_uri(device.uri).backend != "auto") return place;
  place.asked = device.uri;
  place.device = plan.device_uri();
  const Memory memory = open(place.device).info().memory;  // the plan's own may be the host's: auto?memory=host
  place.kind = kind_of(memory);
  place.gpu.reset();
  place.threads.reset();
  if (place.kind == DeviceKind::cpu) {
    place.threads = threads_of(place.device);
  } else {
    place.gpu = memory.index;
    if (kind_of(plan.memory()) == DeviceKind::cpu) place.device += " from the host";
  }
  return place;
}

std::vector<OpenDevice> open_asked(const std::vector<std::string>& asked, int threads,
                                   std::vector<std::string>& left_out) {
  if (!asked.empty()) return open_devices(asked, threads);
  std::vector<std::string> good;
  for (const std::string& uri : default_devices()) {
    try {
      static_cast<void>(open(uri));
      good.push_back(uri);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::invalid_argument) throw;  // such as OMP_NUM_THREADS
      left_out.push_back(fmt::format("left out: {}", error.what()));
    }
  }
  if (good.empty()) throw Error(ErrorCode::unavailable, fmt::format("{}", fmt::join(left_out, "\n")));
  return open_devices(good, threads);
}

std::vector<OpenDevice> open_devices(const std::vector<std::string>& uris, int threads) {
  open("reference");  // throws where OpenMP's own threads, which fill tensors and check results, can't be made
  std::vector<OpenDevice> opened;
  for (const std::string& text : uris) {
    OpenDevice one{open(text), text};
    one.kind = kind_of(one.device.info().memory);
    if (!one.on_gpu() && threads > 0) {
      one.uri = with_threads(text, threads);
      one.device = open(one.uri);
    }
    if (!one.on_gpu()) one.threads = threads_of(one.uri);
    const bool twice = std::any_of(opened.begin(), opened.end(), [&](const OpenDevice& d) { return d.uri == one.uri; });
    if (twice) throw Error(ErrorCode::invalid_argument, fmt::format("device '{}' is named twice", one.uri));
    opened.push_back(std::move(one));
  }
  return opened;
}

}  // namespace gable::bench
