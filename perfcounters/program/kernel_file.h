// The file that a process writes about its GPU kernels (kernels.PID.N.txt in the session folder), written by
// libgable_cupti.so inside the program and read after its end. It is replaced as a whole, so a process that is killed
// leaves its last state. Text, a record a line, fields separated by tabs:
//
//   gable kernels 1 <pid>
//   kernel  <gpu>  <name of the gpu>  <name>  <region>  <x,y,z of the grid>  <x,y,z of the block>  <key>=<value>…
//   failure <code of GpuProfilerError>  <what failed>
//   note    <text>
//   stopped
//   end     running | done
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perfcounters/program/session.h"

namespace gable::perf {

/// A failed call: explain_gpu_failure() has the reason and the cure for it.
struct KernelFailure {
  int code = 0;
  std::string what;
};

struct KernelFile {
  int pid = 0;
  std::vector<KernelRecord> kernels{};
  std::vector<KernelFailure> failures{};
  std::vector<std::string> notes{};
  bool stopped = false;   ///< recording became too costly, so that later launches are missing
  bool done = false;      ///< the process ended by exit() or by returning from main()
  bool complete = false;  ///< read up to the line `end`
};

std::string to_text(const KernelFile& file);

/// Takes any text: lines that it can't read become notes, a text that is no kernel file a note alone. `name` is for
/// the notes. Control characters in names become '?'.
KernelFile parse_kernel_file(std::string_view text, const std::string& name);

}  // namespace gable::perf
