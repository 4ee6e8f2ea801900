// The addresses that a program accesses, seen at random times, on programs of known accesses.
#include "perfcounters/program/sampled_accesses.h"

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

using namespace gable::perf;

namespace {

constexpr double kSeconds = 600;  // for a program that takes a tenth of one, on a machine that does much else
constexpr int kStops = 20;        // of which few are in the program's start
constexpr int kLongest = 32;

std::vector<std::string> planted(const std::string& name, int scale = 1) {
  return {GABLE_PLANTED, name, std::to_string(scale)};
}

/// Whether this system lets a program be traced, and this build can read instructions.
bool can_sample() { return sample_accesses(planted("waiting"), kSeconds, 0).has_value(); }

/// Of runs that take twice as long each, the first with enough stops: how many there are in a second is up to the
/// machine. The last run if none has them.
SampledAccesses sample(const std::function<std::vector<std::string>(int scale)>& argv, int status = 0) {
  SampledAccesses seen;
  for (int scale = 1; scale <= kLongest && seen.stops < kStops; scale *= 2) {
    const auto run = sample_accesses(argv(scale), kSeconds, status);
    REQUIRE(run);
    seen = *run;
  }
  CHECK(seen.stops >= kStops);
  return seen;
}

SampledAccesses sample_planted(const std::string& name) {
  return sample([&](int scale) { return planted(name, scale); });
}

}  // namespace

TEST_CASE("loads that cross cache lines are seen, and not where there are none") {
  if (!can_sample()) return;
  const SampledAccesses across = sample_planted("unaligned");
  CHECK(across.accesses > 0.2 * across.instructions);
  CHECK(across.across_lines > 0.8 * across.accesses);
  const SampledAccesses aligned = sample_planted("strided");
  CHECK(aligned.accesses > 0);
  CHECK(aligned.across_lines < 0.05 * aligned.accesses);
}

TEST_CASE("threads and processes of a program are seen, too") {
  if (!can_sample()) return;
  const SampledAccesses thread = sample_planted("unaligned_thread");
  CHECK(thread.across_lines > 0.5 * thread.accesses);
  const SampledAccesses process = sample(
      [](int scale) {
        return std::vector<std::string>{"sh", "-c", "\"$0\" unaligned \"$1\"; exit 3", GABLE_PLANTED,
                                        std::to_string(scale)};
      },
      3);
  CHECK(process.across_lines > 0.5 * process.accesses);
}

// A fork stops its program, which ends an interrupt that came meanwhile. That must not be waited for.
TEST_CASE("a program that forks is stopped after that, too") {
  if (!can_sample()) return;
  const SampledAccesses after = sample_planted("unaligned_after_forks");
  CHECK(after.across_lines > 0.5 * after.accesses);
}

// A system call that is stepped over may wait for a thread that has stopped for the tracer.
TEST_CASE("threads that wait for each other do not wait for the tracer") {
  if (!can_sample()) return;
  CHECK(sample_accesses(planted("handing_over", 5), kSeconds, 0));
}

TEST_CASE("a sampled program that ends otherwise, or does not end in time, tells nothing") {
  CHECK_FALSE(sample_accesses(planted("waiting"), kSeconds, 7));
  CHECK_FALSE(sample_accesses({"/nowhere/app"}, kSeconds, 0));
  CHECK_FALSE(sample_accesses({"sleep", "600"}, 0.1, 0));
}
