// Writing the report's files.
#include "bench/report/report.h"

#include <stdexcept>

#include "bench/report/csv.h"
#include "bench/report/files.h"
#include "bench/report/html.h"
#include "bench/report/png.h"
#include "bench/report/study.h"
#include "bench/report/svg.h"

namespace gable::bench::report {

std::string write_report(const std::vector<nlohmann::json>& studies, const std::filesystem::path& out_dir) {
  if (studies.empty()) throw std::invalid_argument("no study to report: at least one JSON document is needed");
  const Studies merged = merge(studies);
  std::filesystem::create_directories(out_dir);
  write_whole(out_dir / "study.csv", csv(merged));
  write_whole(out_dir / "roofline.svg", svg(merged));
  write_whole(out_dir / "index.html", html(merged));
  try {
    write_png(svg(merged, Colours::light), out_dir / "roofline.png");
  } catch (const NoRenderer& error) {
    return error.what();
  }
  return "";
}

}  // namespace gable::bench::report
