// Reads callgrind's profiles: how often each instruction of each object file was executed, and the events' totals,
// apart for each label of CALLGRIND_DUMP_STATS_AT(label). Profiles of large programs have hundreds of megabytes, so the
// text is read line by line and only counts are kept.
//
// What a profile looks like (valgrind 3.19 to 3.25; --dump-instr=yes, with --dump-line=yes or no, with
// --combine-dumps=yes or no):
//   events: Ir Dr Dw …                   names of the cost columns; trailing zeros of a row are left out
//   positions: instr line                the columns before the costs
//   part: 2                              a dump begins; one file may hold several
//   desc: Trigger: Client Request: LABEL why it was made
//   ob=(3) /usr/lib/libc.so.6            the object file that follows; later only "ob=(3)"
//   0x3bcf0 12 1 0 1                     address, line, costs; the address may be "+n", "-n" or "*", relative to the
//                                        previous row, even if that row is of another object
//   calls=1 0x14060 7                    the next row is the call's inclusive cost: its address counts, its costs don't
//   totals: 122138 26626 11176           ends the dump: the sums of its rows
// "cob=(5) /a" may be where a name is defined first. Addresses are those in the object file (ELF), not in memory.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <string>
#include <unordered_map>

namespace gable::perf {

/// The dumps of one label together.
struct LabelledProfile {
  std::int64_t dumps = 0;
  std::map<std::string, double> totals{};  ///< of events: "Ir", "DLmr", …
  /// Object file -> address in it -> times that the instruction there was executed. Empty without --dump-instr=yes.
  /// Code that lies in no file (generated at run time) has the object "???".
  std::map<std::string, std::unordered_map<std::uint64_t, std::uint64_t>> executions{};
};

/// By label; dumps that have none (the end of the program, callgrind_control) have the label "".
using CallgrindProfile = std::map<std::string, LabelledProfile>;

/// Adds a profile's dumps to `profile`. `name` is for messages. Throws std::invalid_argument, which names the line, for
/// text that is no profile, is cut off, or whose rows don't add up to its totals; `profile` has then part of it.
void add_callgrind_profile(std::istream& text, const std::string& name, CallgrindProfile& profile);

/// The same for a file. Throws std::runtime_error if it can't be read.
void add_callgrind_profile(const std::string& file, CallgrindProfile& profile);

}  // namespace gable::perf
