// What sources read of known work in earlier processes, on disk. A simulation reads the same each time, and its
// calibration takes longer than the simulation of a layer. Only readings are kept: each process judges them by its own
// known work. One file for each identity in the folder of common/kept_file.h; a file that is damaged, or that another
// user may have written, is ignored and replaced.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "perfcounters/sources/source.h"

namespace gable::perf {

/// By the known work's name and the quantity.
using KnownReadings = std::map<std::pair<std::string, Metric>, double>;

class CalibrationCache {
 public:
  /// Keeps nothing.
  CalibrationCache() = default;
  /// An absolute path, or an empty one: nothing is kept. The folder is made when something is stored.
  explicit CalibrationCache(std::filesystem::path folder) : folder_(std::move(folder)) {}
  /// In the user's folder: $GABLE_CACHE, docs/choosing.md. What is wrong with that variable is among the words.
  static CalibrationCache of_user();

  bool keeps() const { return !folder_.empty(); }
  /// `identity` is a line that names everything that the readings depend on. Empty: nothing is found or stored.
  KnownReadings find(const std::string& identity);
  /// Adds to the readings of this identity that are there.
  void store(const std::string& identity, const KnownReadings& readings);

  /// What could not be read or written, and why; each once.
  const std::vector<std::string>& words() const { return words_; }

 private:
  std::filesystem::path file_of(const std::string& identity) const;
  void complain(const std::string& word);

  std::filesystem::path folder_;
  std::vector<std::string> words_;
};

}  // namespace gable::perf
