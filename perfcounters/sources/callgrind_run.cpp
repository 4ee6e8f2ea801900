// See callgrind_run.h.
#include "perfcounters/sources/callgrind_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "perfcounters/machine/files.h"
#include "perfcounters/sources/child_process.h"
#include "perfcounters/sources/instruction_flop.h"

namespace gable::perf {
namespace {

namespace fs = std::filesystem;

std::size_t number_in(const fs::path& file) { return parse_size(first_line(file.string()).value_or("")); }

std::optional<CacheGeometry> geometry_in(const fs::path& folder) {
  const CacheGeometry geometry{.bytes = number_in(folder / "size"),
                               .ways = static_cast<int>(number_in(folder / "ways_of_associativity")),
                               .line = static_cast<int>(number_in(folder / "coherency_line_size"))};
  if (geometry.bytes == 0 || geometry.ways == 0 || geometry.line == 0) return std::nullopt;
  return geometry;
}

std::string described(const CacheGeometry& geometry) {
  return fmt::format("{} KiB in {} ways", geometry.bytes >> 10, geometry.ways);
}

/// What follows `key` in `line`, without blanks before it; nothing if `line` does not have it.
std::optional<std::string> after(const std::string& line, const std::string& key) {
  const std::size_t at = line.find(key);
  if (at == std::string::npos) return std::nullopt;
  const std::size_t begin = line.find_first_not_of(' ', at + key.size());
  return begin == std::string::npos ? "" : line.substr(begin);
}

/// "0x62 0xF2 0x7D" -> bytes.
std::vector<std::uint8_t> bytes_of(const std::string& text) {
  std::istringstream words(text);
  std::vector<std::uint8_t> bytes;
  for (unsigned value = 0; words >> std::hex >> value && value < 256;)
    bytes.push_back(static_cast<std::uint8_t>(value));
  return bytes;
}

/// Environment variables that make libraries choose other code, by a part of the library's name.
struct LibraryCure {
  const char* library;
  const char* cure;
};
constexpr std::array kLibraryCures{
    LibraryCure{"openblas", "OPENBLAS_CORETYPE=Haswell"},
    LibraryCure{"blis", "BLIS_ARCH_TYPE=haswell"},
    LibraryCure{"mkl", "MKL_ENABLE_INSTRUCTIONS=AVX2"},
    LibraryCure{"dnnl", "ONEDNN_MAX_CPU_ISA=AVX2"},
    LibraryCure{"gable", "the device cpu:avx2"},
    LibraryCure{"libc", "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW"},
    LibraryCure{"libm", "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW"},
};

std::string cure_for(const std::string& place) {
  const std::size_t name = place.rfind('/');
  if (name != std::string::npos) {
    for (const LibraryCure& one : kLibraryCures)
      if (place.find(one.library, name) != std::string::npos)
        return fmt::format("let that library take its code for AVX2: {}", one.cure);
  }
  return "compile for AVX2: -march=haswell instead of -march=native, or -mno-avx512f behind it. Libraries that choose "
         "their code at run time: OPENBLAS_CORETYPE=Haswell, MKL_ENABLE_INSTRUCTIONS=AVX2, ONEDNN_MAX_CPU_ISA=AVX2, "
         "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F";
}

}  // namespace

CacheGeometries read_cache_geometries(const std::string& folder) {
  CacheGeometries caches;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string level = first_line((entry.path() / "level").string()).value_or("");
    const bool instructions = first_line((entry.path() / "type").string()).value_or("") == "Instruction";
    if (level == "1") (instructions ? caches.l1i : caches.l1d) = geometry_in(entry.path());
    if (level == "2") caches.l2 = geometry_in(entry.path());
    if (level == "3") caches.l3 = geometry_in(entry.path());
  }
  return caches;
}

CacheGeometry with_power_of_two_sets(const CacheGeometry& real) {
  const std::size_t sets = std::max<std::size_t>(1, real.sets());
  if (std::has_single_bit(sets)) return real;
  const std::size_t below = std::bit_floor(sets);
  const double ratio = static_cast<double>(sets) / static_cast<double>(below);
  const std::size_t chosen = ratio > std::sqrt(2.0) ? 2 * below : below;
  const std::size_t set_line = chosen * static_cast<std::size_t>(real.line);
  const std::size_t ways = std::max<std::size_t>(1, real.bytes / set_line);
  return {.bytes = ways * set_line, .ways = static_cast<int>(ways), .line = real.line};
}

