// See interrupt.h.
#include "perfcounters/interrupt.h"

namespace gable::perf {
namespace {

volatile sig_atomic_t came = 0;

void note(int signal) {
  if (came != 0) {
    ::signal(signal, SIG_DFL);
    raise(signal);
  }
  came = signal;
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
