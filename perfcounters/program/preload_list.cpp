// See preload_list.h.
#include "perfcounters/program/preload_list.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace gable::perf {
namespace {

bool is_parted(const std::string& path) { return path.find_first_of(" :") != std::string::npos; }

}  // namespace

std::string preload_list(const std::string& library, const std::string& folder) {
  std::string first = library;
  if (is_parted(library)) {
    const std::filesystem::path link = std::filesystem::path(folder) / std::filesystem::path(library).filename();
    std::error_code error;
    if (is_parted(link.string())) return "";
    std::filesystem::create_symlink(library, link, error);
    if (error) return "";
    first = link.string();
  }
  const char* others = std::getenv("LD_PRELOAD");
  return others == nullptr || *others == '\0' ? first : first + ":" + others;
}

}  // namespace gable::perf
