// The points of a panel, the stems between those of one problem, and their labels. Used by figure.cpp alone.
#pragma once

#include <string>
#include <vector>

#include "bench/report/figure.h"
#include "bench/report/figure_axes.h"

namespace gable::bench::report {

Marker marker_of(const Studies& studies, size_t index, const std::vector<std::string>& series, const Scale& scale);

// The names that numbers stand for, in the order of the rows. A key of thousands of names would be no key.
std::vector<std::string> key_of(const Studies& studies);

// Adds stems, and labels around everything that is in the plot: names, or numbers where names have no room or if
// `numbered`.
void label_panel(Panel& panel, const Studies& studies, bool numbered);

}  // namespace gable::bench::report
