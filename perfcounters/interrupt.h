// Ctrl-C and SIGTERM during measurements: what was measured is kept. Measurements check between their steps whether
// such a signal has arrived; signals are only caught while an InterruptKeeper lives.
#pragma once

#include <signal.h>

#include <array>

namespace gable::perf {

/// While it lives, the first SIGINT, SIGTERM or SIGHUP is only noted, and a second one, at least 0.3 s later, ends the
/// process as usual. Signals that were ignored before stay so. One at a time.
class InterruptKeeper {
 public:
  InterruptKeeper();
  ~InterruptKeeper();
  InterruptKeeper(const InterruptKeeper&) = delete;
  InterruptKeeper& operator=(const InterruptKeeper&) = delete;

 private:
  static constexpr std::array kKept{SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kKept.size()> before_{};
};

/// The signal that came since the last InterruptKeeper was made, also after its end; 0: none.
int interrupting_signal();

/// Ends a sequence of measurements. Not a std::exception, so that handlers do not take it for the failure of one
/// measurement.
struct Interrupted {};

void throw_if_interrupted();

}  // namespace gable::perf
