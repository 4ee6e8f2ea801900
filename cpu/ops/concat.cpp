// Copies. A unit of work is about 64 KiB of output: several rows, or a piece of a long one, so that few long rows
// occupy all threads.
#include "cpu/ops/concat.h"

#include <algorithm>
#include <cstring>

#include <gable/problem.h>
#include "cpu/common/coverage.h"
#include "cpu/common/parallel.h"

namespace gable::cpu {
namespace {

constexpr std::int64_t kConcatUnitBytes = 1 << 16;

struct Bytes {
  std::int64_t begin, end;
};

/// The part of [begin, end) of a row of output that comes from a source which lies there from `first` on.
void copy_part(const Bytes& wanted, const char* from, std::int64_t first, std::int64_t size, char* row) {
  const std::int64_t begin = std::max(wanted.begin, first), end = std::min(wanted.end, first + size);
  if (begin < end) std::memcpy(row + begin, from + (begin - first), static_cast<std::size_t>(end - begin));
}

}  // namespace

void concat(const ConcatProblem& p, const void* a_data, const void* b_data, void* y_data, int threads) {
  const char* a = static_cast<const char*>(a_data);
  const char* b = static_cast<const char*>(b_data);
  char* y = static_cast<char*>(y_data);
  const std::int64_t bytes = p.a_bytes + p.b_bytes;
  const std::int64_t pieces = ceil_div(bytes, kConcatUnitBytes);  // of a row
  note_path(pieces > 1 ? Path::concat_pieces : Path::concat_rows, best_target());
  const std::int64_t rows = pieces > 1 ? 1 : std::max<std::int64_t>(1, kConcatUnitBytes / bytes);  // of a unit
  parallel_units(threads, ceil_div(p.rows, rows) * pieces, [&](std::int64_t unit, int) {
    const std::int64_t first = unit / pieces * rows, piece = unit % pieces;
    const Bytes wanted{piece * kConcatUnitBytes, std::min(bytes, (piece + 1) * kConcatUnitBytes)};
    for (std::int64_t row = first; row < std::min(p.rows, first + rows); ++row) {
      copy_part(wanted, a + row * p.a_bytes, 0, p.a_bytes, y + row * bytes);
      copy_part(wanted, b + row * p.b_bytes, p.a_bytes, p.b_bytes, y + row * bytes);
    }
  });
}

}  // namespace gable::cpu
