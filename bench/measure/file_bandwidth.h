// Bandwidth between a file and the host's memory, with read() and write() of 1 MiB each, through the page cache or past
// it.
#pragma once

#include "bench/measure/bandwidth.h"

namespace gable::bench {

/// The file lies in the folder for temporary files and is already unlinked. Throws Error(unsupported) if that folder
/// has too little space or its file system can't bypass the page cache.
Mover file_mover(const BandwidthCase& one);

}  // namespace gable::bench
