// A process that does nothing; with GABLE_LINKED it also makes the loader bring in libgable. See overhead.cpp.
#ifdef GABLE_LINKED
#include <gable/dtype.h>

int main() { return gable::to_string(gable::DType::f32).empty() ? 1 : 0; }
#else
int main() { return 0; }
#endif
