// Writing the report's files.
#include "bench/report/report.h"

#include <stdexcept>

#include "bench/common/files.h"
#include "bench/report/csv.h"
#include "bench/report/html.h"
#include "bench/report/png.h"
#include "bench/report/study.h"
#include "bench/report/svg.h"
#include "perfcounters/interrupt.h"

namespace gable::bench::report {

std::string write_report(const Studies& studies, const std::filesystem::path& out_dir) {
  if (studies.machines.empty()) throw std::invalid_argument("no study to report: at least one JSON document is needed");
  // All is made before anything is written: a report is whole, or the folder is as it was.
  const std::string rows = csv(studies), drawing = svg(studies), page = html(studies);
  std::filesystem::create_directories(out_dir);
  write_whole(out_dir / "study.csv", {rows});
  write_whole(out_dir / "roofline.svg", {drawing});
  write_whole(out_dir / "index.html", {page});
  try {
    write_png(drawing, out_dir / "roofline.png");
    write_pdf(drawing, out_dir / "roofline.pdf");
  } catch (const NoRenderer& error) {
    return error.what();
  } catch (const perf::Interrupted&) {
    for (const char* name : {"roofline.png", "roofline.pdf"})
      std::filesystem::remove(out_dir / name);  // another study's
    return "interrupted: no PNG and no PDF; gable plot draws them";
  }
  return "";
}

}  // namespace gable::bench::report
