// The standard input of a program that runs several times. A file is read again from where the first run began; what
// came from a pipe or a terminal is gone.
#pragma once

#include <string>

namespace gable::perf {

/// Remembers where this process's standard input stands, for the runs after the one that begins now.
void note_input();

/// A new descriptor of the file from the place that was noted, closed by exec(); of /dev/null if the input is no file,
/// or nothing was noted. Throws std::runtime_error if it can't be opened.
int open_input_again();

/// Why further runs have no input though the first one was given some; empty if that is not so.
std::string lost_input();

}  // namespace gable::perf
