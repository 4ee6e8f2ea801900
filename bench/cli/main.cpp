// The gable command.
#include <fcntl.h>

#include <initializer_list>

#include "bench/cli/command.h"

namespace {

/// Closed standard streams: a file opened later would get their numbers, and with them what is printed. These can't be
/// read or written either.
void fill_standard_streams() {
  for (const int stream : {0, 1, 2}) {
    if (::fcntl(stream, F_GETFD) == -1) ::open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace

int main(int argc, char** argv) {
  fill_standard_streams();
  gable::bench::exit_where_memory_runs_out();
  return gable::bench::command(argc, argv);
}
