// Calibration of counter sources with known work: what is trusted, what is refused, and what is kept for other
// processes.
#include "perfcounters/sources/calibration.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace gable::perf;

namespace {

namespace fs = std::filesystem;

/// A source that returns the known values times `factor` and records the requests.
class FakeSource final : public CounterSource {
 public:
  explicit FakeSource(double factor, std::vector<std::string>* asked = nullptr, std::string identity = "")
      : factor_(factor), asked_(asked), identity_(std::move(identity)) {}
  std::string name() const override { return "fake"; }
  Provenance provenance() const override { return Provenance::counter; }
  SourceStatus status() const override {
    return {"fake",
            true,
            "W and Q(dram)",
            "",
            "",
            {{Metric::flop, true, "", ""}, {Metric::dram_bytes, true, "", ""}, {Metric::l1_bytes, true, "", ""}}};
  }
  Reading measure(const Workload& workload, const CountOptions& options) override {
    if (workload.run) workload.run();
    Reading reading{.source = name(), .provenance = provenance(), .quantities = {}, .extra = {}, .plan = {}};
    for (const Metric metric : options.metrics) {
      if (asked_ != nullptr) asked_->push_back(to_string(metric));
      reading.quantities[metric] = factor_ < 0 ? Quantity{.reason = "the counters were shared"}
                                               : Quantity{.value = metric == Metric::flop ? 1000.0 : 64000 * factor_};
    }
    return reading;
  }
  std::vector<KnownWork> known_work() const override {
    return {{.name = "chain", .workload = {}, .expected = {{Metric::flop, 1000}}, .tolerance = 0.01},
            {.name = "copy", .workload = {}, .expected = {{Metric::dram_bytes, 64000}}, .tolerance = 0.02}};
  }
  std::string calibration_identity() const override { return identity_; }

 private:
  double factor_;
  std::vector<std::string>* asked_;
  std::string identity_;
};

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "gable_calibration_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

  /// The calibrations in it.
  std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(path_))
      if (entry.path().filename().string().starts_with("calibration-")) all.push_back(entry.path());
    return all;
  }

 private:
  fs::path path_;
};

std::string read(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void write(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
}

/// One process's calibration of a source that is right, for W and Q(dram).
struct Process {
  explicit Process(const fs::path& folder, const std::string& identity = "simulator 1") : kept(folder) {
    FakeSource source(1.01, &asked, identity);
    calibration = calibrate(source, {Metric::flop, Metric::dram_bytes}, kept);
  }
  bool has_run() const { return !asked.empty(); }
  bool says(const std::string& part) const {
    return kept.words().size() == 1 && kept.words().front().find(part) != std::string::npos;
  }

  std::vector<std::string> asked;
  CalibrationCache kept;
  Calibration calibration;
};

}  // namespace

TEST_CASE("a source that measures known work correctly is trusted, quantity by quantity") {
  std::vector<std::string> asked;
  CalibratedSource source(std::make_unique<FakeSource>(1.01, &asked));
  const Reading reading = source.measure({}, {.metrics = {Metric::flop, Metric::dram_bytes}});
  CHECK(reading.at(Metric::flop).value == 1000);
  CHECK(reading.at(Metric::dram_bytes).value == doctest::Approx(64640));
  CHECK(source.calibration().checks.size() == 2);
  CHECK(asked == std::vector<std::string>{"W", "Q(dram)", "W", "Q(dram)"});
  source.measure({}, {.metrics = {Metric::flop}});
  CHECK(asked.size() == 5);  // calibrated once
}

TEST_CASE("a source that is wrong is refused with the numbers and not used again") {
  std::vector<std::string> asked;
  CalibratedSource source(std::make_unique<FakeSource>(1.5, &asked));
  const Reading reading = source.measure({}, {.metrics = {Metric::flop, Metric::dram_bytes}});
  CHECK(reading.at(Metric::flop).value == 1000);
  const Quantity lie = reading.at(Metric::dram_bytes);
  CHECK_FALSE(lie.value.has_value());
  CHECK(lie.reason.find("copy") != std::string::npos);
  CHECK(lie.reason.find("64000") != std::string::npos);
  CHECK(lie.reason.find("96000") != std::string::npos);
  CHECK(lie.reason.find("2 %") != std::string::npos);
  CHECK(asked == std::vector<std::string>{"W", "Q(dram)", "W"});
}

TEST_CASE("a source without a value for known work, or without known work for a quantity, is not trusted") {
  CalibratedSource silent(std::make_unique<FakeSource>(-1));
  CHECK(silent.measure({}, {.metrics = {Metric::flop}}).at(Metric::flop).reason.find("shared") != std::string::npos);
  CalibratedSource unknown(std::make_unique<FakeSource>(1));
  const Quantity l1 = unknown.measure({}, {.metrics = {Metric::l1_bytes}}).at(Metric::l1_bytes);
  CHECK_FALSE(l1.value.has_value());
  CHECK(l1.reason.find("not calibrated") != std::string::npos);
  const Quantity absent = unknown.measure({}, {.metrics = {Metric::l3_bytes}}).at(Metric::l3_bytes);
  CHECK(absent.reason.find("does not know of Q(l3)") != std::string::npos);
}

