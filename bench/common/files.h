// Output files that are there whole or not at all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gable::bench {

/// Writes the parts one after the other into a temporary file beside `path` and renames it to `path`. Throws
/// Error(invalid_argument) with the system's reason; `path` is then what it was before.
void write_file(const std::string& path, const std::vector<std::string_view>& parts);

/// The checks of write_file() that need no data: the folder is there and writable, `path` is no device or folder. For
/// commands that work for minutes before they write.
void check_writable(const std::string& path);

}  // namespace gable::bench
