// The command line of `gable`: subcommands, options, exit codes.
#pragma once

namespace gable::bench {

/// Never throws; errors go to standard error. Exit codes: 0 done, 1 a check failed, 2 bad usage or input, 3 the device
/// can't do it, 4 device or system failure.
int command(int argc, const char* const* argv);

}  // namespace gable::bench
