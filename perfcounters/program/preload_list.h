// The value of LD_PRELOAD that puts a library of gable's into a program.
#pragma once

#include <string>

namespace gable::perf {

/// `library`, and then what this process itself preloads. The loader splits the list at blanks and colons and knows no
/// quotes, so a library with one of them in its path is loaded through a link of its name in `folder`. Empty if the
/// folder's path has one too, or if the link can't be made there.
std::string preload_list(const std::string& library, const std::string& folder);

}  // namespace gable::perf
