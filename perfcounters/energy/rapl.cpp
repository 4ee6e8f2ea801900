// RAPL through Linux' powercap: /sys/class/powercap/intel-rapl:P is package P, intel-rapl:P:S a part of it. AMD's CPUs
// are there under the same name. A package holds its cores; DRAM is beside it.
#include <cstdio>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>

#include "common/names_in.h"
#include "perfcounters/energy/energy.h"

namespace gable::perf {
namespace {

constexpr const char* kZone = "intel-rapl:";
constexpr const char* kCure =
    "let others read it: sudo chmod a+r /sys/class/powercap/intel-rapl*/energy_uj (until the next boot), or run as "
    "root";

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

/// A file with one number of microjoules. Throws std::runtime_error with the path and the reason.
double read_joules(const std::string& path, const FileReader& read) {
  const FileRead file = read(path);
  if (file.error != 0) throw std::runtime_error(path + ": " + std::strerror(file.error));
  const std::string text = trimmed(file.text);
  unsigned long long microjoules = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), microjoules);
  if (error != std::errc() || end != text.data() + text.size())
    throw std::runtime_error(path + ": '" + text + "' is no number of microjoules");
  return static_cast<double>(microjoules) * 1e-6;
}

/// The names of the zones in the folder, sorted; none where it can't be listed.
std::vector<std::string> zones_in(const std::string& folder) {
  std::vector<std::string> zones;
  for (const std::string& name : names_in(folder)) {
    if (name.starts_with(kZone)) zones.push_back(name);
  }
  std::sort(zones.begin(), zones.end());
  return zones;
}

/// Whole packages and their DRAM. Other parts are inside a package; "psys" is the whole board with the packages in it.
bool counts(const std::string& name) { return name.starts_with("package") || name == "dram"; }

}  // namespace

FileRead read_whole_file(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "r"), std::fclose);
  if (!file) return {.error = errno};
  FileRead result;
  char piece[256];
  while (const std::size_t got = std::fread(piece, 1, sizeof piece, file.get())) result.text.append(piece, got);
  if (std::ferror(file.get()) != 0) result.error = errno != 0 ? errno : EIO;
  return result;
}

EnergySource rapl_energy(const std::string& folder, const FileReader& read) {
  EnergySource source{.by = "rapl", .note = "all CPU packages"};
  std::error_code unknown;
  if (!std::filesystem::exists(folder, unknown)) {
    source.reason = unknown ? folder + ": " + unknown.message() : "no " + folder;
    source.cure = "run on bare metal, with a kernel that has CONFIG_POWERCAP";
    return source;
  }
  for (const std::string& zone : zones_in(folder)) {
    const std::string path = folder + "/" + zone;
    const std::string name = trimmed(read(path + "/name").text);
    if (!counts(name)) continue;
    try {
      const auto joules = [file = path + "/energy_uj", read] { return read_joules(file, read); };
      joules();
      source.counters.push_back({zone + " " + name, joules, read_joules(path + "/max_energy_range_uj", read)});
      if (name == "dram" && source.note.find("DRAM") == std::string::npos) source.note += " and their DRAM";
    } catch (const std::runtime_error& error) {
      source.counters.clear();
      source.reason = error.what();
      if (source.reason.find(std::strerror(EACCES)) != std::string::npos) source.cure = kCure;
      return source;
    }
  }
  if (!source.available()) {
    source.reason = "no CPU package in " + folder;
    source.cure = "load the kernel's module intel_rapl_msr; virtual machines have no such counter";
  }
  return source;
}

}  // namespace gable::perf
