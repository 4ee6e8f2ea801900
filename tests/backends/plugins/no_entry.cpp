// A library that loads, but has nothing to do with gable.
extern "C" __attribute__((visibility("default"))) int not_a_gable_plugin() { return 1; }
