// The gable command.
#include "bench/cli/command.h"

int main(int argc, char** argv) {
  gable::bench::exit_where_memory_runs_out();
  return gable::bench::command(argc, argv);
}
