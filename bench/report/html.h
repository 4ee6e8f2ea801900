// index.html: one file that needs no network. Figure, tables and words are in the markup, so that it can be read
// without its script; the script adds the hover card, the filters, the sorting and the choice of light or dark.
#pragma once

#include <string>

#include "bench/report/study.h"

namespace gable::bench::report {

std::string html(const Studies& studies);

}  // namespace gable::bench::report
