// The report of one or several studies: study.csv, roofline.svg, roofline.png and index.html in one folder.
#pragma once

#include <filesystem>
#include <string>

#include "bench/report/study.h"

namespace gable::bench::report {

// Creates the folder; each file appears whole or not at all. Throws std::invalid_argument when there is no study,
// filesystem_error, and (after the other files are written) std::runtime_error when drawing the PNG fails. Returns
// the reason if there is no PNG because the renderer is missing or a signal came (perfcounters/interrupt.h), else "".
std::string write_report(const Studies& studies, const std::filesystem::path& out_dir);

}  // namespace gable::bench::report
