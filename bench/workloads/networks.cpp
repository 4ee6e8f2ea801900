// See networks.h.
#include "bench/workloads/networks.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "bench/workloads/suites.h"
#include "common/names_in.h"
#include "perfcounters/sources/child_process.h"

namespace gable::bench {
namespace {

namespace fs = std::filesystem;

bool is_fixed_suite(std::string_view name) {
  const std::vector<std::string> fixed = suite_names();
  return std::find(fixed.begin(), fixed.end(), name) != fixed.end();
}

std::string in_networks(const std::string& name) { return std::string(kNetworks) + "/" + name; }

}  // namespace

std::vector<fs::path> network_folders() {
  std::vector<fs::path> folders;
  if (const char* variable = std::getenv("GABLE_NETWORKS")) {
    std::string_view rest = variable;
    while (!rest.empty()) {
      const std::string_view entry = rest.substr(0, rest.find(':'));
      rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
      if (!entry.empty()) folders.emplace_back(entry);
    }
  }
  const fs::path program = perf::own_executable();
  if (program.empty()) return folders;
  const fs::path build_tree = program.parent_path().parent_path() / "share/gable/networks";
  const fs::path installed = (program.parent_path() / GABLE_DATADIR_FROM_BINDIR / "gable/networks").lexically_normal();
  folders.push_back(installed);
  if (build_tree != installed) folders.push_back(build_tree);
  return folders;
}

std::vector<NetworkList> network_lists(const std::vector<fs::path>& folders) {
  std::map<std::string, fs::path> files;
  for (const fs::path& folder : folders) {
    for (const std::string& name : names_in(folder)) {
      const fs::path file = folder / name;
      if (file.extension() == ".txt") files.try_emplace(file.stem().string(), file);
    }
  }
  std::vector<NetworkList> lists;
  for (const auto& [name, file] : files) {
    const bool taken = is_fixed_suite(name) || name == kNetworks;
    lists.push_back({taken ? in_networks(name) : name, file});
  }
  return lists;
}

std::vector<NetworkList> lists_of_suite(std::string_view suite, const std::vector<NetworkList>& all) {
  if (suite == kNetworks) return all;
  std::vector<NetworkList> found;
  std::copy_if(all.begin(), all.end(), std::back_inserter(found),
               [&](const NetworkList& list) { return list.suite == suite || in_networks(list.suite) == suite; });
  return found;
}

}  // namespace gable::bench
