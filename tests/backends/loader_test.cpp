// The loader against plugins that are wrong in every way a file can be: each is listed with the reason, in the dynamic
// loader's own words where they are its, and the rest works on.
#include <doctest/doctest.h>
#include <gable/abi.h>
#include <gable/gable.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/tools/expect.h"

namespace gable {
namespace {

/// Half of the plugin, with all of its headers at the begin.
void make_truncated(const std::string& plugin, const std::string& half) {
  std::filesystem::copy_file(plugin, half, std::filesystem::copy_options::overwrite_existing);
  std::filesystem::resize_file(half, std::filesystem::file_size(half) / 2);
}

/// Before the first call into gable: the registry reads the path once. The current folder holds a plugin, too.
const bool kEnvironmentIsSet = [] {
  const std::string folder = GABLE_TEST_PLUGINS;
  make_truncated(folder + "/found/libgable_working.so", folder + "/found/libgable_truncated.so");
  const std::string fifo = folder + "/found/libgable_fifo.so";
  unlink(fifo.c_str());
  if (mkfifo(fifo.c_str(), 0600) != 0) return false;
  const std::string path = folder + "/first::.:current:" + folder + "/not_there:" + folder + "/found:";
  unsetenv("GABLE_DEVICE");
  return setenv("GABLE_BACKEND_PATH", path.c_str(), 1) == 0 && chdir((folder + "/current").c_str()) == 0;
}();

std::vector<DeviceInfo> listed(const std::string& backend) {
  std::vector<DeviceInfo> found;
  for (const DeviceInfo& info : devices()) {
    if (info.backend == backend) found.push_back(info);
  }
  return found;
}

/// The message of the Error(unavailable) that `call` throws; empty if it throws none.
std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::unavailable);
    return error.what();
  }
  return "";
}

/// GABLE_DEVICE for the length of a scope.
class ChosenDevice {
 public:
  explicit ChosenDevice(const char* uri) { setenv("GABLE_DEVICE", uri, 1); }
  ~ChosenDevice() { unsetenv("GABLE_DEVICE"); }
  ChosenDevice(const ChosenDevice&) = delete;
  ChosenDevice& operator=(const ChosenDevice&) = delete;
};

TEST_CASE("a broken plugin is listed as unavailable, with its file and the loader's reason, and open() repeats it") {
  REQUIRE(kEnvironmentIsSet);
  struct Expectation {
    const char* backend;
    std::vector<std::string> words;
  };
  const std::vector<Expectation> expectations{
      {"garbage", {"libgable_garbage.so", "invalid ELF header"}},
      {"empty", {"libgable_empty.so", "file too short"}},
      {"wrong_version", {"libgable_wrong_version.so", "0.0.1", GABLE_VERSION_STRING}},
      {"wrong_abi",
       {"libgable_wrong_abi.so", "its ABI number is " + std::to_string(GABLE_PLUGIN_ABI + 1),
        "this gable's is " + std::to_string(GABLE_PLUGIN_ABI), "rebuild the plugin"}},
      {"no_abi", {"libgable_no_abi.so", "its ABI number is missing", "rebuild the plugin"}},
      {"no_entry", {"libgable_no_entry.so", "no entry gable_plugin"}},
      {"null_entry", {"libgable_null_entry.so", "gives no version"}},
      {"misnamed", {"libgable_misnamed.so", "'another'", "'misnamed'"}},
      {"throwing_make", {"the backend fell apart"}},
      {"throwing_probe", {"the driver is on fire"}},
      {"truncated", {"libgable_truncated.so", "the file is truncated", "copy it again"}},
      {"fifo", {"libgable_fifo.so", "is no regular file"}},
      {"orphan", {"libgable_test_dependency.so", "cannot open shared object file"}},
  };
  for (const Expectation& expected : expectations) {
    const std::string backend = expected.backend;
    INFO(backend);
    const std::vector<DeviceInfo> found = listed(backend);
    REQUIRE(found.size() == 1);
    CHECK_FALSE(found[0].available);
    CHECK(contains(found[0].library, "/found/libgable_" + backend + ".so"));
    const std::string message = refusal([&] { open(backend); });
    for (const std::string& word : expected.words) {
      CAPTURE(word);
      CHECK_MESSAGE(contains(found[0].reason, word), found[0].reason);
      CHECK_MESSAGE(contains(message, word), message);
    }
  }
}

