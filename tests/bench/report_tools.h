// What the tests of reports share. GABLE_REPORT_DIR=DIR keeps the generated reports in that folder for inspection.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace samples {

inline constexpr const char* kHostile = "</script><img src=x onerror=alert(1)>\"'&";

// A folder for one test, removed at its end unless GABLE_REPORT_DIR is set.
class Folder {
 public:
  explicit Folder(const std::string& name) {
    const char* kept = std::getenv("GABLE_REPORT_DIR");
    keep_ = kept != nullptr;
    path_ = (keep_ ? std::filesystem::path(kept)
                   : std::filesystem::temp_directory_path() / ("gable_report_test." + std::to_string(getpid()))) /
            name;
  }
  ~Folder() {
    std::error_code ignored;
    if (!keep_) std::filesystem::remove_all(path_.parent_path(), ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  bool keep_ = false;
  std::filesystem::path path_;
};

inline std::string content(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

inline size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline bool has_rsvg() { return std::system("command -v rsvg-convert >/dev/null 2>&1") == 0; }

// A partial check of well-formedness: every tag is closed in order, text has no bare "<" or "&".
inline bool is_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t i = 0; i < xml.size(); ++i) {
    if (xml[i] == '&') {
      const size_t end = xml.find(';', i);
      if (end == std::string::npos || end - i > 6) return false;
    }
    if (xml[i] != '<') continue;
    const size_t end = xml.find('>', i);
    if (end == std::string::npos) return false;
    const std::string tag = xml.substr(i + 1, end - i - 1);
    if (contains(tag, "<") || count_of(tag, "\"") % 2) return false;
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
    i = end;
  }
  return open.empty();
}

}  // namespace samples
