// A vendor's library may end the process if one of its files is missing or memory is short, or it may never return. It
// is first tried in a child process, where it can do no harm.
#pragma once

#include <functional>
#include <string>

namespace gable {

/// Calls `use` in a child process and waits for its end. Empty where `use` returned or threw; otherwise how the child
/// ended, with what it wrote to standard error last: "signal 6 (Aborted) ended it: ...", or that it had not ended after
/// `seconds_limit` and was killed. Also empty where no child can be made.
std::string why_it_ends_the_process(const std::function<void()>& use, int seconds_limit = 20);

}  // namespace gable
