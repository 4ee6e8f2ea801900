// See interrupt.h.
#include "perfcounters/interrupt.h"

#include <ctime>

namespace gable::perf {
namespace {

/// One signal may arrive twice: timeout(1) sends it to the program and then to the program's group.
constexpr double kSameSignal = 0.3;  // seconds

volatile sig_atomic_t came = 0;
timespec came_at{};

void note(int signal) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (came == 0) {
    came_at = now;
    came = signal;
    return;
  }
  const double since =
      static_cast<double>(now.tv_sec - came_at.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec - came_at.tv_nsec);
  if (since < kSameSignal) return;
  ::signal(signal, SIG_DFL);
  raise(signal);
}

}  // namespace

InterruptKeeper::InterruptKeeper() {
  came = 0;
  struct sigaction handler {};
  handler.sa_handler = note;
  handler.sa_flags = SA_RESTART;
  sigemptyset(&handler.sa_mask);
  for (std::size_t i = 0; i < kKept.size(); ++i) {
    sigaction(kKept[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) sigaction(kKept[i], &handler, nullptr);
  }
}

InterruptKeeper::~InterruptKeeper() {
  for (std::size_t i = 0; i < kKept.size(); ++i) sigaction(kKept[i], &before_[i], nullptr);
}

int interrupting_signal() { return came; }

void throw_if_interrupted() {
  if (came != 0) throw Interrupted{};
}

}  // namespace gable::perf
