// A plugin of this version whose headers were others: only the version and the number may be touched.
#include "tests/backends/plugins/test_backend.h"

extern "C" GABLE_API const gable::PluginEntry* gable_plugin() {
  static constexpr gable::PluginEntry entry{GABLE_VERSION_STRING, GABLE_PLUGIN_ABI + 1, []() -> gable::Backend* {
                                              throw gable::Error(gable::ErrorCode::device_failure,
                                                                 "make() of another ABI was called");
                                            }};
  return &entry;
}
