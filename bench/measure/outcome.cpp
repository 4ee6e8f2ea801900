// See outcome.h.
#include "bench/measure/outcome.h"

#include <string>
#include <utility>

namespace gable::bench {
namespace {

/// "device can't run this:\n  a: why\n  b: why" as "a: why; b: why": the refusal names the device and the op already.
std::string one_line(std::string text) {
  const std::size_t headline = text.find(":\n");
  if (headline != std::string::npos) text.erase(0, text.find_first_not_of(" \n", headline + 1));
  while (text.ends_with('\n')) text.pop_back();
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

void Outcome::refuse(const Identity& one, const std::string& device, const Error& error,
                     std::vector<KernelRefusal> kernels) {
  invalid += error.code() == ErrorCode::invalid_argument ? 1 : 0;
  no_memory += error.code() == ErrorCode::out_of_memory ? 1 : 0;
  failed += error.code() == ErrorCode::device_failure ? 1 : 0;
  add(Refusal{.suite = one.suite,
              .name = one.name,
              .problem = one.problem,
              .dtype = one.dtype,
              .math = one.math,
              .device = device,
              .reason = one_line(error.what()),
              .kernels = std::move(kernels)});
}

void Outcome::add(const std::vector<Refusal>& more) {
  for (const Refusal& refusal : more) add(refusal);
}

/// A case that no device can run is found twice: in the CPU part of a study and in the GPU part.
void Outcome::add(Refusal refusal) {
  if (refusal.device.empty()) {
    std::string fields;
    for (const std::string* field :
         {&refusal.suite, &refusal.name, &refusal.problem, &refusal.dtype, &refusal.math, &refusal.reason}) {
      fields += *field + '\0';
    }
    if (!everywhere_.insert(std::move(fields)).second) return;
  }
  refused.push_back(std::move(refusal));
}

ExitCode Outcome::exit_code() const {
  if (mismatched > 0) return kCheckFailed;
  if (malformed > 0 || (invalid > 0 && ran == 0)) return kBadInput;
  if (failed > 0) return kFailure;
  if (ran > 0) return kDone;
  return no_memory > 0 ? kFailure : kUnsupported;
}

}  // namespace gable::bench
