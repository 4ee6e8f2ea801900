// What the plugin `orphan` needs, built into a folder that no loader searches.
extern "C" __attribute__((visibility("default"))) int gable_test_dependency() { return 1; }
