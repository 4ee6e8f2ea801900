// libFuzzer's entry for one target, GABLE_FUZZ_TARGET.
#include <cstddef>
#include <cstdint>

#include "fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gable::fuzz::GABLE_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
