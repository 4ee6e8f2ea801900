// See session.h: the files regions.* (perfcounters/listen/region_file.h), put together with the kernels'. Whoever wrote
// them may have been killed at any point, or may be no friend: every number is checked before it is used.
#include "perfcounters/program/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>

#include "perfcounters/listen/names.h"
#include "perfcounters/listen/region_file.h"
#include "perfcounters/program/kernels.h"
#include "perfcounters/timing.h"

namespace gable::perf {
namespace {

namespace fs = std::filesystem;
using listen::FileHeader;
using listen::Slot;

/// regions.PID.N
struct RegionFile {
  fs::path path;
  long pid = 0;
  long number = 0;
};

std::optional<RegionFile> region_file(const fs::path& path) {
  RegionFile file{.path = path};
  char end = 0;
  if (std::sscanf(path.filename().c_str(), "regions.%ld.%ld%c", &file.pid, &file.number, &end) != 2)
    return std::nullopt;
  return file;
}

std::vector<RegionFile> region_files(const std::string& folder) {
  std::vector<RegionFile> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (const auto file = region_file(entry.path()); file && entry.is_regular_file(error)) files.push_back(*file);
  std::sort(files.begin(), files.end(), [](const RegionFile& a, const RegionFile& b) {
    return a.pid != b.pid ? a.pid < b.pid : a.number < b.number;
  });
  return files;
}

/// A process's arguments from a file: up to their end mark, UTF-8 without control characters.
std::string command_of(const FileHeader& header) {
  std::string text(header.command, strnlen(header.command, sizeof(header.command)));
  std::string clean;
  for (const char* at = text.c_str(); *at != '\0';) {
    const std::size_t bytes = listen::utf8_bytes(at);
    if (bytes > 1)
      clean.append(at, bytes);
    else
      clean += bytes == 0 ? '?' : static_cast<unsigned char>(*at) < 0x20 || *at == 0x7f ? ' ' : *at;
    at += std::max<std::size_t>(bytes, 1);
  }
  return clean;
}

double seconds_of(const std::atomic<std::uint64_t>& nanoseconds) {
  return 1e-9 * static_cast<double>(nanoseconds.load(std::memory_order_relaxed));
}

/// Counts that can't be true (a file of somebody else's) become the greatest that can.
std::int64_t count_of(const std::atomic<std::uint64_t>& count) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
  return static_cast<std::int64_t>(std::min(count.load(std::memory_order_relaxed), kMost));
}

CallTimes times_of(const Slot& slot) {
  CallTimes times{.calls = count_of(slot.calls)};
  if (times.calls == 0) return times;
  times.seconds = seconds_of(slot.nanoseconds);
  times.fastest = seconds_of(slot.fastest);
  times.slowest = seconds_of(slot.slowest);
  std::vector<double> samples;
  const auto taken = std::min<std::int64_t>(times.calls, listen::kSamples);
  for (std::int64_t i = 0; i < taken; ++i) {
    const float sample = slot.samples[i].load(std::memory_order_relaxed);
    // 0: the process was killed between counting the call and storing its time.
    if (std::isfinite(sample) && sample > 0) samples.push_back(1e-9 * static_cast<double>(sample));
  }
  std::sort(samples.begin(), samples.end());
  if (samples.empty()) return times;
  times.median = quantile(samples, 0.5);
  times.q1 = quantile(samples, 0.25);
  times.q3 = quantile(samples, 0.75);
  return times;
}

std::vector<RawGroup> counts_of(const Slot& slot, const FileHeader& header) {
  std::vector<RawGroup> counts;
  for (std::uint32_t i = 0; i < header.events; ++i) {
    counts.push_back({slot.enabled[i].load(), slot.running[i].load(), {}});
    if (header.event[i].error == 0) counts.back().values.push_back(slot.counts[i].load());
  }
  return counts;
}

/// The clock of CPU time takes 0.3 us, which shorter calls would be charged with.
double busy_threads_of(const Slot& slot) {
  constexpr double kShortest = 20e-6;
  const auto calls = static_cast<double>(std::min<std::int64_t>(count_of(slot.calls), listen::kTimedCpuCalls));
  const double wall = seconds_of(slot.cpu_of_nanoseconds);
  return wall >= calls * kShortest && wall > 0 ? seconds_of(slot.cpu_nanoseconds) / wall : 0;
}

/// Reads one process's file into the records.
class RegionReader {
 public:
  RegionReader(const RegionFile& file, SessionRecords& into) : name_(file.path.filename().string()), into_(into) {
    stream_.open(file.path, std::ios::binary);
  }

