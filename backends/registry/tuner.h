// Measures ways to run an op, in turn, on random tensors.
#pragma once

#include <gable/backend.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gable {

/// One way to run the op. Its device's plans take tensors of the memory that `Contest::memory` names.
struct Contestant {
  std::shared_ptr<const DeviceImpl> device{};
  std::function<std::unique_ptr<PlanImpl>()> make{};
  std::optional<double> predicted{};  ///< seconds of a run
  std::optional<double> seconds{};    ///< the result; empty: not measured, since the time was over or it failed
  std::string failure{};              ///< what making or running it threw
};

struct Contest {
  Op op{};
  std::shared_ptr<const DeviceImpl>
      owner{};                      ///< allocates the tensors, and copies to them where they are not the host's
  double seconds = 1;               ///< of making tensors and running; the making of plans comes on top
  std::function<double()> clock{};  ///< seconds; empty: the host's steady clock
};

/// Fills in `seconds` of the contestants, the most promising first. Those that are far slower than the fastest are
/// dropped early, and those whose two runs are predicted to take longer than what is left are not begun. Throws
/// Error(out_of_memory) where the tensors find no memory, Error(invalid_argument) where tensors at 1 GB/s or two runs
/// of the first contestant, by prediction, take longer than what is left of the limit; nothing has run then.
void measure(const Contest& contest, std::vector<Contestant>& contestants);

}  // namespace gable
