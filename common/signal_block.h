// Signals that must not arrive during a piece of work.
#pragma once

#include <signal.h>

#include <span>

namespace gable {

/// Blocks these signals for the calling thread until restore() or its end. Those that come meanwhile arrive then.
class SignalBlock {
 public:
  explicit SignalBlock(std::span<const int> signals) {
    sigset_t held;
    sigemptyset(&held);
    for (const int number : signals) sigaddset(&held, number);
    pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  ~SignalBlock() { restore(); }
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;
  void restore() const { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace gable
