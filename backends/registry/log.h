// Words to the application, through the callback of gable/choose.h.
#pragma once

#include <string_view>

namespace gable {

/// Never throws.
void log_word(std::string_view message) noexcept;

}  // namespace gable