  /// False: it is no such file, and the notes say why.
  bool read() {
    if (!read_bytes(header_.get(), sizeof(FileHeader))) return refuse("is cut off before its first region");
    // Written last: the disk was full before the file was begun, or the process was killed meanwhile.
    if (std::all_of(std::begin(header_->magic), std::end(header_->magic), [](char c) { return c == 0; }))
      return refuse(
          "has no regions, since the process could not write it: the folder in TMPDIR is full, or a signal "
          "ended the process");
    if (std::memcmp(header_->magic, listen::kMagic, sizeof(listen::kMagic)) != 0 ||
        header_->header_bytes != sizeof(FileHeader) || header_->slot_bytes != sizeof(Slot))
      return refuse("was not written by the libgable_listen.so of this gable");
    if (header_->slots > listen::kMaxRegions || header_->used > header_->slots || header_->events > listen::kMaxEvents)
      return refuse("is damaged: its header contradicts itself");
    process_.pid = header_->pid;
    process_.parent = header_->parent;
    process_.command = command_of(*header_);
    process_.ended_well = header_->ended_well != 0;
    process_.seconds = seconds_of(header_->nanoseconds);
    process_.cpu_seconds = seconds_of(header_->cpu_nanoseconds);
    into_.processes.push_back(process_);
    read_slots();
    note_events();
    note_losses();
    return true;
  }

 private:
  bool read_bytes(void* into, std::size_t bytes) {
    return static_cast<bool>(stream_.read(static_cast<char*>(into), static_cast<std::streamsize>(bytes)));
  }

  bool refuse(const std::string& why) {
    into_.notes.push_back(fmt::format("{} {}; it is left out", name_, why));
    return false;
  }

  void note(const std::string& text) {
    into_.notes.push_back(fmt::format("process {} ({}): {}", process_.pid, process_.command, text));
  }

  void read_slots() {
    const std::uint32_t used = header_->used;
    for (std::uint32_t i = 0; i < used; ++i) {
      if (!read_bytes(slot_.get(), sizeof(Slot))) {
        note(fmt::format("{} is cut off: {} of its {} regions are lost", name_, used - i, used));
        return;
      }
      add_slot(i);
    }
  }

  /// What the calls of a region declare in all; 0 if that can't be true.
  double declared(const std::atomic<double>& sum, const char* what, const std::string& path) {
    constexpr double kLeast = 1e-6, kMost = 1e24;
    const double value = sum.load(std::memory_order_relaxed);
    if (value == 0 || (value >= kLeast && value <= kMost)) return value;
    // What a call declares below 0 has made the sum a NaN.
    const std::string amount = std::isnan(value) ? "fewer than 0 (or nan)" : fmt::format("{:.3g}", value);
    note(fmt::format("region '{}' declares {} {} in all, which no program does: not used", path, amount, what));
    return 0;
  }

