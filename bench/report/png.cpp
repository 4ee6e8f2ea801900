// Running rsvg-convert: no shell, so no path or name is ever interpreted.
#include "bench/report/png.h"

#include <fmt/format.h>

#include <stdexcept>
#include <vector>

#include "bench/common/files.h"
#include "perfcounters/interrupt.h"
#include "perfcounters/sources/child_process.h"

namespace gable::bench::report {
namespace {

constexpr double kMaxSeconds = 300;  // of a drawing

// `how` are the program's options.
void render(const std::string& svg, const std::filesystem::path& destination, const std::vector<std::string>& how,
            const std::string& program) {
  // An absolute path can't be mistaken for an option.
  const std::filesystem::path target = std::filesystem::absolute(destination);
  if (perf::find_program(program).empty()) {
    throw NoRenderer(
        fmt::format("no program \"{}\" on PATH to draw the PNG and the PDF: install the package librsvg2-bin "
                    "(apt-get install librsvg2-bin)",
                    program));
  }
  TemporaryFile source(target), image(target);
  source.write({svg});
  std::vector<std::string> arguments = {program};
  arguments.insert(arguments.end(), how.begin(), how.end());
  arguments.insert(arguments.end(), {"--output=" + image.path().string(), source.path().string()});
  const perf::ChildResult end = perf::run_child(arguments, kMaxSeconds);
  if (end.interrupted) throw perf::Interrupted{};
  if (!end.succeeded()) throw std::runtime_error(fmt::format("\"{}\": {}", program, end.failure()));
  image.rename_to(target);
}

}  // namespace

void write_png(const std::string& svg, const std::filesystem::path& destination, double zoom,
               const std::string& program) {
  render(svg, destination, {"--format=png", fmt::format("--zoom={}", zoom)}, program);
}

void write_pdf(const std::string& svg, const std::filesystem::path& destination, const std::string& program) {
  render(svg, destination, {"--format=pdf"}, program);
}

}  // namespace gable::bench::report
