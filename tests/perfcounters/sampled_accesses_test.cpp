// The addresses that a program accesses, seen at random times, on programs of known accesses.
#include "perfcounters/program/sampled_accesses.h"

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

using namespace gable::perf;

namespace {

constexpr double kSeconds = 30;

std::vector<std::string> planted(const std::string& name) { return {GABLE_PLANTED, name}; }

/// Whether this system lets a program be traced, and this build can read instructions.
bool can_sample() { return sample_accesses(planted("waiting"), kSeconds, 0).has_value(); }

}  // namespace

TEST_CASE("loads that cross cache lines are seen, and not where there are none") {
  if (!can_sample()) return;
  const auto across = sample_accesses(planted("unaligned"), kSeconds, 0);
  REQUIRE(across);
  CHECK(across->stops >= 5);
  CHECK(across->accesses > 0.2 * across->instructions);
  CHECK(across->across_lines > 0.8 * across->accesses);
  const auto aligned = sample_accesses(planted("strided"), kSeconds, 0);
  REQUIRE(aligned);
  CHECK(aligned->accesses > 0);
  CHECK(aligned->across_lines < 0.05 * aligned->accesses);
}

TEST_CASE("threads and processes of a program are seen, too") {
  if (!can_sample()) return;
  const auto threads = sample_accesses(planted("false_sharing"), kSeconds, 0);
  REQUIRE(threads);
  CHECK(threads->stops > 5);
  const auto process = sample_accesses({"sh", "-c", "\"$0\" unaligned; exit 3", GABLE_PLANTED}, kSeconds, 3);
  REQUIRE(process);
  CHECK(process->across_lines > 0.5 * process->accesses);
}

TEST_CASE("a sampled program that ends otherwise, or does not end in time, tells nothing") {
  CHECK_FALSE(sample_accesses(planted("waiting"), kSeconds, 7));
  CHECK_FALSE(sample_accesses({"/nowhere/app"}, kSeconds, 0));
  const auto start = std::chrono::steady_clock::now();
  CHECK_FALSE(sample_accesses({"sleep", "60"}, 0.1, 0));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
}
