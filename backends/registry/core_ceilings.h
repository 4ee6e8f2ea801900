// Samples for core_multiply_adds() (gable/ceilings.h).
//
// On a virtual machine, other guests halve the rate of a core for milliseconds to seconds. A probe that meets such a
// moment predicts the host too slow for the rest of the process. So `auto` takes short samples while it opens devices,
// which lasts 5 ms, with a GPU some 100 ms, and their median counts.
#pragma once

namespace gable {

/// Takes a sample of 0.1 ms, unless the rate is known or the last sample was taken less than a millisecond ago.
void sample_core_multiply_adds();

}  // namespace gable
