// What a handle holds, or the error of one that was moved from: use after a move is a mistake that shows itself.
#pragma once

#include <gable/error.h>

#include <string>

namespace gable {

/// `what` as in "this plan".
template <typename Pointer>
auto& there(const Pointer& held, const char* what) {
  if (!held) throw Error(ErrorCode::invalid_argument, std::string(what) + " was moved from: it holds nothing");
  return *held;
}

}  // namespace gable
