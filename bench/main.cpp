// The gable command.
#include "bench/command.h"

int main(int argc, char** argv) { return gable::bench::command(argc, argv); }
