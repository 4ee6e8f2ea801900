// A plugin of an older gable. Its contract may be another one, so nothing but the version may be touched.
#include "tests/backends/plugins/test_backend.h"

extern "C" GABLE_API const gable::PluginEntry* gable_plugin() {
  static constexpr gable::PluginEntry entry{"0.0.1", GABLE_PLUGIN_ABI, []() -> gable::Backend* {
                                              throw gable::Error(gable::ErrorCode::device_failure,
                                                                 "make() of another version was called");
                                            }};
  return &entry;
}
