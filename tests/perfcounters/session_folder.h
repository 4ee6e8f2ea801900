// A session folder for a test, and a program that is run in it.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "perfcounters/program/launch.h"
#include "perfcounters/program/session.h"

namespace gable::perf {

class SessionFolder {
 public:
  SessionFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "gable_session_XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~SessionFolder() { std::filesystem::remove_all(path_); }
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string text(const std::string& name) const {
    std::ifstream stream(path_ / name);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  /// Runs it with its output in the file "output".
  LaunchEnd run(const std::vector<std::string>& argv, SessionMode mode = SessionMode::time,
                const std::vector<std::pair<std::string, std::string>>& more = {}) const {
    auto environment = session_environment(path(), mode);
    environment.insert(environment.end(), more.begin(), more.end());
    return launch({.argv = argv, .environment = environment, .own_streams = false, .output_file = file("output")});
  }

 private:
  std::filesystem::path path_;
};

inline bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline bool any_says(const std::vector<std::string>& texts, const std::string& part) {
  for (const std::string& text : texts)
    if (says(text, part)) return true;
  return false;
}

}  // namespace gable::perf
