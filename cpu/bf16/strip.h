// The strip: a work unit's input, staged once as [part][block of 32 channels][row phase][column phase][row][column]
// [32 channels]. A phase holds the rows (columns) of equal remainder modulo the stride, so that neighbouring outputs
// read neighbouring positions, 64 bytes apart, for every stride, and a tap is a constant offset. By images, it is
// [block][row][column][image][32 channels]; of gathered windows,
// [row][column][block][32 channels] of the output, of several gathered kernel rows [row phase][row][column][32
// channels], where a row is the first of the image's rows that it holds.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/bf16/geometry.h"

namespace gable::cpu::bf16 {

/// Where tiles read their input.
enum class InputPath {
  staged,     // in the strip
  in_place,   // pointwise bf16 input, where it lies; the last work unit may stage it
  in_image,   // bf16 input in the image, region by region
  in_rows,    // bf16 input in the image, row by row, by a unit that takes one half at a time
  by_images,  // in a strip in which a half's positions are 16 images at one pixel
};

/// The phases that some tap reads: remainders of source rows and columns modulo the stride.
struct Phases {
  std::vector<std::int64_t> rows, columns;
  std::int64_t count() const { return static_cast<std::int64_t>(rows.size() * columns.size()); }
};
Phases phases_of(const Conv2dProblem& problem, const Terms& terms);

struct StripShape {
  std::int64_t rows, columns;  // of one phase, in positions
  std::int64_t position;       // elements from one position to the next
  std::int64_t block, part;    // elements from one to the next
};

/// How a path lays out the strip.
struct StripLayout {
  const Conv2dProblem& problem;
  const Geometry& geometry;
  const Terms& terms;
  const Phases& phases;
  InputPath path;

  /// The shape of a strip for rows x columns of output.
  StripShape shape(std::int64_t rows, std::int64_t columns) const;
  /// The elements from a position to each tap's input, in the strip or in the image.
  std::vector<std::int64_t> tap_offsets(const StripShape& shape) const;

 private:
  std::int64_t tap_offset(const StripShape& shape, std::int64_t row, std::int64_t column) const;
};

/// Elements of a strip, with those that the last tile may read past its end.
std::int64_t strip_elements(const StripShape& shape, const Terms& terms);

}  // namespace gable::cpu::bf16
