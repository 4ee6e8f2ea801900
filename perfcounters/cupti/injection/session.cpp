// See session.h.
#include "perfcounters/cupti/injection/session.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace gable::cupti {
namespace {

constexpr std::size_t kMaxNotes = 50;
constexpr std::chrono::milliseconds kMinPause{80};
constexpr int kPauses = 30;  // writing takes at most 1 part in so many of the time

/// secure_getenv: a privileged program must not write where its caller chose.
std::string variable(const char* name) {
  const char* value = secure_getenv(name);
  return value != nullptr ? value : "";
}

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> parts;
  while (!list.empty()) {
    const std::string_view part = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), part.size() + 1));
    if (!part.empty()) parts.emplace_back(part);
  }
  return parts;
}

/// Creates the first of PATH.0.txt, PATH.1.txt … that does not exist: a process that replaced itself (exec) has the
/// same number. Returns it without ".txt"; empty if none can be created.
std::string new_file(const std::string& path) {
  for (int i = 0; i < 1000; ++i) {
    const std::string name = path + "." + std::to_string(i);
    const int file = open((name + ".txt").c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (file >= 0) {
      close(file);
      return name;
    }
    if (errno != EEXIST) return "";
  }
  return "";
}

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

/// Replaces the file in one step, so that it is whole whenever the process is killed.
void replace(const std::string& path, std::string_view text) {
  const std::string part = path + ".part";
  const int file = open(part.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
  if (file < 0) return;
  const bool whole = write_all(file, text);
  close(file);
  if (!whole || rename(part.c_str(), (path + ".txt").c_str()) != 0) unlink(part.c_str());
}

}  // namespace

SessionRequest session_request() {
  SessionRequest request;
  request.folder = variable("GABLE_SESSION_FOLDER");
  if (request.folder.empty()) return request;
  const std::string mode = variable("GABLE_SESSION_MODE");
  if (mode == "time") request.mode = SessionRequest::Mode::time;
  if (mode == "kernels") request.mode = SessionRequest::Mode::kernels;
  if (mode == "alone") request.mode = SessionRequest::Mode::alone;
  if (mode == "counters") request.mode = SessionRequest::Mode::counters;
  request.metrics = split(variable("GABLE_SESSION_METRICS"));
  const std::string calls = variable("GABLE_SESSION_CALLS");
  std::from_chars(calls.data(), calls.data() + calls.size(), request.calls);
  request.calls = std::max(1, request.calls);
  return request;
}

SessionFile::SessionFile(std::string folder) : folder_(std::move(folder)), pid_(getpid()) {
  file_.pid = pid_;
  path_ = new_file(folder_ + "/kernels." + std::to_string(pid_));
}

void SessionFile::note(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (file_.notes.size() >= kMaxNotes) return;
  if (std::find(file_.notes.begin(), file_.notes.end(), text) == file_.notes.end()) file_.notes.push_back(text);
}

void SessionFile::fail(int code, const std::string& what) {
  const std::lock_guard lock(mutex_);
  for (const perf::KernelFailure& failure : file_.failures) {
    if (failure.code == code) return;
  }
  file_.failures.push_back({code, what});
}

void SessionFile::stop() {
  const std::lock_guard lock(mutex_);
  file_.stopped = true;
}

void SessionFile::write(std::vector<perf::KernelRecord> kernels, bool done) {
  const std::lock_guard lock(mutex_);
  if (path_.empty() || getpid() != pid_) return;
  const auto start = std::chrono::steady_clock::now();
  file_.kernels = std::move(kernels);
  file_.done = done;
  replace(path_, perf::to_text(file_));
  const auto end = std::chrono::steady_clock::now();
  next_ = end + std::max<std::chrono::steady_clock::duration>(kMinPause, (end - start) * kPauses);
}

bool SessionFile::due() const {
  const std::lock_guard lock(mutex_);
  return std::chrono::steady_clock::now() >= next_;
}

}  // namespace gable::cupti
