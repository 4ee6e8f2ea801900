// The gable command.
#include <fcntl.h>
#include <signal.h>

#include <initializer_list>

#include "bench/cli/command.h"
#include "perfcounters/interrupt.h"
#include "perfcounters/program/launch.h"

namespace {

/// Replaces closed standard streams. Otherwise a file that is opened later would get such a number, and printed text
/// would go into the file. The replacement can't be read or written either.
void fill_standard_streams() {
  for (const int stream : {0, 1, 2}) {
    if (::fcntl(stream, F_GETFD) == -1) ::open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY);
  }
}

/// A limit of file sizes (ulimit -f) and a reader that has ended must be errors of the write: if they ended the
/// process, its record would be lost. The signals have handlers and are not ignored, since programs that gable runs
/// would inherit that.
void survive_failing_writes() {
  for (const int signal : {SIGXFSZ, SIGPIPE}) ::signal(signal, [](int) {});
}

/// After an interrupt that was handled: its second arrival (interrupt.h) would otherwise end the process while it
/// exits.
void ignore_late_interrupts() {
  for (const int signal : {SIGINT, SIGTERM}) ::signal(signal, SIG_IGN);
}

}  // namespace

int main(int argc, char** argv) {
  fill_standard_streams();
  survive_failing_writes();
  gable::perf::keep_children();
  gable::bench::exit_where_memory_runs_out();
  const int code = gable::bench::command(argc, argv);
  if (gable::perf::interrupting_signal() != 0) ignore_late_interrupts();
  return code;
}
