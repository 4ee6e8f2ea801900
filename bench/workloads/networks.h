// Suites from data: lists of convolutions (problem.h), a file NAME.txt for each network. A user adds a network by
// adding a file; nothing is compiled.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace gable::bench {

inline constexpr std::string_view kNetworks = "networks";  ///< the suite of all lists

struct NetworkList {
  std::string
      suite;  ///< what --suite calls it: the file's name without .txt, after "networks/" if a fixed suite has it
  std::filesystem::path file;
};

/// Where lists are looked for: the folders of the environment variable GABLE_NETWORKS (with colons between), then
/// share/gable/networks beside the command, in the build tree as where it is installed.
std::vector<std::filesystem::path> network_folders();

/// All lists of the folders, by name. Of two with one name the first folder's is taken. A folder that does not exist
/// has none.
std::vector<NetworkList> network_lists(const std::vector<std::filesystem::path>& folders);

/// The lists that a suite's name stands for: all for "networks", one for "NAME" or "networks/NAME"; else none. A fixed
/// suite's name stands for that suite alone.
std::vector<NetworkList> lists_of_suite(std::string_view suite, const std::vector<NetworkList>& all);

}  // namespace gable::bench
