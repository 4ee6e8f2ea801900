// See outcome.h.
#include "bench/outcome.h"

#include "bench/problem.h"

namespace gable::bench {

ExitCode exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return kBadInput;
    case ErrorCode::unsupported:
    case ErrorCode::unavailable:
      return kUnsupported;
    case ErrorCode::device_failure:
    case ErrorCode::out_of_memory:
      break;
  }
  return kFailure;
}

void Outcome::refuse(const Case& one, const std::string& device, const Error& error) {
  invalid += error.code() == ErrorCode::invalid_argument ? 1 : 0;
  failed += bench::exit_code(error.code()) == kFailure ? 1 : 0;
  refused.push_back({.suite = one.suite,
                     .name = one.name,
                     .problem = descriptor(one.conv),
                     .dtype = std::string(to_string(one.conv.dtype)),
                     .device = device,
                     .reason = error.what()});
}

ExitCode Outcome::exit_code() const {
  if (mismatched > 0) return kCheckFailed;
  if (malformed > 0 || (invalid > 0 && ran == 0)) return kBadInput;
  if (failed > 0) return kFailure;
  return ran == 0 ? kUnsupported : kDone;
}

}  // namespace gable::bench