  void add_slot(std::uint32_t index) {
    char name[listen::kMaxNameBytes + 1];
    slot_->name[listen::kMaxNameBytes] = '\0';
    listen::copy_name(slot_->name, name, listen::kMaxNameBytes);
    std::string path = name;
    if (slot_->parent > index) {
      note(fmt::format("{} is damaged: region {} is inside a later one", name_, index));
      paths_.emplace_back();
      return;
    }
    if (slot_->parent > 0 && !paths_[slot_->parent - 1].empty()) path = paths_[slot_->parent - 1] + "/" + path;
    if (path.size() > listen::kMaxPathBytes) path.resize(listen::kMaxPathBytes);
    paths_.push_back(path);
    if (slot_->cut != 0)
      note(fmt::format("the name of region '{}' was longer than {} bytes and is cut", path, listen::kMaxNameBytes));
    const std::int64_t calls = count_of(slot_->calls), begun = count_of(slot_->begun);
    if (begun > calls)
      note(fmt::format("{} call{} of region '{}' did not end: not counted", begun - calls,
                       begun - calls == 1 ? "" : "s", path));
    if (calls == 0) return;
    RegionRecord region{.pid = process_.pid,
                        .path = path,
                        .origin = slot_->origin == listen::Origin::nvtx ? "nvtx" : "gable",
                        .threads = static_cast<int>(std::min<std::uint32_t>(slot_->threads, 1U << 30)),
                        .overlapped = slot_->overlapped != 0,
                        .times = times_of(*slot_)};
    region.busy_threads = busy_threads_of(*slot_);
    region.flop = declared(slot_->flop, "FLOP", path);
    region.bytes = declared(slot_->bytes, "bytes", path);
    region.marked_calls = count_of(slot_->marked);
    region.counts = counts_of(*slot_, *header_);
    into_.regions.push_back(std::move(region));
  }

  void note_events() {
    for (std::uint32_t i = 0; i < header_->events; ++i) {
      const listen::EventInfo& event = header_->event[i];
      if (event.error == 0) continue;
      note(fmt::format("its regions are not counted: event {}:{:#x}: {}", event.type, event.config,
                       std::strerror(event.error)));
      return;
    }
  }

  void note_losses() {
    const std::int64_t unbalanced = count_of(header_->unbalanced);
    if (unbalanced > 0)
      note(fmt::format("{} end{} of a region without a begin: ignored", unbalanced, unbalanced == 1 ? "" : "s"));
    const std::int64_t no_slot = count_of(header_->no_slot);
    if (no_slot > 0)
      note(
          fmt::format("{} begins of regions beyond the first {} different ones: their time is their "
                      "parent's",
                      no_slot, header_->slots));
    const std::int64_t too_deep = count_of(header_->too_deep);
    if (too_deep > 0)
      note(
          fmt::format("{} begins of regions that are nested too deeply (64 levels, paths of {} "
                      "bytes): their time is their parent's",
                      too_deep, listen::kMaxPathBytes));
    const std::uint32_t inherited = header_->inherited;
    if (inherited > 0)
      note(fmt::format("{} region{} open when it was forked: those calls are its parent's", inherited,
                       inherited == 1 ? " was" : "s were"));
  }

  std::string name_;
  SessionRecords& into_;
  std::ifstream stream_;
  std::unique_ptr<FileHeader> header_ = std::make_unique<FileHeader>();
  std::unique_ptr<Slot> slot_ = std::make_unique<Slot>();
  ProcessRecord process_;
  std::vector<std::string> paths_;
};

void add_kernels(SessionRecords kernels, SessionRecords& into) {
  for (ProcessRecord& process : kernels.processes) {
    const auto same = std::find_if(into.processes.begin(), into.processes.end(),
                                   [&](const ProcessRecord& other) { return other.pid == process.pid; });
    if (same == into.processes.end()) into.processes.push_back(std::move(process));
  }
  into.kernels = std::move(kernels.kernels);
  into.lacks_kernels = kernels.lacks_kernels;
  into.graphs = std::move(kernels.graphs);
  into.notes.insert(into.notes.end(), kernels.notes.begin(), kernels.notes.end());
}

}  // namespace

SessionRecords read_session(const std::string& folder) {
  SessionRecords records;
  const std::vector<RegionFile> files = region_files(folder);
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (!RegionReader(files[i], records).read()) continue;
    // The next file of the same process was begun after exec(), which is no bad end.
    if (i + 1 < files.size() && files[i + 1].pid == files[i].pid) records.processes.back().ended_well = true;
  }
  add_kernels(read_kernels(folder), records);
  return records;
}

}  // namespace gable::perf
