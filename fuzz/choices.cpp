// The cache of measured choices. It is compiled in here, since libgable does not show it.
#include <gable/backend.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "backends/registry/choice_cache.h"
#include "backends/registry/log.h"
#include "fuzz/targets.h"

namespace gable {

void log_word(std::string_view) noexcept {}

namespace fuzz {
namespace {

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "gable_fuzz_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) fail("no temporary folder");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// The lines with the checksums that make them worth reading.
std::string with_checksums(std::string_view lines) {
  std::string text = "gable choices 2\nfuzz\n";
  while (!lines.empty()) {
    const std::string line(lines.substr(0, lines.find('\n')));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    char sum[17];
    std::snprintf(sum, sizeof(sum), "%016llx", static_cast<unsigned long long>(packing_key(line)));
    text += std::string(sum) + "\t" + line + "\n";
  }
  return text;
}

bool is_time(std::optional<double> seconds) { return !seconds || (std::isfinite(*seconds) && *seconds > 0); }

}  // namespace

void choices(std::string_view data) {
  using std::filesystem::perms;
  static const Folder folder;
  ChoiceCache cache(folder.path(), "fuzz");
  const std::string text = data.starts_with("gable") ? std::string(data) : with_checksums(data);
  std::ofstream(cache.file(), std::ios::binary) << text;
  std::filesystem::permissions(cache.file(), perms::owner_read | perms::owner_write);
  const std::shared_ptr<const Ranking> found = cache.find("op");
  if (found == nullptr) return;
  for (const Candidate& one : found->candidates) {
    if (!is_time(one.predicted) || !is_time(one.measured) || !(one.copies >= 0)) fail("a choice's time is none");
  }
  cache.store("other", *found);
  ChoiceCache again(folder.path(), "fuzz");
  const std::shared_ptr<const Ranking> kept = again.find("other");
  if (kept == nullptr || kept->candidates.size() != found->candidates.size()) fail("a choice that was stored is lost");
}

}  // namespace fuzz
}  // namespace gable
