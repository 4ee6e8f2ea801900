// What each backend owes the suite: which ops it must run, for which reasons it may refuse the others, and how many
// cases each of its kernels must run. A backend that starts to refuse something fails here until this page says so.
#pragma once

#include <gable/gable.h>

#include <string>
#include <vector>

namespace gable::conformance {

Math math_of(const Op& op);

/// A refusal that is accepted: an answer of `kernel` (any, if empty) whose reason contains all `parts`.
struct Excuse {
  std::string kernel{};
  std::vector<std::string> parts{};
};

/// The accepted refusals of an op by a device that was opened without ?kernel=. Empty: it must run the op.
std::vector<Excuse> excuses(const DeviceInfo& device, const Op& op);

/// Whether the answers of a device that supports an op with no kernel are an accepted refusal.
bool is_excused(const DeviceInfo& device, const Op& op, const std::vector<KernelSupport>& answers);

/// How many cases of the full suite a kernel must run when it is opened with ?kernel=; -1 for a kernel that this page
/// does not know.
int least_cases(const std::string& backend, const std::string& kernel);

}  // namespace gable::conformance
