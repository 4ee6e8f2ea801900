// How many threads a device on a CPU runs. OpenMP's runtime ends the process if a thread can't be made, so gable tries
// it first.
#pragma once

#include <gable/backend.h>

namespace gable {

/// The option `threads`, or without it OpenMP's default (OMP_NUM_THREADS or the number of hardware threads). Throws
/// Error(invalid_argument) for more than 1024, Error(unavailable) where the system refuses so many.
GABLE_API int threads_option(const DeviceUri& uri);

}  // namespace gable
