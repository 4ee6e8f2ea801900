// Which device and kernel run an op, and why: what `auto` decides by, as data.
#pragma once

#include <gable/export.h>
#include <gable/ops.h>
#include <gable/tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gable {

class Device;

/// One kernel of one device, as a way to run an op. Times are of one run, in seconds; weights are packed before.
struct Candidate {
  std::string device{};               ///< its URI: "cpu", "cuda:0"
  std::string kernel{};               ///< empty if the device was not asked, since a faster one takes the op
  std::string refusal{};              ///< why it can't run the op; empty: it can
  std::optional<double> predicted{};  ///< by the cost model, copies included
  std::optional<double> measured{};   ///< when the op was tuned on this machine, copies included
  double copies = 0;      ///< of `predicted`: input, bias and output between the tensors' memory and the device's
  std::string program{};  ///< which of the kernel's programs was measured, where it has many (engines of cuDNN)

  bool supported() const { return refusal.empty(); }  ///< it can run the op
};

/// How `auto` came to its answer.
enum class ChoiceSource {
  model,    ///< predicted times
  measured  ///< the op was tuned before, by this process or by another: the times are in the cache
};
/// The candidates for an op, as choose() and tune() give them.
struct Ranking {
  std::vector<Candidate> candidates{};  ///< the first supported one runs the op; refused ones come last
  ChoiceSource source = ChoiceSource::model;

  /// The candidate that runs the op; null if none can.
  const Candidate* first() const {
    return !candidates.empty() && candidates.front().supported() ? &candidates.front() : nullptr;
  }
};

/// The candidates of `device` for `op`, fastest first: for `auto` all kernels of all its devices, for any other device
/// its own kernels. plan() of `auto` takes the first one. A library that answers slowly, such as cuDNN, is asked only
/// by plan(); if it refuses, plan() takes the next candidate. Throws Error(invalid_argument) for an op that validate()
/// refuses.
GABLE_API Ranking choose(const Device& device, const Op& op);
/// The same for an `auto` whose tensors lie in `memory`. Times of devices with another memory include the copies.
GABLE_API Ranking choose(const Op& op, Memory memory = {});

/// Runs the candidates in turn on random tensors until their order is clear, for at most about `seconds`, and remembers
/// their times, also in the cache on disk. `device` must be an `auto`. Throws Error(invalid_argument) for another
/// device, or if two runs are predicted to take longer than `seconds`, and Error(unsupported) if no candidate can run
/// the op.
GABLE_API Ranking tune(const Device& device, const Op& op, double seconds = 1);

/// Sets the callback for warnings about harmless problems, such as a damaged cache. Without a callback, warnings are
/// dropped. The callback may be called from any thread, by one thread at a time, and must not call gable. Exceptions
/// that it throws are dropped.
GABLE_API void set_log(std::function<void(std::string_view message)> callback);

}  // namespace gable
