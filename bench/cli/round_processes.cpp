// See round_processes.h.
#include "bench/cli/round_processes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gable/backend.h>
#include <gable/error.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "bench/measure/rounds.h"
#include "bench/record/study_file.h"
#include "bench/record/study_json.h"
#include "perfcounters/interrupt.h"
#include "perfcounters/sources/child_process.h"

namespace gable::bench {
namespace {

constexpr double kMinLimit = 600;    // seconds of a round
constexpr double kLimitFactor = 10;  // against the first one

/// Those of the rows. An `auto` is asked again, and so are the devices beside it: it may have chosen a kernel that its
/// device does not take by itself, or a GPU with copies from the host.
std::vector<std::string> devices_of(const std::vector<std::string>& asked, const std::vector<Row>& rows, bool gpus) {
  const auto is_auto = [](const std::string& uri) { return parse_device_uri(uri).backend == "auto"; };
  if (std::any_of(asked.begin(), asked.end(), is_auto)) return asked;
  std::vector<std::string> devices;
  for (const Row& row : rows) {
    if ((gpus || !row.on_gpu()) && std::find(devices.begin(), devices.end(), row.place.device) == devices.end())
      devices.push_back(row.place.device);
  }
  return devices;
}

/// The list's text in memory, under a name that children of this process can open as often as they like: the file may
/// have been a pipe, which gives its text once, and nobody changes this one.
class InheritedText {
 public:
  explicit InheritedText(const std::string& text) : file_(::memfd_create("gable-list", 0)) {
    if (file_ < 0) throw Error(ErrorCode::device_failure, fmt::format("memfd_create: {}", std::strerror(errno)));
    std::size_t written = 0;
    while (written < text.size()) {
      const ssize_t part = ::write(file_, text.data() + written, text.size() - written);
      if (part <= 0) {
        const int error = errno;
        ::close(file_);
        throw Error(ErrorCode::device_failure, fmt::format("a list in memory: {}", std::strerror(error)));
      }
      written += static_cast<std::size_t>(part);
    }
  }
  InheritedText(const InheritedText&) = delete;
  InheritedText& operator=(const InheritedText&) = delete;
  ~InheritedText() { ::close(file_); }
  std::string name() const { return fmt::format("/proc/self/fd/{}", file_); }

 private:
  int file_;
};

/// The rows of one round. Throws Error where the process fails.
std::vector<Row> rows_of_round(const std::vector<std::string>& words, double limit) {
  const perf::ChildResult child = perf::run_child(words, limit);
  if (child.interrupted) return {};
  if (!child.succeeded()) throw Error(ErrorCode::device_failure, child.failure());
  return study_from_json(parse_document(child.output, "of a round")).study.rows;
}

}  // namespace

void measure_rounds(const StudyOptions& options, const MeasureOptions& measuring, std::vector<Row>& rows,
                    Console& console) {
  // A process that uses a GPU takes half a second to start, and with a vendor's library seconds: only where asked for.
  const bool gpus = options.effort.rounds > 0;
  const std::vector<std::size_t> cases = cases_of_rounds(select(options.selection, false).cases, rows, gpus, measuring);
  if (cases.empty() || measuring.rounds < 2) return;
  std::vector<std::string> words{perf::own_executable()};
  words.insert(words.end(), options.line.words.begin(), options.line.words.end());
  words.insert(words.end(), {"--round-cases", fmt::format("{}", fmt::join(cases, ",")), "--round-devices",
                             fmt::format("{}", fmt::join(devices_of(options.devices, rows, gpus), ","))});
  std::optional<InheritedText> list;
  if (options.selection.text) {
    list.emplace(*options.selection.text);
    words.insert(words.end(), {"--round-list", list->name()});
  }
  double limit = kMinLimit;
  for (int round = 2; round <= measuring.rounds && perf::interrupting_signal() == 0; ++round) {
    console.progress(static_cast<std::size_t>(round) - 1, static_cast<std::size_t>(measuring.rounds), "rounds");
    try {
      const double start = steady_seconds();
      add_round(rows, rows_of_round(words, limit), measuring.rounds);
      limit = std::max(kMinLimit, kLimitFactor * (steady_seconds() - start));
    } catch (const std::exception& error) {
      console.print(fmt::format("round {} of {} failed, the rows have those before it: {}", round, measuring.rounds,
                                error.what()));
      break;
    }
  }
  console.finish_progress();
}

}  // namespace gable::bench
