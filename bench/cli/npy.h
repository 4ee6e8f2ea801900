// NumPy's .npy files (versions 1 to 3; little-endian f32 and f16 in C order). A header is untrusted input, so it is
// compared with the size of the file before memory is allocated.
#pragma once

#include <gable/dtype.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace gable::bench {

using NpyShape = std::vector<std::int64_t>;

std::string to_string(const NpyShape& shape);  ///< as NumPy prints it: "(3, 4)", "(5,)"

/// An open .npy file with a valid header, whose size agrees with it.
class NpyReader {
 public:
  /// Throws Error(invalid_argument) naming the file, the offending value and what would be right.
  explicit NpyReader(const std::string& path);

  DType dtype() const { return dtype_; }
  const NpyShape& shape() const { return shape_; }
  std::size_t bytes() const { return bytes_; }

  /// Throws Error(invalid_argument) unless the shape is `expected`; `what` says which tensor it is.
  void require_shape(std::string_view what, const NpyShape& expected) const;
  /// Reads the elements, bytes() bytes, into `data`. Call it once.
  void read(void* data);

 private:
  void parse_header(std::string_view text);

  std::string path_;
  std::ifstream file_;
  DType dtype_ = DType::f32;
  NpyShape shape_;
  std::size_t bytes_ = 0;
};

/// Writes version 1.0. `dtype` is f32 or f16 (NumPy has no bf16). The file appears whole or not at all, as with
/// write_file().
void write_npy(const std::string& path, DType dtype, const NpyShape& shape, const void* data);

}  // namespace gable::bench
