// The page's style sheet and script (page/page.css, page/*.js), embedded by the build.
#pragma once

#include <string_view>

namespace gable::bench::report {

extern const std::string_view kPageCss;
extern const std::string_view kPageScript;

}  // namespace gable::bench::report
