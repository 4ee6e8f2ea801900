// See npy.h. The header is a Python dictionary literal; the parser accepts what NumPy writes (any key order, either
// quote, trailing commas) and nothing else of Python.
#include "bench/cli/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gable/error.h>

#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>

#include "bench/common/files.h"

namespace gable::bench {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are read and written as they stand in memory");

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr std::size_t kMaxHeaderBytes = 65535;  ///< NumPy itself refuses more than 10,000
constexpr std::size_t kMaxRank = 32;            ///< NumPy's own
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

[[noreturn]] void fail(const std::string& path, const std::string& message) {
  throw Error(ErrorCode::invalid_argument, fmt::format(".npy file '{}': {}", path, message));
}

struct Header {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<NpyShape> shape;
};

/// Recursive descent over {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class HeaderParser {
 public:
  HeaderParser(const std::string& path, std::string_view text) : path_(path), text_(text) {}

  Header parse() {
    Header header;
    expect('{');
    while (!accept('}')) {
      parse_entry(header);
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) bad("nothing but blanks after the closing brace");
    return header;
  }

 private:
  [[noreturn]] void bad(const std::string& wanted) const {
    const std::string rest = at_ < text_.size() ? fmt::format("{:?}", text_.substr(at_, 20)) : "the end";
    fail(path_, fmt::format("malformed header at byte {}: {} where {} belongs", at_, rest, wanted));
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }

  bool accept(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!accept(c)) bad(fmt::format("'{}'", c));
  }

  std::string parse_string() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : ' ';
    if (quote != '\'' && quote != '"') bad("a quoted string");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) bad("a string with its closing quote");
    const std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }

  bool parse_bool() {
    skip_space();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    }
    bad("True or False");
  }

  std::int64_t parse_dimension() {
    skip_space();
    std::int64_t value = 0;
    const char* begin = text_.data() + at_;
    const auto result = std::from_chars(begin, text_.data() + text_.size(), value);
    if (result.ec == std::errc::result_out_of_range) bad("a dimension that fits 63 bits");
    if (result.ec != std::errc()) bad("a dimension");
    at_ += static_cast<std::size_t>(result.ptr - begin);
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2's long integers
    return value;
  }

  NpyShape parse_shape() {
    NpyShape shape;
    expect('(');
    while (!accept(')')) {
      if (shape.size() == kMaxRank) bad(fmt::format("at most {} dimensions", kMaxRank));
      shape.push_back(parse_dimension());
      if (!accept(',')) {
        if (shape.size() == 1) bad("',': a tuple of one dimension is written (n,)");
        expect(')');
        break;
      }
    }
    return shape;
  }

  template <typename T>
  void set(std::optional<T>& slot, const std::string& key, T value) {
    if (slot) fail(path_, fmt::format("malformed header: '{}' is given twice", key));
    slot = std::move(value);
  }

  void parse_entry(Header& header) {
    const std::string key = parse_string();
    expect(':');
    skip_space();
    if (key == "descr") {
      if (at_ < text_.size() && text_[at_] == '[') {
        fail(path_, "structured dtypes are not supported; save a plain array with dtype float32 or float16");
      }
      set(header.descr, key, parse_string());
    } else if (key == "fortran_order") {
      set(header.fortran_order, key, parse_bool());
    } else if (key == "shape") {
      set(header.shape, key, parse_shape());
    } else {
      fail(path_, fmt::format("malformed header: unknown key {:?}; known are descr, fortran_order and shape", key));
    }
  }

  const std::string& path_;
  std::string_view text_;
  std::size_t at_ = 0;
};

DType dtype_of(const std::string& path, const std::string& descr) {
  if (descr == "<f4") return DType::f32;
  if (descr == "<f2") return DType::f16;
  const bool big_endian = descr.starts_with('>');
  fail(path, fmt::format("dtype {:?} is {}; gable reads '<f4' and '<f2', so save array.astype('{}')", descr,
                         big_endian ? "big-endian" : "not supported", descr.ends_with("f2") ? "<f2" : "<f4"));
}

std::size_t bytes_of(const std::string& path, const NpyShape& shape, DType dtype) {
  std::int64_t elements = 1;
  for (const std::int64_t dim : shape) {
    if (dim < 1) fail(path, fmt::format("shape {} has a dimension below 1", to_string(shape)));
    if (dim > kMaxElements / elements) {
      fail(path, fmt::format("shape {} has more than 2^40 elements", to_string(shape)));
    }
    elements *= dim;
  }
  return static_cast<std::size_t>(elements) * size_of(dtype);
}

