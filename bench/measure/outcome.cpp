// See outcome.h.
#include "bench/measure/outcome.h"

#include "bench/report/text.h"
#include "bench/workloads/problem.h"

namespace gable::bench {
namespace {

/// "device can't run this:\n  a: why\n  b: why" as "a: why; b: why": the device and the op stand beside it anyway.
std::string one_line(std::string text) {
  const std::size_t headline = text.find(":\n");
  if (headline != std::string::npos) text.erase(0, text.find_first_not_of(" \n", headline + 1));
  std::string line;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\n') {
      line += text[i];
      continue;
    }
    while (i + 1 < text.size() && text[i + 1] == ' ') ++i;
    line += "; ";
  }
  return line;
}

}  // namespace

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

void Outcome::count(const Error& error) {
  invalid += error.code() == ErrorCode::invalid_argument ? 1 : 0;
  no_memory += error.code() == ErrorCode::out_of_memory ? 1 : 0;
  failed += error.code() == ErrorCode::device_failure ? 1 : 0;
}

void Outcome::refuse(const Case& one, const std::string& device, const Error& error) {
  count(error);
  refused.push_back({.suite = one.suite,
                     .name = one.name,
                     .problem = descriptor(one.op),
                     .dtype = std::string(to_string(dtype_of(one.op))),
                     .math = std::string(to_string(math_of(one.op))),
                     .device = device,
                     .reason = one_line(error.what())});
}

void Outcome::refuse(const BandwidthCase& one, const std::string& device, const Error& error) {
  count(error);
  refused.push_back({.suite = one.suite,
                     .name = one.name,
                     .problem = report::bytes_text(static_cast<double>(one.bytes)),
                     .dtype = "f32",
                     .math = "",
                     .device = device,
                     .reason = one_line(error.what())});
}

void Outcome::refuse(const GraphCase& one, const std::string& device, const Error& error) {
  count(error);
  refused.push_back({.suite = one.suite,
                     .name = one.name,
                     .problem = problem_of(one),
                     .dtype = "f32",
                     .math = "",
                     .device = device,
                     .reason = one_line(error.what())});
}

ExitCode Outcome::exit_code() const {
  if (mismatched > 0) return kCheckFailed;
  if (malformed > 0 || (invalid > 0 && ran == 0)) return kBadInput;
  if (failed > 0) return kFailure;
  if (ran > 0) return kDone;
  return no_memory > 0 ? kFailure : kUnsupported;
}

}  // namespace gable::bench
