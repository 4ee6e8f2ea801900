// Texts that a user writes: descriptors, lists, device URIs.
#include <gable/backend.h>
#include <gable/error.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include "bench/workloads/problem.h"
#include "fuzz/targets.h"

namespace gable::fuzz {

void fail(std::string_view what) {
  std::fprintf(stderr, "fuzz: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

void problem(std::string_view data) {
  Conv2d conv;
  try {
    conv = bench::parse_problem(data).conv;
  } catch (const Error&) {
    return;
  }
  const std::string canonical = bench::descriptor(conv);
  Conv2d again = bench::parse_problem(canonical).conv;
  // Padding that no window reads is not part of a descriptor.
  again.padding = conv.padding;
  if (!(again == conv)) fail("the descriptor " + canonical + " reads back as another convolution");
}

void list(std::string_view data) {
  std::istringstream text{std::string(data)};
  for (const bench::ListEntry& entry : bench::parse_list(text)) {
    if (entry.problem.has_value() != entry.refusal.empty())
      fail("an entry has neither a problem nor a reason, or both");
    if (entry.line == 0) fail("an entry has no line");
  }
}

void device_uri(std::string_view data) {
  DeviceUri uri;
  try {
    uri = parse_device_uri(data);
    check_options(uri, {"threads", "kernel"});
    integer_option(uri, "threads", 1, 1024, 1);
  } catch (const Error&) {
    return;
  }
  const DeviceUri again = parse_device_uri(to_string(uri));
  if (again.backend != uri.backend || again.selector != uri.selector || again.options != uri.options)
    fail("the URI " + to_string(uri) + " reads back as another");
}

}  // namespace gable::fuzz
