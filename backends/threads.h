// How many threads a device on a CPU runs. OpenMP's runtime ends the process where a thread can't be made, so this is
// tried before.
#pragma once

#include <gable/backend.h>

namespace gable {

/// The option `threads`, or OpenMP's number (OMP_NUM_THREADS, or the hardware threads) without it. Throws
/// Error(invalid_argument) for more than 1024, Error(unavailable) where the system refuses so many.
GABLE_API int threads_option(const DeviceUri& uri);

}  // namespace gable