// ---- what is kept

TEST_CASE("a calibration that passed is read by the next process, which judges it and runs nothing") {
  const Folder folder;
  const Process first(folder.path() / "made" / "here");
  CHECK(first.has_run());
  CHECK(first.kept.words().empty());
  const Process second(folder.path() / "made" / "here");
  CHECK_FALSE(second.has_run());
  REQUIRE(second.calibration.checks.size() == first.calibration.checks.size());
  for (std::size_t i = 0; i < second.calibration.checks.size(); ++i) {
    const CalibrationCheck &fresh = first.calibration.checks[i], &kept = second.calibration.checks[i];
    CHECK(kept.measured == fresh.measured);
    CHECK(kept.expected == fresh.expected);
    CHECK(kept.passed);
    CHECK(kept.kept);
    CHECK_FALSE(fresh.kept);
  }
  CHECK(Process(folder.path() / "made" / "here", "simulator 2").has_run());
  CHECK(Process(folder.path() / "made" / "here", "").has_run());  // a counter of hardware
  CHECK(Process(fs::path()).has_run());
}

TEST_CASE("quantities are added to a kept calibration one after the other") {
  const Folder folder;
  std::vector<std::string> asked;
  for (const Metric metric : {Metric::flop, Metric::dram_bytes}) {
    CalibratedSource source(std::make_unique<FakeSource>(1, &asked, "simulator 1"), CalibrationCache(folder.path()));
    source.calibrate({metric});
  }
  CHECK(asked == std::vector<std::string>{"W", "Q(dram)"});
  CHECK_FALSE(Process(folder.path()).has_run());
  CHECK(folder.files().size() == 1);
}

TEST_CASE("a failure is not kept, and a kept reading that fails is measured again") {
  const Folder folder;
  CalibrationCache kept(folder.path());
  FakeSource wrong(1.5, nullptr, "simulator 1");
  const std::vector<Metric> metrics{Metric::flop, Metric::dram_bytes};
  CHECK_FALSE(calibrate(wrong, metrics, kept).refusal(Metric::dram_bytes).empty());
  CHECK(folder.files().empty());
  kept.store("simulator 1", {{{"chain", Metric::flop}, 1000}, {{"copy", Metric::dram_bytes}, 128000}});
  const Process next(folder.path());
  CHECK(next.asked == std::vector<std::string>{"Q(dram)"});
  CHECK(next.calibration.refusal(Metric::dram_bytes).empty());
  CHECK_FALSE(Process(folder.path()).has_run());
}

TEST_CASE("a damaged or foreign file is ignored with a word and replaced") {
  const Folder folder;
  CHECK(Process(folder.path()).has_run());
  REQUIRE(folder.files().size() == 1);
  const fs::path file = folder.files().front();
  const std::string whole = read(file);
  const auto is_replaced = [&](const std::string& word) {
    CAPTURE(word);
    const Process next(folder.path());
    CHECK(next.has_run());
    CHECK(next.says(file.string()));
    CHECK(next.says(word));
    CHECK(read(file) == whole);
  };
  for (std::size_t at = 0; at < whole.size(); at += 7) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    CAPTURE(damaged);
    write(file, damaged);
    is_replaced("damaged");
  }
  write(file, whole.substr(0, whole.size() - 10));
  is_replaced("damaged");
  write(file, "gable choices 2\nanother kind of file\n");
  is_replaced("damaged");
  fs::permissions(file, fs::perms::others_write, fs::perm_options::add);
  is_replaced("other users may write it");
  fs::remove(file);
  fs::create_symlink("/etc/passwd", file);
  is_replaced("symbolic link");
}

TEST_CASE("where nothing can be written each process calibrates, and says why") {
  const Folder folder;
  write(folder.path() / "file", "");
  const Process process(folder.path() / "file" / "below");
  CHECK(process.has_run());
  CHECK(process.says("the next process calibrates again"));
  CHECK(process.calibration.refusal(Metric::flop).empty());
}

TEST_CASE("the user's folder is GABLE_CACHE; off keeps nothing, and a relative path is named") {
  const Folder folder;
  const char* const before = std::getenv("GABLE_CACHE");
  const std::string value = before == nullptr ? "" : before;
  setenv("GABLE_CACHE", folder.path().c_str(), 1);
  CalibrationCache::of_user().store("identity", {{{"chain", Metric::flop}, 1}});
  CHECK(CalibrationCache(folder.path()).find("identity").size() == 1);
  setenv("GABLE_CACHE", "off", 1);
  CHECK_FALSE(CalibrationCache::of_user().keeps());
  CHECK(CalibrationCache::of_user().words().empty());
  setenv("GABLE_CACHE", "relative", 1);
  CHECK_FALSE(CalibrationCache::of_user().keeps());
  REQUIRE(CalibrationCache::of_user().words().size() == 1);
  CHECK(CalibrationCache::of_user().words().front().find("GABLE_CACHE=relative") != std::string::npos);
  before == nullptr ? unsetenv("GABLE_CACHE") : setenv("GABLE_CACHE", value.c_str(), 1);
}