std::string to_option(const CacheGeometry& geometry) {
  return fmt::format("{},{},{}", geometry.bytes, geometry.ways, geometry.line);
}

std::optional<CacheGeometry> boundary(const CacheGeometries& caches, Metric metric) {
  if (metric == Metric::l2_bytes) return caches.l1d;
  if (metric == Metric::l3_bytes) return caches.l3 ? caches.l2 : std::nullopt;
  if (metric == Metric::dram_bytes) return caches.l3 ? caches.l3 : caches.l2;
  return std::nullopt;
}

std::string rounding_note(const CacheGeometries& caches, Metric metric) {
  const std::optional<CacheGeometry> cache = boundary(caches, metric);
  if (!cache || with_power_of_two_sets(*cache) == *cache) return "";
  return fmt::format("the cache of {} is simulated as {}: valgrind needs a power of two of sets", described(*cache),
                     described(with_power_of_two_sets(*cache)));
}

std::string valgrind_path(const std::string& path) {
  std::string escaped;
  for (const char one : path) escaped += one == '%' ? "%%" : std::string(1, one);
  return escaped;
}

std::vector<std::string> callgrind_command(const CacheGeometries& caches, Metric metric, const std::string& profile) {
  std::vector<std::string> words{"valgrind",
                                 "-q",
                                 "--command-line-only=yes",
                                 "--tool=callgrind",
                                 "--vgdb=no",
                                 "--sigill-diagnostics=yes",  // -q leaves them out
                                 "--combine-dumps=yes",
                                 "--dump-line=no",
                                 "--dump-instr=yes",
                                 "--callgrind-out-file=" + profile};
  if (metric == Metric::flop) return words;
  const CacheGeometry last = *boundary(caches, metric);
  // Where the L1 is simulated as the last level, the level in front of it holds two lines and filters nothing.
  const CacheGeometry first =
      metric == Metric::l2_bytes ? CacheGeometry{128, 2, last.line} : with_power_of_two_sets(*caches.l1d);
  for (const std::string& word : {std::string("--cache-sim=yes"), std::string("--simulate-wb=yes"),
                                  "--I1=" + to_option(with_power_of_two_sets(*caches.l1i)), "--D1=" + to_option(first),
                                  "--LL=" + to_option(with_power_of_two_sets(last))})
    words.push_back(word);
  return words;
}

std::optional<UnknownInstruction> find_unknown_instruction(const std::string& printed) {
  std::istringstream lines(printed);
  std::vector<std::uint8_t> code;
  std::string address, place;
  for (std::string line; std::getline(lines, line);) {
    if (const auto bytes = after(line, "unhandled instruction bytes:")) code = bytes_of(*bytes);
    if (const auto found = after(line, "Unrecognised instruction at address"))
      address = found->substr(0, found->find_last_not_of(". ") + 1);
    const auto called = after(line, " at 0x");  // "at 0x109059: main (in /tmp/app)"
    const std::size_t colon = called ? called->find(':') : std::string::npos;
    if (!address.empty() && place.empty() && colon != std::string::npos && colon + 2 < called->size())
      place = called->substr(colon + 2);
  }
  if (code.empty() && address.empty()) return std::nullopt;
  const InstructionName name = name_of(code);
  std::string reason = "valgrind can't run ";
  reason +=
      name.mnemonic.empty() ? "an instruction" : fmt::format("the instruction {} ({})", name.mnemonic, name.extension);
  if (!address.empty()) reason += " at " + address;
  if (!place.empty()) reason += " in " + place;
  return UnknownInstruction{.reason = reason, .cure = cure_for(place)};
}

ValgrindStatus valgrind_status() {
  if (find_program("valgrind").empty())
    return {.reason = "no program valgrind on the PATH", .cure = "install valgrind (apt-get install valgrind)"};
  return {};
}

}  // namespace gable::perf