std::string header_text(DType dtype, const NpyShape& shape) {
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}",
                                   dtype == DType::f32 ? "<f4" : "<f2", to_string(shape));
  constexpr std::size_t kAlignment = 64;
  const std::size_t used = kMagic.size() + 4 + header.size() + 1;
  header.append((kAlignment - used % kAlignment) % kAlignment, ' ');
  return header + '\n';
}

}  // namespace

std::string to_string(const NpyShape& shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
}

NpyReader::NpyReader(const std::string& path) : path_(path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) fail(path, "there is no such file");
  if (!std::filesystem::is_regular_file(status)) fail(path, "is not a regular file");
  errno = 0;
  file_.open(path, std::ios::binary);
  if (!file_) fail(path, fmt::format("can't be opened: {}", std::strerror(errno)));
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) fail(path, error.message());

  const auto take = [&](char* to, std::size_t count, std::string_view what) {
    if (!file_.read(to, static_cast<std::streamsize>(count))) {
      fail(path_, fmt::format("ends after {} bytes, inside {}", size, what));
    }
  };
  std::array<char, 8> start{};
  take(start.data(), start.size(), "the magic string; a .npy file is made by numpy.save");
  if (std::string_view(start.data(), kMagic.size()) != kMagic) {
    fail(path, "does not begin with \"\\x93NUMPY\"; a .npy file is made by numpy.save");
  }
  const int major = static_cast<unsigned char>(start[6]);
  const int minor = static_cast<unsigned char>(start[7]);
  if (major < 1 || major > 3 || minor != 0) {
    fail(path, fmt::format("format version {}.{} is not supported; 1.0, 2.0 and 3.0 are", major, minor));
  }
  std::array<unsigned char, 4> length{};
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  take(reinterpret_cast<char*>(length.data()), length_bytes, "the header's length");
  const std::size_t header_bytes = std::size_t{length[0]} | std::size_t{length[1]} << 8 | std::size_t{length[2]} << 16 |
                                   std::size_t{length[3]} << 24;
  const std::size_t begin = start.size() + length_bytes;
  if (header_bytes > kMaxHeaderBytes) {
    fail(path, fmt::format("claims a header of {} bytes; at most {} are read", header_bytes, kMaxHeaderBytes));
  }
  if (header_bytes > size - begin) {
    fail(path, fmt::format("claims a header of {} bytes, but only {} follow", header_bytes, size - begin));
  }
  std::string text(header_bytes, '\0');
  take(text.data(), header_bytes, "the header");
  parse_header(text);
  const std::uintmax_t data = size - begin - header_bytes;
  if (data != bytes_) {
    fail(path, fmt::format("holds {} bytes of data, but shape {} of {} needs {}", data, to_string(shape_),
                           to_string(dtype_), bytes_));
  }
}

void NpyReader::parse_header(std::string_view text) {
  const Header header = HeaderParser(path_, text).parse();
  if (!header.descr) fail(path_, "malformed header: 'descr' is missing");
  if (!header.fortran_order) fail(path_, "malformed header: 'fortran_order' is missing");
  if (!header.shape) fail(path_, "malformed header: 'shape' is missing");
  dtype_ = dtype_of(path_, *header.descr);
  if (*header.fortran_order) {
    fail(path_, "is in Fortran order; gable reads C order, so save numpy.ascontiguousarray(array)");
  }
  shape_ = *header.shape;
  bytes_ = bytes_of(path_, shape_, dtype_);
}

void NpyReader::require_shape(std::string_view what, const NpyShape& expected) const {
  if (shape_ == expected) return;
  const std::string rank = shape_.size() == expected.size()
                               ? ""
                               : fmt::format(" ({} dimensions instead of {})", shape_.size(), expected.size());
  fail(path_, fmt::format("shape {}{}, but {} must be {}", to_string(shape_), rank, what, to_string(expected)));
}

void NpyReader::read(void* data) {
  if (!file_.read(static_cast<char*>(data), static_cast<std::streamsize>(bytes_)))
    fail(path_, "reading the data failed");
}

void write_npy(const std::string& path, DType dtype, const NpyShape& shape, const void* data) {
  if (dtype == DType::bf16) fail(path, "NumPy has no bf16; write f32 or f16");
  const std::size_t bytes = bytes_of(path, shape, dtype);
  const std::string header = header_text(dtype, shape);
  std::string start(kMagic);
  start += {'\x01', '\x00', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  write_file(path, {start, header, std::string_view(static_cast<const char*>(data), bytes)});
}

}  // namespace gable::bench
