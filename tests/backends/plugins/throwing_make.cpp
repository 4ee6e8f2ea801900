// A plugin that can't make its backend.
#include <gable/backend.h>

#include <stdexcept>

extern "C" GABLE_API const gable::PluginEntry* gable_plugin() {
  static constexpr gable::PluginEntry entry{GABLE_VERSION_STRING, GABLE_PLUGIN_ABI, []() -> gable::Backend* {
                                              throw std::runtime_error("the backend fell apart");
                                            }};
  return &entry;
}
