// The page's data: what its script draws and shows, ready to show.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "bench/report/study.h"

namespace gable::bench::report {

// {"groups": panels with their roofs, "series" and "precisions" with the paths of their marks, "facets", "points"}.
// A point has the text of its card as [[name, value], …], its facets, and its numbers in SI units.
nlohmann::json page_data(const Studies& studies);

// "74.0 %"; a dash for no value.
std::string percent_text(const std::optional<double>& percent);

}  // namespace gable::bench::report
