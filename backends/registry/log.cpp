// See log.h.
#include "backends/registry/log.h"

#include <gable/choose.h>

#include <functional>
#include <mutex>

namespace gable {
namespace {

struct Log {
  std::mutex mutex;
  std::function<void(std::string_view)> callback;
};

/// Never destroyed, as the registry.
Log& log() {
  static Log* const one = new Log();
  return *one;
}

}  // namespace

void set_log(std::function<void(std::string_view)> callback) {
  const std::lock_guard lock(log().mutex);
  log().callback = std::move(callback);
}

void log_word(std::string_view message) noexcept {
  try {
    const std::lock_guard lock(log().mutex);
    if (log().callback) log().callback(message);
  } catch (...) {
    // The application's own; nothing here depends on it.
  }
}

}  // namespace gable
