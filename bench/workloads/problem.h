// Problems in benchdnn's format: one descriptor for each convolution, and files with lists of them. Public shape lists
// run unchanged. A problem that gable can't express (3-D, cropped outputs) is kept as a refused entry with its reason.
#pragma once

#include <gable/ops.h>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gable::bench {

struct Problem {
  std::string name;        ///< of n"name", without quotes and count; may be empty
  std::int64_t count = 1;  ///< of n"name*count": how often the layer stands in its network
  Conv2d conv;
};

/// [g#][mb#]ic#[ih#][iw#]oc#[oh#][ow#][kh#][kw#][sh#][sw#][ph#][pw#][dh#][dw#][n"name*count"], in any order, `_`
/// between entries where one likes. benchdnn's defaults: g 1, mb 2, stride 1, dh = dw = 0 (dilation - 1); without any
/// width entry the problem is square, without any height entry it is 1-D (height 1); a missing output size follows from
/// no padding, a missing padding from the output size; padding below and to the right is what the output size implies.
/// Beyond benchdnn: where some width entries are given but not both iw and kw, the missing ones are the height's.
///
/// Throws Error(invalid_argument) naming the entry and its column, or Error(unsupported) for a well-formed problem that
/// gable can't express.
Problem parse_problem(std::string_view descriptor);

/// The canonical descriptor: parse_problem() reads the same convolution from it (dtype, layout and epilogue apart).
std::string descriptor(const Conv2d& conv);
/// The descriptor of any op in the format of benchdnn's drivers: "4096x700:700x1000" for a matrix product,
/// "25600:25600" for an addition, "1024x512" for an op that only moves.
std::string descriptor(const Op& op);
/// The descriptor with the problem's name and count.
std::string to_string(const Problem& problem);

/// "2", "3x2" or "3x3,2" or "3x3,2x1": window, and stride where it differs from the window. Throws
/// Error(invalid_argument).
PoolWindow parse_max_pool(std::string_view text);
std::string to_string(const PoolWindow& pool);

/// One descriptor (or option) of a list file.
struct ListEntry {
  std::size_t line = 0;
  std::string text;
  std::optional<Problem> problem;
  std::string refusal;     ///< why there is no problem
  bool malformed = false;  ///< true: it can't be parsed; false: gable can't express it
};

/// Whitespace-separated descriptors, `#` comments, blank lines, `\` at the end of a word joins it with the next one.
/// Options of benchdnn's own command (`--dir=FWD_B`) are refused, and so are the descriptors of their line, since the
/// option would change what they mean.
std::vector<ListEntry> parse_list(std::istream& text);
/// Both throw Error(invalid_argument) when the file can't be read.
std::string read_list_text(const std::string& path);
std::vector<ListEntry> read_list(const std::string& path);

}  // namespace gable::bench
