// Whether kernels have further copies of a loop that only save time, such as one without the tests of a tile at an
// edge. Not under AddressSanitizer: there the loop with all tests, which reads the same addresses, runs for all tiles.
// The copies take about half of the minutes that these files compile for.
#pragma once

namespace gable::cpu {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kFastCopies = false;
#else
constexpr bool kFastCopies = true;
#endif

}  // namespace gable::cpu
