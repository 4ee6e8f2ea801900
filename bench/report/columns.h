// Text in columns, as wide as their widest cells.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "bench/common/text.h"

namespace gable::bench::report {

/// A line of text for each of `lines`. Columns that are `right` are aligned to the right; those without any text are
/// left out.
template <std::size_t kColumns>
std::string in_columns(const std::vector<std::array<std::string, kColumns>>& lines,
                       const std::array<bool, kColumns>& right) {
  std::array<std::size_t, kColumns> widths{};
  for (const auto& cells : lines) {
    for (std::size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], count_code_points(cells[i]));
  }
  std::string text;
  for (const auto& cells : lines) {
    std::string line;
    for (std::size_t i = 0; i < kColumns; ++i) {
      if (widths[i] == 0) continue;
      const std::string pad(widths[i] - count_code_points(cells[i]), ' ');
      line += (i > 0 ? "  " : "") + (right[i] ? pad + cells[i] : cells[i] + pad);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace gable::bench::report
