// Access to what a handle holds. Throws if the handle was moved from, so that use after a move does not go unnoticed.
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
