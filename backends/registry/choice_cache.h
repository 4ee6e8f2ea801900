// Choices of `auto` that were measured, in this process and on disk.
//
// On disk: one text file for each set of devices in the folder $GABLE_CACHE, or $XDG_CACHE_HOME/gable, or
// ~/.cache/gable. GABLE_CACHE=off keeps choices in memory alone. Each line has a checksum, files are replaced by
// rename() under a lock, so that any number of processes can read and write. Files that are damaged, belong to another
// user or can't be written are left alone; the log says so.
#pragma once

#include <gable/choose.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace gable {

/// The folder; empty where there is none: GABLE_CACHE=off, or no home. Logs a GABLE_CACHE that is no absolute path.
std::filesystem::path choice_folder();

class ChoiceCache {
 public:
  /// `identity` is one line that names everything besides the op that times depend on: machine, devices, drivers,
  /// versions.
  ChoiceCache(std::filesystem::path folder, std::string identity);

  /// What was measured; null if nothing was. Shared, since a copy of dozens of candidates takes longer than the search.
  std::shared_ptr<const Ranking> find(const std::string& op);
  void store(const std::string& op, const Ranking& ranking);

  /// Empty without a folder.
  const std::filesystem::path& file() const { return file_; }

 private:
  struct Entry {
    std::shared_ptr<const std::string> text;   ///< that holds the line: the file's, or one of its own
    std::string_view line;                     ///< as in the file: checksum, op, candidates
    std::shared_ptr<const Ranking> ranking{};  ///< of the line, once is_whole() has looked at it
  };
  /// Identifies one state of the file.
  struct Stamp {
    std::uint64_t inode = 0;
    std::int64_t seconds = 0, nanoseconds = 0, bytes = -1;
    bool operator==(const Stamp&) const = default;
  };

  static Stamp stamp_of(const std::filesystem::path& file);
  static bool is_whole(Entry& entry);
  void drop_damaged(const std::string& op);
  std::vector<std::string_view> newest_lines(std::size_t room);
  void read();
  void write();
  void put(Entry entry);
  void complain(const std::string& what);
  void complain_of_damaged(std::size_t entries);

  std::mutex mutex_;
  std::filesystem::path folder_;
  std::filesystem::path file_;
  std::string identity_;
  Stamp stamp_{};
  std::chrono::steady_clock::time_point looked_{};  ///< at the file's stamp
  std::string last_word_;
  std::list<Entry> entries_;  ///< oldest first
  std::unordered_map<std::string_view, std::list<Entry>::iterator>
      by_op_;  ///< by op; the keys are parts of the entries' lines
};

}  // namespace gable
