// The region (gable/region.h, NVTX) that the calling thread is in, from libgable_listen.so if the process has loaded
// it.
#pragma once

namespace gable::cupti {

/// Loads the library that GABLE_LISTENER names, if it does.
void find_regions();

/// The path of the calling thread's region, which lives until the process ends; empty: none.
const char* current_region();

}  // namespace gable::cupti
