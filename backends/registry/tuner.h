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
  std::function<std::unique_ptr<PlanImpl>()> make{};                     ///< several plans, on the host
  std::function<std::unique_ptr<PlanImpl>(const PlanSearch&)> search{};  ///< set: instead of make()
  std::optional<double> predicted{};                                     ///< seconds of a run
  std::optional<double> seconds{};  ///< the result; empty if the time was over or the contestant failed
  std::string program{};            ///< PlanDetails::program of the plan that was measured
  std::string failure{};            ///< what making or running it threw
};

struct Contest {
  Op op{};
  std::shared_ptr<const DeviceImpl>
      owner{};                            ///< allocates the tensors, and copies to them if they are not in host memory
  double seconds = 1;                     ///< for making tensors, searching for plans, at most half, and running
  std::function<double()> clock{};        ///< seconds; empty: the host's steady clock
  std::function<long()> interruptions{};  ///< how often another program took a core; empty: by the kernel's count
  std::function<void()> sweep{};          ///< empties the cores' own caches; empty: sweep_private_caches()
};

/// Fills in `seconds` of the contestants, which come most promising first. Contestants that are far slower than the
/// fastest are dropped early. A contestant whose two runs are predicted to exceed the remaining time is not run. Throws
/// Error(out_of_memory) if the tensors do not fit into memory, and Error(invalid_argument), before anything runs, if
/// filling the tensors at 1 GB/s or two predicted runs of the first contestant exceed the limit.
void measure(const Contest& contest, std::vector<Contestant>& contestants);

}  // namespace gable
