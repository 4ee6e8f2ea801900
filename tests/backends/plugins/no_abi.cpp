// A plugin of this version from before entries had an ABI number: the address of make() stands in its place.
#include "tests/backends/plugins/test_backend.h"

namespace {
struct EntryWithoutNumber {
  const char* version;
  gable::Backend* (*make)();
};
}  // namespace

extern "C" GABLE_API const void* gable_plugin() {
  static constexpr EntryWithoutNumber entry{GABLE_VERSION_STRING, []() -> gable::Backend* { return nullptr; }};
  return &entry;
}
