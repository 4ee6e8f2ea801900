/* A program that is not gable's, for measure_command_test: five passes of a triad over 65536 doubles, in regions. */
#include <gable/region.h>

enum { kElements = 65536, kPasses = 5 };
/* Not static: the compiler must not know that they are zero. */
double a[kElements], b[kElements], c[kElements];

int main(void) {
  gable_region_begin("outer");
  for (int pass = 0; pass < kPasses; ++pass) {
    gable_region_begin("triad");
    for (int i = 0; i < kElements; ++i) a[i] = b[i] + 3.0 * c[i];
    gable_region_end();
  }
  gable_region_end();
  return a[7] == 0 ? 0 : 1;
}
