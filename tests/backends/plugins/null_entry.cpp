// A plugin whose entry answers with nothing.
#include <gable/backend.h>

extern "C" GABLE_API const gable::PluginEntry* gable_plugin() { return nullptr; }
