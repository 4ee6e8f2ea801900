// libgable_listen.so: what an annotated program calls (gable/region.h), when the environment variable GABLE_LISTENER
// names this library. It runs inside programs that are not gable's: it depends on libc only, throws nothing, prints
// nothing, and keeps its data in a file that survives the process (region_file.h).
#include "perfcounters/listen/thread_stack.h"

#define GABLE_LISTEN_ENTRY extern "C" __attribute__((visibility("default")))

GABLE_LISTEN_ENTRY void gable_listen_begin(const char* name, double flop, double bytes) {
  gable::listen::begin_region({.name = name,
                               .origin = gable::listen::Origin::gable,
                               .kind = gable::listen::kRegionKind,
                               .flop = flop,
                               .bytes = bytes});
}

GABLE_LISTEN_ENTRY void gable_listen_end() { gable::listen::end_region(gable::listen::kRegionKind); }

/// Path of the calling thread's innermost region, "" outside of all; valid until the process ends. For
/// libgable_cupti.so.
GABLE_LISTEN_ENTRY const char* gable_current_region() { return gable::listen::current_path(); }

__attribute__((destructor)) static void at_exit() { gable::listen::table.end_well(); }
