// The roofline as text, for terminals without a browser.
#pragma once

#include <string>

#include "bench/report/study.h"

namespace gable::bench::report {

struct AsciiSize {
  int columns = 100;
  int rows = 28;
};

/// A plot for each kind of device that has points: letters are rows, '/' and '-' are roofs, both axes logarithmic. A
/// legend names the letters. Rows that can't be drawn (Measurement::can_be_drawn) are left out.
std::string ascii_plot(const Studies& studies, const AsciiSize& size = {});

}  // namespace gable::bench::report
