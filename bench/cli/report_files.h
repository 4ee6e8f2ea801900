// The folder of a report: study.json beside the page, the figure and the table.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/console/console.h"

namespace gable::bench {

/// --out, or "report".
std::string report_folder(const std::string& out);

/// Checks the output folder now instead of after minutes of measuring. Throws Error(invalid_argument).
void make_report_folder(const std::string& folder);

/// study.json and the report of this one study; says where they are.
void write_study_report(const nlohmann::json& document, const std::string& folder, Console& console);

/// `no_png`: the reason why there is no PNG, or empty.
void print_whereabouts(const std::string& folder, bool with_study, const std::string& no_png, Console& console);

}  // namespace gable::bench
