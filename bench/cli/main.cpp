// The gable command.
#include "bench/cli/command.h"

int main(int argc, char** argv) { return gable::bench::command(argc, argv); }
