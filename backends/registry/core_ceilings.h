// Samples for core_multiply_adds() (gable/ceilings.h).
//
// On a virtual machine, other guests halve the rate of a core for milliseconds to seconds. A single probe that meets
// such a moment makes all predictions of the process too slow. Therefore `auto` takes a short sample before each device
// that it opens (opening all of them lasts 5 ms, with a GPU some 100 ms), and the rate is the median of these samples.
#pragma once

namespace gable {

/// Takes a sample of 0.1 ms, unless the rate is known or the last sample was taken less than a millisecond ago.
void sample_core_multiply_adds();

}  // namespace gable
