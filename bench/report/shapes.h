// The looks of a point: its outline tells the series, the glyph inside the precision (as its colour does).
#pragma once

#include <string>

namespace gable::bench::report {

// The outline of a series as the data of an SVG path around the origin, about 1 in radius. No two ranks have the same.
std::string shape_path(size_t rank);

// The mark inside the outline, in the same units; empty for f32.
std::string glyph_path(const std::string& precision);

// `path`, with every number times `factor`. The paths above have no arcs, whose flags are no lengths.
std::string scaled_path(const std::string& path, double factor);

}  // namespace gable::bench::report
