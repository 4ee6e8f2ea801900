// The command as a program that is started and read: what its tests share.
#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "bench/record/schema.h"
#include "tests/tools/folder.h"

namespace gable::commands {

namespace fs = std::filesystem;
using bench::check_study;
using bench::Violation;
using nlohmann::json;

struct Folder : test::Folder {
  Folder() : test::Folder("command_test") {}
};

using test::read_text;

struct Result {
  int code;
  std::string out;
  std::string err;
};

/// Runs `ENVIRONMENT gable ARGUMENTS` with the test plugins in reach.
inline Result run_command(const std::string& arguments, const std::string& environment = "") {
  const std::string stem =
      (fs::temp_directory_path() / ("gable_command_output_" + std::to_string(::getpid()))).string();
  const std::string line = "GABLE_BACKEND_PATH='" GABLE_TEST_PLUGINS "' " + environment + " '" GABLE_COMMAND "' " +
                           arguments + " >'" + stem + ".out' 2>'" + stem + ".err'";
  const int status = std::system(line.c_str());
  Result result{WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_text(stem + ".out"), read_text(stem + ".err")};
  fs::remove(stem + ".out");
  fs::remove(stem + ".err");
  return result;
}

inline bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

inline void check_study_of(const json& study) {
  for (const Violation& v : check_study(study)) FAIL_CHECK(v.pointer << ": " << v.value);
}

inline constexpr const char* kSmall = "--problem 'mb1ic3ih8oc4kh3n\"small\"'";

}  // namespace gable::commands
