// The choices of `auto`: by the devices' models, by measured times, and where tensors lie. The devices are plugins of
// this test (plugins/choose_gpu.cpp).
#include <doctest/doctest.h>
#include <gable/gable.h>

#include <sys/stat.h>

#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>

#include "tests/tools/comma_locale.h"
#include "tests/tools/expect.h"

namespace gable {
namespace {

namespace fs = std::filesystem;

/// A folder of this process.
const fs::path& cache() {
  static const fs::path folder = [] {
    std::string name = (fs::temp_directory_path() / "gable_choose_XXXXXX").string();
    return fs::path(mkdtemp(name.data()));
  }();
  return folder;
}

struct RemoveCache {
  RemoveCache() { cache(); }  // made before, so destroyed after
  ~RemoveCache() { fs::remove_all(cache()); }
} const kRemoveCache;

/// Before the first call into gable: the registry reads the path once.
const bool kEnvironmentIsSet = [] {
  unsetenv("GABLE_DEVICE");
  setenv("GABLE_CACHE", cache().c_str(), 1);
  return setenv("GABLE_BACKEND_PATH", GABLE_TEST_PLUGINS "/choose", 1) == 0;
}();

constexpr const char* kBoth = "auto?only=choose_gpu,choose_host&memory=host";

Op add(std::int64_t elements) { return Add{.shape = {elements}}; }

/// What the log says meanwhile.
class Words {
 public:
  Words() {
    set_log([this](std::string_view word) { text_ += std::string(word) + "\n"; });
  }
  ~Words() { set_log({}); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void check_sum(const Plan& plan, std::int64_t elements) {
  const Tensor a(DType::f32, {elements}), b(DType::f32, {elements}), c(DType::f32, {elements});
  for (std::int64_t i = 0; i < elements; ++i) {
    a.as<float>()[i] = static_cast<float>(i);
    b.as<float>()[i] = 10;
    c.as<float>()[i] = -1;
  }
  plan.run(a, b, c);
  CHECK(c.as<float>()[0] == 10);
  CHECK(c.as<float>()[elements - 1] == static_cast<float>(elements - 1) + 10);
}

TEST_CASE("with host tensors a device of its own memory counts its copies, so that small ops stay on the host") {
  REQUIRE(kEnvironmentIsSet);
  const Device device = open(kBoth);
  CHECK(device.info().memory == Memory{});
  CHECK(device.tensor(DType::f32, {4}).view().memory == Memory{});

  const Ranking small = choose(device, add(1000));
  REQUIRE(small.first() != nullptr);
  CHECK(small.source == ChoiceSource::model);
  CHECK(small.first()->device == "choose_host");
  CHECK(small.first()->kernel == "slow");
  CHECK(small.first()->copies == 0);
  CHECK(small.first()->predicted.value() == doctest::Approx(4e-6));

  const std::int64_t many = 1 << 20;
  const Ranking large = choose(device, add(many));
  REQUIRE(large.first() != nullptr);
  // 4.2 ms on the host, three copies of 4.2 MB at 11 and 14 GB/s on the other.
  CHECK(large.first()->device == "choose_gpu");
  CHECK(large.first()->copies == doctest::Approx(3 * (8e-6 + 320e3 / 11.2e9 + (4 * many - 320e3) / 14.2e9)));
  CHECK(large.first()->predicted.value() == doctest::Approx(large.first()->copies + 1e-6));
  for (const Candidate& one : large.candidates) {
    if (one.device == "choose_gpu") CHECK(one.copies == large.first()->copies);
  }
  const Plan plan = device.plan(add(many));
  CHECK(plan.device_uri() == "choose_gpu");
  CHECK(contains(plan.explain(), "predicted (copies 928 us); choose_host 4.19 ms predicted"));
  check_sum(plan, many);
}

TEST_CASE("a host whose kernel estimates more than is predicted loses to a trip, if the trip is in reach") {
  const auto check_first = [](const char* uri, std::int64_t elements, double estimate, const char* device,
                              double seconds) {
    setenv("GABLE_TEST_ESTIMATE", std::to_string(estimate).c_str(), 1);
    const Ranking ranking = choose(open(uri), add(elements));
    unsetenv("GABLE_TEST_ESTIMATE");
    REQUIRE(ranking.first() != nullptr);
    CHECK(ranking.first()->device == device);
    CHECK(ranking.first()->predicted.value() == doctest::Approx(seconds));
  };
  const double trip = 1e-6 + 3 * (8e-6 + 32e3 / 11.2e9);  // 33.6 us; 32 on the host
  check_first(kBoth, 8000, 1.2, "choose_host", 32e-6);
  check_first(kBoth, 8000, 1.25, "choose_host", std::sqrt(1.25 / 1.2) * 32e-6);
  check_first(kBoth, 8000, 1.5, "choose_gpu", trip);
  check_first("auto?only=choose_host", 8000, 1.5, "choose_host", 32e-6);
  check_first(kBoth, 2000, 100, "choose_host", 8e-6);  // 27.1 us on the other
}

TEST_CASE("a host whose estimate is asked for is asked once, by a choice and by a plan") {
  const Device device = open(kBoth);
  setenv("GABLE_TEST_ASKED", "", 1);
  choose(device, add(8000));
  CHECK(std::string(std::getenv("GABLE_TEST_ASKED")) == "+");
  device.plan(add(8000));
  CHECK(std::string(std::getenv("GABLE_TEST_ASKED")) == "++");
  unsetenv("GABLE_TEST_ASKED");
}

TEST_CASE("a host's preferred device speaks for all of them") {
  setenv("GABLE_TEST_ESTIMATE", "4.8", 1);
  const Ranking ranking = choose(open("auto?only=choose_gpu,choose_host,choose_slow&memory=host"), add(32000));
  unsetenv("GABLE_TEST_ESTIMATE");
  // 64 us, twice the 32 of choose_slow alone, against 59.
  REQUIRE(ranking.first() != nullptr);
  CHECK(ranking.first()->device == "choose_gpu");
  for (const Candidate& one : ranking.candidates) {
    if (one.device == "choose_slow") CHECK(one.predicted.value() == doctest::Approx(64e-6));
  }
}

TEST_CASE("times and errors are the same text in a program whose locale writes 1,5") {
  const auto texts = [] {
    const Device device = open(kBoth);
    return device.plan(add(1 << 20)).explain() + message_of([&] { tune(device, add(8), -1.5); });
  };
  const std::string before = texts();
  CHECK(contains(before, "tune: -1.5 seconds"));
  const test::CommaLocale locale;
  REQUIRE(test::CommaLocale::works());
  CHECK(texts() == before);
}

TEST_CASE("a plan of a staged device copies its tensors there and back") {
  const std::int64_t elements = 1001;
  const Plan plan = open("auto?only=choose_gpu&memory=host").plan(add(elements));
  CHECK(plan.device_uri() == "choose_gpu");
  CHECK(plan.memory() == Memory{});
  CHECK(contains(plan.explain(), "each run copies them to cuda:7 and back"));
  CHECK(plan.workspace_bytes() >= 3 * 4 * elements);
  check_sum(plan, elements);
}

TEST_CASE("without ?memory= the best device's memory decides, as ever") {
  const Device device = open("auto?only=choose_gpu,choose_host");
  CHECK(device.info().memory == Memory{Memory::Kind::cuda, 7});
  const Plan plan = device.plan(add(8));
  CHECK(plan.device_uri() == "choose_gpu");
  CHECK(contains(plan.explain(), "passed over choose_host: its tensors lie in host memory"));
}

TEST_CASE("choose() of a memory ranks what can use it") {
  const Ranking host = choose(add(1000));
  REQUIRE(host.first() != nullptr);
  CHECK(host.first()->copies == 0);
  bool staged = false;
  for (const Candidate& one : host.candidates) staged = staged || (one.device == "choose_gpu" && one.copies > 0);
  CHECK(staged);
  const Ranking gpu = choose(add(1000), Memory{Memory::Kind::cuda, 7});
  REQUIRE(gpu.first() != nullptr);
  CHECK(gpu.first()->device == "choose_gpu");
  CHECK(gpu.first()->copies == 0);
  for (const Candidate& one : gpu.candidates) CHECK(one.device == "choose_gpu");
  message_of([] { choose(add(1000), Memory{Memory::Kind::cuda, 3}); }, ErrorCode::unavailable);
}

TEST_CASE("refusals come last, each with its reason; one device's ranking is its own") {
  const Op transpose = Transpose{.rows = 2, .columns = 3};
  const Ranking none = choose(open(kBoth), transpose);
  CHECK(none.first() == nullptr);
  REQUIRE(none.candidates.size() == 2);
  for (const Candidate& one : none.candidates) CHECK(one.refusal == "it only adds");
  const Ranking cpu = choose(open("cpu"), transpose);
  REQUIRE(cpu.first() != nullptr);
  CHECK(cpu.first()->kernel == "transpose");
  CHECK(cpu.first()->predicted.has_value());
  CHECK(contains(message_of([&] { tune(open("cpu"), transpose); }), "auto?only=cpu"));
  CHECK(contains(message_of([&] { tune(open(kBoth), transpose); }, ErrorCode::unsupported), "it only adds"));
}

TEST_CASE("cpu's predicted time is that of the taps that read the image") {
  const auto predicted = [](const Conv2d& conv) {
    const Ranking ranking = choose(open("cpu?threads=2"), conv);
    REQUIRE(ranking.first() != nullptr);
    return ranking.first()->predicted.value();
  };
  const Conv2d wide{.input = {1, 64, 4, 4}, .weights = {32, 64, 1, 21}, .padding = {0, 10}, .layout = Layout::nhwc};
  Conv2d kept = wide;  // columns 7 to 13
  kept.weights[3] = 7;
  kept.padding = {0, 3};
  CHECK(predicted(wide) == predicted(kept));
}

TEST_CASE("ranking does not ask a slow library; a plan that it refuses is the next device's, with its reason") {
  const Device device = open("auto?only=choose_host,choose_slow");
  const Ranking ranking = choose(device, add(4001));  // asked, it would refuse
  REQUIRE(ranking.first() != nullptr);
  CHECK(ranking.first()->device == "choose_slow");

  const Plan even = device.plan(add(4000));
  CHECK(even.device_uri() == "choose_slow");
  const Plan odd = device.plan(add(4001));
  CHECK(odd.device_uri() == "choose_host");
  CHECK(contains(odd.explain(), "auto chose choose_host"));
  CHECK(contains(odd.explain(), "passed over choose_slow; asked: its library takes even counts"));
  check_sum(odd, 4001);

  const Device alone = open("auto?only=choose_slow");
  const std::string why = message_of([&] { alone.plan(add(4001)); }, ErrorCode::unsupported);
  CHECK(contains(why, "choose_slow/asked: its library takes even counts"));
  const Ranking tuned = tune(device, add(4003), 60);
  CHECK(tuned.first()->device == "choose_host");
  bool refused = false;
  for (const Candidate& one : tuned.candidates) refused = refused || one.refusal == "its library takes even counts";
  CHECK(refused);
}

TEST_CASE("tuning finds the faster kernel, plans follow it, and so does another auto through the cache") {
  const Words words;
  const Op op = add(5000);
  const Device device = open(kBoth);
  CHECK(device.plan(op).kernel() == "slow");
  const Ranking tuned = tune(device, op, 60);
  REQUIRE(tuned.first() != nullptr);
  CHECK(tuned.source == ChoiceSource::measured);
  CHECK(tuned.first()->kernel == "quick");
  CHECK(tuned.first()->measured.value() < 200e-6);
  bool broken = false;
  for (const Candidate& one : tuned.candidates) broken = broken || contains(one.refusal, "no memory at all");
  CHECK(broken);
  for (const Device& other : {device, open(kBoth)}) {
    const Ranking known = choose(other, op);
    CHECK(known.source == ChoiceSource::measured);
    CHECK(known.first()->kernel == "quick");
    const Plan plan = other.plan(op);
    CHECK(plan.kernel() == "quick");
    CHECK(contains(plan.explain(), "measured"));
    check_sum(plan, 5000);
  }
  // Another set of devices has a cache of its own.
  CHECK(choose(open("auto?only=choose_host"), op).source == ChoiceSource::model);
  CHECK(words.text().empty());
}

TEST_CASE("tuning a small op on the host measures the GPU's own choice too, not only kernels without an estimate") {
  int quick = 0, spare = 0;
  for (const Candidate& one : tune(open(kBoth), add(4), 60).candidates) {
    if (!one.device.starts_with("choose_gpu") || !one.measured) continue;
    ++(one.kernel == "quick" ? quick : spare);
  }
  CHECK(quick == 1);
  CHECK(spare == 1);
}

TEST_CASE("a GPU that is gone when auto is opened anew: the host's devices run the op, and the reason can be read") {
  const Words words;
  const Op op = add(5200);
  CHECK(tune(open(kBoth), op, 60).source == ChoiceSource::measured);
  setenv("GABLE_TEST_GONE", "1", 1);
  const Device device = open(kBoth);
  CHECK(choose(device, op).source == ChoiceSource::model);  // what was measured beside the GPU is not used
  const Plan plan = device.plan(op);
  CHECK(plan.device_uri() == "choose_host");
  CHECK(contains(plan.explain(), "passed over choose_gpu: no GPU is visible"));
  check_sum(plan, 5200);
  CHECK(tune(device, op, 60).source == ChoiceSource::measured);
  for (const char* uri : {"auto?only=choose_gpu", "auto?only=choose_gpu:0", "auto?only=choose_gpu&memory=cuda:7"})
    CHECK(contains(message_of([&] { open(uri); }, ErrorCode::unavailable), "no GPU is visible"));
  unsetenv("GABLE_TEST_GONE");
  const Ranking again = choose(open(kBoth), op);
  CHECK(again.source == ChoiceSource::measured);
  CHECK(again.candidates.size() > choose(device, op).candidates.size());
  CHECK(words.text().empty());
}

TEST_CASE("a plan that was searched for while tuning is made again without a search") {
  const Op op = add(6000);
  const Device device = open(kBoth);
  CHECK(contains(device.plan(op).explain(), "slow"));
  CHECK(tune(device, op, 60).first()->program == "the best");
  CHECK(contains(open(kBoth).plan(op).explain(), "adds by the best, which is known"));
}

TEST_CASE("a plan for a range of batches has one line for neighbours that take one kernel, measured or predicted") {
  const Device device = open("auto?only=reference");
  const Conv2d conv{.input = {4, 3, 5, 5}, .weights = {2, 3, 3, 3}};
  CHECK(tune(device, conv, 60).source == ChoiceSource::measured);
  CHECK(device.plan(conv, BatchRange{1, 8}).explain() == "batches 1 to 8: reference/f64_loops\n");
  CHECK(device.plan(conv, BatchRange{3, 3}).explain() == "batch 3: reference/f64_loops\n");
}

TEST_CASE("?choose=measured tunes an op when its first plan is made") {
  const Op op = add(6000);
  const Device device = open("auto?only=choose_host&choose=measured&limit=60");
  CHECK(device.plan(op).kernel() == "quick");
  CHECK(choose(device, op).source == ChoiceSource::measured);
  CHECK(open("auto?only=choose_host").plan(op).kernel() == "quick");
}

TEST_CASE(
    "a limit that is too short for the tensors and two runs is refused before anything runs; plans go by the model") {
  constexpr std::int64_t kMany = std::int64_t{1} << 30;  // 4.3 s a run by prediction
  const Op op = add(kMany);
  const std::clock_t start = std::clock();  // of this process: others may be busy
  const Device device = open("auto?only=choose_host");
  const std::string why = message_of([&] { tune(device, op, 1); });
  CHECK(contains(why, "the limit is 1 s, of which "));
  CHECK(contains(why, " s are left, too short for 8.59 s of two runs, by prediction"));
  CHECK(choose(device, op).source == ChoiceSource::model);
  const Words words;
  CHECK(open("auto?only=choose_host&choose=measured&limit=0.1").plan(op).kernel() == "slow");
  CHECK(contains(words.text(), "so the model chooses"));
  CHECK(contains(words.text(), "the limit is 0.1 s"));
  CHECK(std::clock() - start < 3 * CLOCKS_PER_SEC);
}

TEST_CASE("a cache that is damaged or can't be written is ignored with a word") {
  const Op op = add(7000);
  const auto only_file = [] {
    fs::path found;
    for (const auto& entry : fs::directory_iterator(cache())) {
      if (entry.path().extension() == ".txt") found = entry.path();
    }
    return found;
  };
  fs::remove_all(cache());
  fs::create_directories(cache());
  const Device device = open("auto?only=choose_host");
  tune(device, op, 60);
  const fs::path file = only_file();
  REQUIRE_FALSE(file.empty());
  {
    const Words words;
    fs::resize_file(file, fs::file_size(file) - 3);
    CHECK(choose(open("auto?only=choose_host"), op).source == ChoiceSource::model);
    CHECK(contains(words.text(), "a damaged entry is ignored"));
  }
  {
    const Words words;
    setenv("GABLE_CACHE", "/dev/null/gable", 1);
    tune(open("auto?only=choose_host"), op, 60);
    CHECK(contains(words.text(), "kept in memory alone"));
  }
  {
    const Words words;
    setenv("GABLE_CACHE", "relative", 1);
    tune(open("auto?only=choose_host"), op, 60);
    CHECK(contains(words.text(), "it must be 'off' or an absolute folder"));
  }
  {
    const Words words;
    setenv("GABLE_CACHE", "off", 1);
    const Device without = open("auto?only=choose_host");
    CHECK(choose(without, op).source == ChoiceSource::model);
    tune(without, op, 60);
    CHECK(choose(without, op).source == ChoiceSource::measured);
    CHECK(words.text().empty());
  }
  setenv("GABLE_CACHE", cache().c_str(), 1);
}

TEST_CASE("wrong options are refused with what would be right") {
  CHECK(contains(message_of([] { open("auto?only=abacus"); }), "'abacus', which is no backend"));
  CHECK(contains(message_of([] { open("auto?only=cpu,,cpu"); }), "write devices with commas"));
  CHECK(contains(message_of([] { open("auto?only=cpu,cpu:avx2"); }), "'cpu' twice"));
  CHECK(contains(message_of([] { open("auto?only=auto"); }), "it takes devices"));
  for (const char* const uri : {"auto?only=cpu,", "auto?only=cpu+", "auto?only=,cpu", "auto?only=+"})
    CHECK(contains(message_of([&] { open(uri); }), "write devices with commas"));
  CHECK(contains(message_of([] { open("auto?only=cpu?threads=1"); }), "options are auto's own"));
  CHECK(contains(message_of([] { open("auto?memory=disk"); }), "host or cuda:N"));
  CHECK(contains(message_of([] { open("auto?choose=random"); }), "model or measured"));
  CHECK(contains(message_of([] { open("auto?limit=-1"); }), "above 0"));
  CHECK(contains(message_of([] { open("auto?only=cpu:pdp11"); }, ErrorCode::unavailable),
                 "passed over cpu:pdp11: there is no such device; there is cpu"));
  CHECK(contains(message_of([] { tune(open("auto?only=cpu"), add(4), -1); }), "must be above 0"));
}

TEST_CASE("?only= takes several devices, threads go to those that have them, GABLE_DEVICE drops what is auto's alone") {
  const Device device = open("auto?only=cpu+reference&threads=1");
  const Conv2d conv{.input = {1, 16, 8, 8}, .weights = {16, 16, 3, 3}, .padding = {1, 1}};
  const Plan plan = device.plan(conv);
  CHECK(plan.device_uri() == "cpu?threads=1");
  CHECK(contains(plan.explain(), "reference?threads=1"));
  CHECK(contains(plan.explain(), "predicted"));
  CHECK(open("auto?only=cpu+reference").plan(add(4)).device_uri() == "cpu");  // however small an op is
  setenv("GABLE_DEVICE", "reference", 1);
  CHECK(open("auto?only=cpu&choose=measured&limit=1&memory=host").info().uri == "reference");
  unsetenv("GABLE_DEVICE");
}

TEST_CASE("a callback that throws does no harm") {
  set_log([](std::string_view) { throw 1; });
  setenv("GABLE_CACHE", "relative", 1);
  CHECK_NOTHROW(open("auto?only=cpu"));
  setenv("GABLE_CACHE", cache().c_str(), 1);
  set_log({});
}

}  // namespace
}  // namespace gable