TEST_CASE("a plugin among broken ones works, although an earlier folder has garbage under its name") {
  const std::vector<DeviceInfo> found = listed("working");
  REQUIRE(found.size() == 2);
  CHECK(found[0].available);
  CHECK(contains(found[0].library, "/found/libgable_working.so"));
  CHECK_FALSE(found[1].available);
  CHECK(contains(found[1].reason, "/first/libgable_working.so"));

  const Plan plan = open("working").plan(Add{.shape = {3}});
  const Tensor a(DType::f32, {3});
  const Tensor b(DType::f32, {3});
  const Tensor c(DType::f32, {3});
  for (int i = 0; i < 3; ++i) {
    a.as<float>()[i] = static_cast<float>(i);
    b.as<float>()[i] = 10.0f;
  }
  plan.run(a, b, c);
  CHECK(c.as<float>()[2] == 12.0f);
}

TEST_CASE("what libgable holds works beside broken plugins") {
  CHECK(open("reference").info().available);
  CHECK_FALSE(open("auto").query(Add{.shape = {3}}).empty());
}

TEST_CASE("the current folder is never searched: relative and empty entries are refused or skipped") {
  CHECK(listed("stray").empty());
  CHECK(contains(refusal([] { open("stray"); }), "no backend 'stray'"));
  const std::vector<DeviceInfo> refused = listed("GABLE_BACKEND_PATH");
  REQUIRE(refused.size() == 3);
  CHECK(contains(refused[2].reason, "/not_there' of GABLE_BACKEND_PATH is no folder"));
  CHECK(contains(refused[0].reason, "'.'"));
  CHECK(contains(refused[1].reason, "'current'"));
  for (std::size_t i : {0U, 1U}) CHECK(contains(refused[i].reason, "absolute"));
}

TEST_CASE("files that are not named libgable_<backend>.so are left alone") {
  for (const DeviceInfo& info : devices()) CHECK_FALSE(contains(info.library, "gable_ignored.so"));
}

TEST_CASE("devices() gives the same list when it is asked again") {
  const auto summary = [] {
    std::string text;
    for (const DeviceInfo& info : devices()) text += info.uri + "|" + info.reason + "\n";
    return text;
  };
  CHECK(summary() == summary());
}

TEST_CASE("GABLE_DEVICE decides what auto is") {
  CHECK(open("auto").info().backend != "working");
  const ChosenDevice chosen("working");
  CHECK(open("auto").info().uri == "working");
  CHECK(open("reference").info().uri == "reference");  // a device that is named stays it
}

TEST_CASE("GABLE_DEVICE and the device that is asked for may not contradict each other") {
  const ChosenDevice chosen("reference?threads=2");
  CHECK(open("auto?threads=2").info().uri == "reference?threads=2");
  try {
    open("auto?threads=1");
    FAIL("1 thread, but GABLE_DEVICE says 2");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::invalid_argument);
    CHECK(contains(error.what(), "says threads=2, but 'auto?threads=1' is asked for"));
  }
}

TEST_CASE("GABLE_DEVICE naming a device that is not there is refused with those that are") {
  {
    const ChosenDevice chosen("nonesuch");
    const std::string message = refusal([] { open("auto"); });
    for (const char* word : {"nonesuch", "auto", "reference", "working"}) {
      CAPTURE(word);
      CHECK_MESSAGE(contains(message, word), message);
    }
  }
  const ChosenDevice chosen("orphan");
  CHECK(contains(refusal([] { open("auto"); }), "libgable_test_dependency.so"));
}

}  // namespace
}  // namespace gable
