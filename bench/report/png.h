// roofline.png, by librsvg's command: a renderer of its own would be more code than the rest of the report.
#pragma once

#include <filesystem>
#include <string>

namespace gable::bench::report {

// Renders an SVG document with concrete colours (svg(…, Colours::light)) at `zoom` pixels a unit. Throws
// std::runtime_error when `program` is missing (naming the package to install) or fails (with its own words); the
// destination is then untouched.
void write_png(const std::string& svg, const std::filesystem::path& destination, double zoom = 2,
               const std::string& program = "rsvg-convert");

}  // namespace gable::bench::report
