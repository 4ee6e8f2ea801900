// Boxes sorted into square cells, so that a question about one place looks at its neighbours alone and not at all of
// ten thousand points.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "bench/report/geometry.h"

namespace gable::bench::report {

class BoxGrid {
 public:
  // Boxes outside of `area` are kept in its outermost cells.
  explicit BoxGrid(const Box& area)
      : area_(area), columns_(cells_of(area.width())), rows_(cells_of(area.height())), cells_(columns_ * rows_) {}
  BoxGrid(const Box& area, const std::vector<Box>& boxes) : BoxGrid(area) {
    for (const Box& box : boxes) add(box);
  }

  void add(const Box& box) {
    for_each_cell(box, [&](std::vector<size_t>& cell) {
      cell.push_back(boxes_.size());
      return false;
    });
    boxes_.push_back(box);
    asked_.push_back(0);
  }

  // Calls visit(index, box) once for each box whose cells meet `where`, until it returns true. Whether it did.
  template <class Visit>
  bool any_near(const Box& where, Visit visit) {
    ++question_;
    return for_each_cell(where, [&](std::vector<size_t>& cell) {
      for (const size_t i : cell) {
        if (asked_[i] == question_) continue;
        asked_[i] = question_;
        if (visit(i, boxes_[i])) return true;
      }
      return false;
    });
  }

  bool overlaps(const Box& where) {
    return any_near(where, [&](size_t, const Box& box) { return where.overlaps(box); });
  }

 private:
  static constexpr double kCell = 16;  // pixels: about the height of a label

  static size_t cells_of(double extent) { return static_cast<size_t>(std::max(1.0, std::ceil(extent / kCell))); }
  static size_t cell_at(double offset, size_t count) {
    return static_cast<size_t>(std::clamp(std::floor(offset / kCell), 0.0, static_cast<double>(count - 1)));
  }

  template <class Visit>
  bool for_each_cell(const Box& box, Visit visit) {
    const size_t last_column = cell_at(box.x1 - area_.x0, columns_), last_row = cell_at(box.y1 - area_.y0, rows_);
    for (size_t row = cell_at(box.y0 - area_.y0, rows_); row <= last_row; ++row) {
      for (size_t column = cell_at(box.x0 - area_.x0, columns_); column <= last_column; ++column) {
        if (visit(cells_[row * columns_ + column])) return true;
      }
    }
    return false;
  }

  Box area_;
  size_t columns_, rows_;
  std::vector<std::vector<size_t>> cells_;  // indices of boxes
  std::vector<Box> boxes_;
  std::vector<size_t> asked_;  // the question at which each box was last visited
  size_t question_ = 0;
};

}  // namespace gable::bench::report
