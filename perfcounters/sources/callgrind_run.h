// How callgrind is run, which caches it simulates for a level of Q, and what it says when it can't run a program. Used
// for gable's own kernels (callgrind.h) and for whole programs (perfcounters/program/simulation.h).
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "perfcounters/sources/source.h"

namespace gable::perf {

struct CacheGeometry {
  std::size_t bytes = 0;
  int ways = 0;
  int line = 64;

  std::size_t sets() const { return bytes / (static_cast<std::size_t>(ways) * static_cast<std::size_t>(line)); }
  bool operator==(const CacheGeometry&) const = default;
};

/// The cache geometries that the system reports; a missing level is empty.
struct CacheGeometries {
  std::optional<CacheGeometry> l1i, l1d, l2, l3;
};

CacheGeometries read_cache_geometries(const std::string& folder = "/sys/devices/system/cpu/cpu0/cache");

/// callgrind requires a power-of-two number of sets: the nearest one, with as many ways as fit the capacity.
CacheGeometry with_power_of_two_sets(const CacheGeometry& real);

/// "49152,12,64".
std::string to_option(const CacheGeometry& geometry);

/// The geometry of the level in front of the one that `metric` measures; empty where there is no such level, and for
/// metrics that are no traffic.
std::optional<CacheGeometry> boundary(const CacheGeometries& caches, Metric metric);

/// Where that level is simulated as another one, which; empty where it is simulated as it is.
std::string rounding_note(const CacheGeometries& caches, Metric metric);

/// A file's path as valgrind's options want it: "%%" for each '%', which begins a placeholder there.
std::string valgrind_path(const std::string& path);

/// The words of "valgrind --tool=callgrind …" for a run that counts executions of instructions, and simulates the
/// caches for `metric` unless it is Metric::flop. Precondition: boundary(caches, metric) and caches.l1i, caches.l1d, or
/// Metric::flop. The profile goes to `profile`, a valgrind_path() that may have "%p" in it (the process). The user's
/// own options of valgrind (VALGRIND_OPTS, .valgrindrc), which may be another tool's, do not count.
std::vector<std::string> callgrind_command(const CacheGeometries& caches, Metric metric, const std::string& profile);

/// An instruction that ended a program under valgrind, by what valgrind printed about it.
struct UnknownInstruction {
  std::string reason;  ///< names the instruction and where it is
  std::string cure;
};
std::optional<UnknownInstruction> find_unknown_instruction(const std::string& printed);

/// Why valgrind can't be used, and the cure, apart from the program that it is to run; both empty where it can.
struct ValgrindStatus {
  std::string reason{};
  std::string cure{};
};
ValgrindStatus valgrind_status();

}  // namespace gable::perf
