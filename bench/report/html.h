// index.html: one file that needs no network. Figure, tables and text are in the markup, so the page can be read
// without its script. The script adds the hover card, the filters, the sorting and the choice of light or dark.
#pragma once

#include <string>

#include "bench/report/study.h"

namespace gable::bench::report {

std::string html(const Studies& studies);

}  // namespace gable::bench::report
