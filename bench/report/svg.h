// Drawing a Figure as SVG.
#pragma once

#include <string>

#include "bench/report/figure.h"

namespace gable::bench::report {

// A standalone document with title, panels, legend and key; each point has a native tooltip. Its looks are plain
// attributes with the light scheme's colours: a figure that browsers, librsvg, Inkscape, office programs and papers
// show alike.
std::string svg(const Studies& studies);

// For the HTML page: an <svg> element without its own style, shown where no script runs.
std::string inline_svg(const Studies& studies, FigureSize size);

// The style rules of the figure, with var(--…) colours, and the custom properties of each scheme.
std::string figure_rules();
std::string scheme_properties(bool dark);

}  // namespace gable::bench::report
