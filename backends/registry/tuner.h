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
  std::optional<double> seconds{};  ///< the result; empty: not measured, since the time was over or it failed
  std::string failure{};            ///< what making or running it threw
};

struct Contest {
  Op op{};
  std::shared_ptr<const DeviceImpl>
      owner{};         ///< allocates the tensors, and copies to them where they are not the host's
  double seconds = 1;  ///< of running; the making of plans comes on top, and three runs of each may exceed it
};

/// Fills in `seconds` of the contestants, the most promising first. Those that are far slower than the fastest are
/// dropped early. Throws Error(out_of_memory) where the tensors find no memory.
void measure(const Contest& contest, std::vector<Contestant>& contestants);

}  // namespace gable
