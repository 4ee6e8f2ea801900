// The command line of `gable`: subcommands, options, exit codes.
#pragma once

namespace gable::bench {

/// Never throws; errors go to standard error. Exit codes: 0 done, 1 a check failed, 2 bad usage or input, 3 the device
/// can't do it, 4 device or system failure.
int command(int argc, const char* const* argv);

/// For main(): where memory runs out inside something that must not throw (nlohmann's JSON takes memory to free
/// itself), the process says so and exits with 4, as elsewhere, instead of ending with SIGABRT.
void exit_where_memory_runs_out();

}  // namespace gable::bench
