// Whether kernels have copies of their loops that only save time, as one without the tests of a tile at an edge. Under
// AddressSanitizer the loop with all tests does the work of both: it reads the same addresses, and these copies would
// be about half of what the compiler takes minutes for.
#pragma once

namespace gable::cpu {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kFastCopies = false;
#else
constexpr bool kFastCopies = true;
#endif

}  // namespace gable::cpu
