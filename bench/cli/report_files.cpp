// See report_files.h.
#include "bench/cli/report_files.h"

#include <fmt/format.h>
#include <gable/error.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/common/files.h"
#include "bench/record/study_json.h"
#include "bench/report/report.h"
#include "bench/report/study.h"

namespace gable::bench {

std::string report_folder(const std::string& out) { return out.empty() ? "report" : out; }

void make_report_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw Error(ErrorCode::invalid_argument, fmt::format("--out '{}': can't be made: {}", folder, error.message()));
  }
  check_writable((std::filesystem::path(folder) / "study.json").string());
}

void write_study_report(const nlohmann::json& document, const std::string& folder, Console& console) {
  write_file((std::filesystem::path(folder) / "study.json").string(), {json_text(document)});
  const std::string no_png = report::write_report(report::merge({document}), folder);
  print_whereabouts(folder, true, no_png, console);
}

void print_whereabouts(const std::string& folder, bool with_study, const std::string& no_png, Console& console) {
  console.print(
      fmt::format("\nThe report is in {0}: open {0}/index.html, or look at {0}/roofline.svg{1};\n"
                  "the numbers are in {0}/study.csv{2}",
                  folder, no_png.empty() ? ", .pdf and .png" : "", with_study ? " and " + folder + "/study.json" : ""));
  if (!no_png.empty()) console.print(no_png);
}

}  // namespace gable::bench
