// See kernels.h.
#include "perfcounters/program/kernels.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "perfcounters/program/kernel_file.h"
#include "perfcounters/sources/gpu_profiler.h"

namespace gable::perf {
namespace {

/// The files in the order of their names, so that two readings agree.
std::vector<std::filesystem::path> kernel_files(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("kernels.") && name.ends_with(".txt")) files.push_back(entry->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void add_note(std::vector<std::string>& notes, std::string note) {
  if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(std::move(note));
}

std::string explained(const KernelFailure& failure) {
  const GpuFailure failed = explain_gpu_failure(failure.code, failure.what);
  return "GPU kernels: " + failed.reason + (failed.cure.empty() ? "" : ": " + failed.cure);
}

void add_file(KernelFile file, SessionRecords& all) {
  if (file.complete && !file.done) {
    add_note(all.notes, "process " + std::to_string(file.pid) +
                            " did not end by itself: kernels of its last moments may be missing");
  }
  if (file.pid > 0) {
    ProcessRecord process;
    process.pid = file.pid;
    process.ended_well = file.done;
    all.processes.push_back(std::move(process));
  }
  all.lacks_kernels = all.lacks_kernels || file.stopped;
  for (const KernelFailure& failure : file.failures) add_note(all.notes, explained(failure));
  for (std::string& note : file.notes) add_note(all.notes, std::move(note));
  for (KernelRecord& record : file.kernels) (record.graph != 0 ? all.graphs : all.kernels).push_back(std::move(record));
}

}  // namespace

SessionRecords read_kernels(const std::string& folder) {
  SessionRecords all;
  for (const std::filesystem::path& path : kernel_files(folder)) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    if (!in || !(text << in.rdbuf())) {
      add_note(all.notes, path.filename().string() + ": can't be read");
      continue;
    }
    add_file(parse_kernel_file(text.str(), path.filename().string()), all);
  }
  return all;
}

}  // namespace gable::perf
