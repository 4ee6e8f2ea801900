// Between a file and the host's memory, by read() and write() of 1 MiB at a time: through the page cache, or past it.
#pragma once

#include "bench/measure/bandwidth.h"

namespace gable::bench {

/// The file lies in the folder for temporary files and has no name any more. Throws Error(unsupported) where that
/// folder is too full or its file system doesn't do it.
Mover file_mover(const BandwidthCase& one);

}  // namespace gable::bench
