// Prints what a region costs: begin and end together, in ns. Without arguments it runs itself again under a listener
// and prints both, medians of five rounds.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "gable/region.h"
#include "perfcounters/program/launch.h"
#include "perfcounters/program/session.h"

namespace {

double nanoseconds_of_a_pair(int pairs) {
  std::array<double, 5> rounds{};
  for (double& round : rounds) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < pairs; ++i) {
      GABLE_REGION("empty");
      asm volatile("" ::: "memory");
    }
    round = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / pairs;
  }
  std::sort(rounds.begin(), rounds.end());
  return 1e9 * rounds[rounds.size() / 2];
}

int pairs_with_listener() {
  constexpr int kPairs = 1000000;
  fmt::print("with a listener: {:.1f} ns", nanoseconds_of_a_pair(kPairs));
  double inner = 0;
  {
    GABLE_REGION("outer");
    inner = nanoseconds_of_a_pair(kPairs);
  }
  fmt::print(", inside another region: {:.1f} ns", inner);
  double slowest = 0;
  std::thread other([&] { slowest = nanoseconds_of_a_pair(kPairs); });
  slowest = std::max(slowest, nanoseconds_of_a_pair(kPairs));
  other.join();
  fmt::print(", in two threads at once: {:.1f} ns\n", slowest);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--with-listener") == 0) return pairs_with_listener();
  fmt::print("nobody listens: {:.2f} ns\n", nanoseconds_of_a_pair(100000000));
  std::fflush(stdout);
  std::string folder = (std::filesystem::temp_directory_path() / "gable_regions_XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 1;
  using namespace gable::perf;
  const LaunchEnd end =
      launch({.argv = {argv[0], "--with-listener"}, .environment = session_environment(folder, SessionMode::time)});
  for (const RegionRecord& region : read_session(folder).regions)
    fmt::print("  {}: {} calls, median {:.1f} ns\n", region.path, region.times.calls, 1e9 * region.times.median);
  std::filesystem::remove_all(folder);
  return end.status();
}
