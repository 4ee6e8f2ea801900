// `gable run conv2d` on files of NumPy.
#include <doctest/doctest.h>
#include <gable/dtype.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bench/cli/npy.h"
#include "tests/bench/command_run.h"

using namespace gable;
using namespace gable::bench;
using namespace gable::commands;

namespace {

/// x of (1, 2, 2, 2) and weights of (2, 2, 1, 1) that swap the channels and double the first.
struct Swap {
  explicit Swap(const Folder& folder) {
    const std::vector<float> x{1, 2, 3, 4, 5, 6, 7, 8};
    const std::vector<float> weights{0, 2, 1, 0};
    write_npy(folder.file("x.npy"), DType::f32, {1, 2, 2, 2}, x.data());
    write_npy(folder.file("w.npy"), DType::f32, {2, 2, 1, 1}, weights.data());
    files = " --x '" + folder.file("x.npy") + "' --weights '" + folder.file("w.npy") + "' --output '" +
            folder.file("y.npy") + "'";
  }
  std::string files;
};

constexpr const char* kSwapProblem = "run conv2d --device reference --problem mb1ic2ih2oc2kh1";

std::vector<float> read_floats(const std::string& path) {
  NpyReader reader(path);
  std::vector<float> data(reader.bytes() / 4);
  reader.read(data.data());
  return data;
}

}  // namespace

TEST_CASE("run conv2d computes on files") {
  const Folder folder;
  const Swap swap(folder);
  const Result result = run_command(kSwapProblem + swap.files);
  CHECK(result.code == 0);
  CHECK(NpyReader(folder.file("y.npy")).shape() == NpyShape{1, 2, 2, 2});
  CHECK(read_floats(folder.file("y.npy")) == std::vector<float>{10, 12, 14, 16, 1, 2, 3, 4});
}

TEST_CASE("run conv2d adds a bias, pools, and rounds to bf16 in f32 files") {
  const Folder folder;
  const Swap swap(folder);
  const std::vector<float> bias{0.5F, -100};
  write_npy(folder.file("b.npy"), DType::f32, {2}, bias.data());
  const Result result = run_command(kSwapProblem + swap.files + " --bias '" + folder.file("b.npy") +
                                    "' --activation relu --max-pool 2 --dtype bf16");
  CHECK(result.code == 0);
  CHECK(NpyReader(folder.file("y.npy")).shape() == NpyShape{1, 2, 1, 1});
  CHECK(read_floats(folder.file("y.npy")) == std::vector<float>{16.5F, 0});
}

TEST_CASE("run conv2d takes nhwc files in the order of memory") {
  const Folder folder;
  const Swap swap(folder);
  const Result result = run_command(kSwapProblem + swap.files + " --layout nhwc");
  CHECK(result.code == 0);
  CHECK(read_floats(folder.file("y.npy")) == std::vector<float>{4, 1, 8, 3, 12, 5, 16, 7});
}

TEST_CASE("run conv2d in f16 follows x") {
  const Folder folder;
  const std::vector<std::uint16_t> x{f16_from_float(1), f16_from_float(2)};
  const std::vector<std::uint16_t> weights{f16_from_float(3)};
  write_npy(folder.file("x.npy"), DType::f16, {1, 1, 1, 2}, x.data());
  write_npy(folder.file("w.npy"), DType::f16, {1, 1, 1, 1}, weights.data());
  const Result result =
      run_command("run conv2d --device reference --problem mb1ic1ih1iw2oc1kh1kw1 --x '" + folder.file("x.npy") +
                  "' --weights '" + folder.file("w.npy") + "' --output '" + folder.file("y.npy") + "'");
  CHECK(result.code == 0);
  NpyReader y(folder.file("y.npy"));
  REQUIRE(y.dtype() == DType::f16);
  std::vector<std::uint16_t> data(2);
  y.read(data.data());
  CHECK(data == std::vector<std::uint16_t>{f16_from_float(3), f16_from_float(6)});
}

TEST_CASE("run conv2d refuses what doesn't fit, and leaves no output") {
  const Folder folder;
  const Swap swap(folder);
  std::ofstream(folder.file("cut.npy"), std::ios::binary) << read_text(folder.file("x.npy")).substr(0, 140);
  const std::string cut = " --weights '" + folder.file("w.npy") + "' --x '" + folder.file("cut.npy") + "' --output '" +
                          folder.file("y.npy") + "'";
  struct Misuse {
    std::string arguments;
    int code;
    std::string message;
  };
  const std::vector<Misuse> all{
      {kSwapProblem + cut, 2, "holds 12 bytes of data, but shape (1, 2, 2, 2) of f32 needs 32"},
      {"run conv2d --device reference --problem mb1ic3ih2oc2kh1" + swap.files, 2, "but x must be (1, 3, 2, 2)"},
      {"run conv2d --device reference --problem mb1ic2ih2oc3kh1" + swap.files, 2, "but weights must be (3, 2, 1, 1)"},
      {kSwapProblem + swap.files + " --dtype f16", 2, "holds f32, but x of a f16 convolution must be f16"},
      {kSwapProblem + swap.files + " --max-pool 3", 2, "max_pool"},
      {kSwapProblem + swap.files + " --math split3", 3, "split3"},
      {"run conv2d --device nonsense --problem mb1ic2ih2oc2kh1" + swap.files, 3, "nonsense"},
      {kSwapProblem + swap.files + " --output '" + folder.file("none/y.npy") + "'", 2, "--output"}};
  for (const Misuse& misuse : all) {
    CAPTURE(misuse.arguments);
    const Result result = run_command(misuse.arguments);
    CHECK(result.code == misuse.code);
    CHECK_MESSAGE(contains(result.err, misuse.message), result.err);
    CHECK(folder.names().size() == 3);
  }
  const Result nowhere = run_command(std::string(kSwapProblem) + " --output '" + folder.file("none/y.npy") + "'");
  CHECK(nowhere.code == 2);
  CHECK(contains(nowhere.err, "does not exist"));
}
