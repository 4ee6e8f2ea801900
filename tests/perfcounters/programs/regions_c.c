/* Regions in C, in a second source file. */
#include "gable/region.h"

void from_c(void);

void from_c(void) {
  int i;
  gable_region_begin("c");
  for (i = 0; i < 4; ++i) {
    gable_region_begin_work("step", 2, 16);
    gable_region_end();
  }
  gable_region_end();
}
