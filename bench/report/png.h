// roofline.png and roofline.pdf, drawn by librsvg's command: a renderer of gable's own would be larger than the rest of
// the report.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>

namespace gable::bench::report {

// The drawing program is not installed; the message names its package.
class NoRenderer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Renders an SVG document at `zoom` pixels a unit. Throws NoRenderer when `program` is missing and std::runtime_error
// when it fails (with its own words); perf::Interrupted if a signal arrived. The destination is then untouched.
void write_png(const std::string& svg, const std::filesystem::path& destination, double zoom = 2,
               const std::string& program = "rsvg-convert");
// The same as a PDF, with vectors and text.
void write_pdf(const std::string& svg, const std::filesystem::path& destination,
               const std::string& program = "rsvg-convert");

}  // namespace gable::bench::report
