// The fuzzers' targets (fuzz/targets.h) on their corpus and on simple changes of it: what a fuzzer found stays mended,
// and the targets compile and hold in every build, with sanitizers too. `./run fuzz` looks for more.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz/targets.h"

using namespace gable;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> corpus_of(const std::string& target) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(GABLE_FUZZ_CORPUS) / target))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> inputs{""};
  for (const fs::path& file : files) {
    std::ifstream stream(file, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  return inputs;
}

/// A byte changed, removed, inserted, or a piece of another input put in.
std::string changed(std::string text, const std::vector<std::string>& corpus, std::mt19937_64& random) {
  for (std::uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
    const std::size_t at = random() % (text.size() + 1);
    switch (random() % 4) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(random());
        break;
      case 1:
        if (at < text.size()) text.erase(at, 1 + random() % 8);
        break;
      case 2:
        text.insert(at, 1, static_cast<char>(random()));
        break;
      default: {
        const std::string& other = corpus[random() % corpus.size()];
        const std::size_t from = random() % (other.size() + 1);
        text.insert(at, other.substr(from, random() % 16));
      }
    }
  }
  return text;
}

}  // namespace

TEST_CASE("every target holds on its corpus and on changes of it") {
  constexpr auto kTime = std::chrono::milliseconds(700);
  for (const fuzz::Target& target : fuzz::kTargets) {
    CAPTURE(target.name);
    const std::vector<std::string> corpus = corpus_of(target.name);
    CHECK(corpus.size() > 1);
    for (const std::string& input : corpus) CHECK_NOTHROW(target.run(input));
    std::mt19937_64 random(1);
    const auto end = std::chrono::steady_clock::now() + kTime;
    for (int n = 0; n < 20000 && std::chrono::steady_clock::now() < end; ++n) {
      const std::string input = changed(corpus[random() % corpus.size()], corpus, random);
      CAPTURE(input);
      CHECK_NOTHROW(target.run(input));
    }
  }
}
