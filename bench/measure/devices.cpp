// See devices.h.
#include "bench/measure/devices.h"

#include <fmt/format.h>
#include <gable/backend.h>
#include <gable/error.h>
#include <omp.h>

#include <algorithm>
#include <charconv>

#include "bench/report/study.h"

namespace gable::bench {
namespace {

std::string with_threads(const std::string& text, int threads) {
  if (threads == 0 || report::is_gpu(text)) return text;
  DeviceUri uri = parse_device_uri(text);
  const auto [at, added] = uri.options.emplace("threads", std::to_string(threads));
  if (!added && at->second != std::to_string(threads)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("device '{}' and --threads {} contradict each other; give one of them", text, threads));
  }
  return to_string(uri);
}

/// Backends without the option run on OpenMP's threads.
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
    const bool wanted = info.uri == "cpu" || info.uri == "onednn" || report::is_gpu(info.uri);
    if (info.available && wanted) uris.push_back(info.uri);
  }
  if (uris.empty()) {
    throw Error(ErrorCode::unavailable, "no device is available but the reference; `gable info` says why");
  }
  return uris;
}

std::vector<OpenDevice> open_devices(const std::vector<std::string>& uris, int threads) {
  std::vector<OpenDevice> opened;
  for (const std::string& text : uris) {
    const std::string uri = with_threads(text, threads);
    const bool twice = std::any_of(opened.begin(), opened.end(), [&](const OpenDevice& d) { return d.uri == uri; });
    if (twice) throw Error(ErrorCode::invalid_argument, fmt::format("device '{}' is named twice", uri));
    const bool gpu = report::is_gpu(uri);
    opened.push_back({open(uri), uri, gpu, gpu ? 0 : threads_of(uri)});
  }
  return opened;
}

}  // namespace gable::bench
