// A shared library with regions, opened by a program.
#include "gable/region.h"

extern "C" __attribute__((visibility("default"))) void work();

extern "C" void work() { GABLE_REGION("plugin"); }
