// What `auto` measures by: contestants that something else slows down for a while.
#include "backends/registry/tuner.h"

#include <doctest/doctest.h>
#include <gable/backend.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gable {
namespace tuner_test {

class Host final : public DeviceImpl {
 public:
  Host() : DeviceImpl({.uri = "host", .backend = "host", .name = "a host", .available = true}) {}
  std::vector<KernelOffer> offers(const Op&) const override { return {}; }
};

/// A run takes as long as `time` says, given the seconds since the first run.
class Timed final : public PlanImpl {
 public:
  Timed(double& now, std::function<double(double)> time, const std::string& program = "")
      : PlanImpl(PlanDetails{.program = program}), now_(now), time_(std::move(time)) {}
  void run(const RunArguments&) override {
    if (first_ < 0) first_ = now_;
    now_ += time_(now_ - first_);
  }

 private:
  double& now_;
  std::function<double(double)> time_;
  double first_ = -1;
};

/// Its time depends on where the output lies: `slow` on the first set of tensors that it runs on, else `fast`.
class Placed final : public PlanImpl {
 public:
  Placed(double& now, const void*& first, double slow, double fast)
      : PlanImpl(PlanDetails{}), now_(now), first_(first), slow_(slow), fast_(fast) {}
  void run(const RunArguments& arguments) override {
    if (first_ == nullptr) first_ = arguments.output;
    now_ += arguments.output == first_ ? slow_ : fast_;
  }

 private:
  double& now_;
  const void*& first_;
  double slow_, fast_;
};

/// What a layer's runs take by what came before.
struct LayerTimes {
  double again = 0;   ///< in a loop
  double after = 0;   ///< with weights that were swept out of L2 since they were used
  double asleep = 0;  ///< more in the first run after a sweep, as matrix units that wake up
};

/// A layer with weights on cores that `sweeps` counts the sweeps of.
class Layer final : public PlanImpl {
 public:
  Layer(double& now, const int& sweeps, const LayerTimes& times)
      : PlanImpl(PlanDetails{.packed_bytes = 64}), now_(now), sweeps_(sweeps), times_(times) {}
  void run(const RunArguments& arguments) override {
    int& used = used_at_.try_emplace(arguments.weights, -1).first->second;
    now_ += std::exchange(used, sweeps_) == sweeps_ ? times_.again : times_.after;
    now_ += std::exchange(ran_at_, sweeps_) == sweeps_ ? 0 : times_.asleep;
  }

 private:
  double& now_;
  const int& sweeps_;
  LayerTimes times_;
  std::map<const void*, int> used_at_;  ///< weights, by the sweeps before their last use
  int ran_at_ = -1;
};

/// Takes `slow` in the first two runs after another plan's, else `fast`, as matrix units that wake up.
class Waking final : public PlanImpl {
 public:
  Waking(double& now, const void*& last, double slow, double fast)
      : PlanImpl(PlanDetails{}), now_(now), last_(last), slow_(slow), fast_(fast) {}
  void run(const RunArguments&) override {
    if (last_ != this) runs_ = 0;
    now_ += runs_++ < 2 ? slow_ : fast_;
    last_ = this;
  }

 private:
  double& now_;
  const void*& last_;
  double slow_, fast_;
  int runs_ = 0;
};

/// Contestants that run one after another under a clock which only they move.
class Race {
 public:
  double now = 0;
  int sweeps = 0;

  void add(Contestant contestant) {
    contestant.device = device_;
    contestants_.push_back(std::move(contestant));
  }
  /// One whose run takes as long as `time` says.
  void add_timed(const std::function<double(double)>& time) {
    add({.make = [this, time] { return std::make_unique<Timed>(now, time); }});
  }
  void add_layer(const LayerTimes& times) {
    add({.make = [this, times] { return std::make_unique<Layer>(now, sweeps, times); }});
  }

  /// The contestants, measured. All of them have a time.
  const std::vector<Contestant>& measured(const std::function<long()>& interruptions = {}) {
    measure({.op = Conv2d{.input = {1, 16, 1, 1}, .weights = {16, 16, 1, 1}},
             .owner = device_,
             .seconds = 0.5,
             .clock = [this] { return now; },
             .interruptions = interruptions,
             .sweep = [this] { ++sweeps; }},
            contestants_);
    for (const Contestant& one : contestants_) REQUIRE(one.seconds);
    return contestants_;
  }
  std::size_t winner(const std::function<long()>& interruptions = {}) {
    const auto& all = measured(interruptions);
    const auto faster = [](const Contestant& a, const Contestant& b) { return *a.seconds < *b.seconds; };
    return static_cast<std::size_t>(std::min_element(all.begin(), all.end(), faster) - all.begin());
  }

 private:
  std::shared_ptr<DeviceImpl> device_ = std::make_shared<Host>();
  std::vector<Contestant> contestants_;
};

}  // namespace tuner_test

TEST_CASE("tuner: a contestant that is held up for 12 ms still wins") {
  tuner_test::Race race;
  race.add_timed([](double) { return 0.6e-3; });
  race.add_timed([](double at) { return at < 12e-3 ? 1.2e-3 : 0.2e-3; });
  CHECK(race.winner() == 1);
}

TEST_CASE("tuner: a contestant whose first runs are held up still wins") {
  tuner_test::Race race;
  race.add_timed([](double) { return 0.6e-3; });
  race.add_timed([](double at) { return at < 12e-3 ? 4.3e-3 : 0.2e-3; });
  CHECK(race.winner() == 1);
}

TEST_CASE("tuner: contestants of nearly the same time are compared on several sets of tensors") {
  tuner_test::Race race;
  const void* first = nullptr;
  race.add_timed([](double) { return 0.3e-3; });
  race.add({.make = [&] { return std::make_unique<tuner_test::Placed>(race.now, first, 0.315e-3, 0.28e-3); }});
  CHECK(race.winner() == 1);
}

TEST_CASE("tuner: a contestant whose first plan is twice as fast as its others loses") {
  tuner_test::Race race;
  int plans = 0;
  race.add_timed([](double) { return 0.3e-3; });
  race.add({.make = [&] {
    const double seconds = ++plans == 1 ? 0.2e-3 : 0.4e-3;
    return std::make_unique<tuner_test::Timed>(race.now, [seconds](double) { return seconds; });
  }});
  CHECK(race.winner() == 0);
}

TEST_CASE("tuner: a contestant that is fast in a loop alone loses, as in a network") {
  tuner_test::Race race;
  race.add_layer({.again = 12e-6, .after = 40e-6});
  race.add_layer({.again = 20e-6, .after = 20e-6});
  CHECK(race.winner() == 1);
}

TEST_CASE("tuner: of contestants that wait for the same weights in a network the one that is faster in a loop wins") {
  tuner_test::Race race;
  race.add_layer({.again = 9e-6, .after = 21.8e-6});
  race.add_layer({.again = 4.6e-6, .after = 22.4e-6});
  CHECK(race.winner() == 1);
}

TEST_CASE("tuner: the time of a short layer is the geometric mean of a run in a loop and of one in a network") {
  tuner_test::Race race;
  race.add_layer({.again = 10e-6, .after = 40e-6});
  CHECK(*race.measured().front().seconds == doctest::Approx(20e-6));
}

TEST_CASE("tuner: matrix units are awake in the run that stands for a network, as after a layer that uses them") {
  tuner_test::Race race;
  race.add_layer({.again = 1.5e-6, .after = 1.5e-6});
  race.add_layer({.again = 1.2e-6, .after = 1.2e-6, .asleep = 2.7e-6});
  CHECK(race.winner() == 1);
}

TEST_CASE("tuner: long layers are timed without a sweep") {
  tuner_test::Race race;
  race.add_layer({.again = 2e-3, .after = 3e-3});
  CHECK(*race.measured().front().seconds == doctest::Approx(2e-3));
  CHECK(race.sweeps == 0);
}

TEST_CASE("tuner: a contestant that needs two runs to wake up has as many runs a sample as its later ones allow") {
  tuner_test::Race race;
  const void* last = nullptr;
  for (const auto& [slow, fast] : {std::pair(4e-6, 4e-6), std::pair(12e-6, 1.5e-6)}) {
    race.add({.make = [&, slow = slow, fast = fast] {
      return std::make_unique<tuner_test::Waking>(race.now, last, slow, fast);
    }});
  }
  CHECK(race.winner() == 1);
}

TEST_CASE("tuner: a plan is searched for within half of the limit, and the result names it") {
  tuner_test::Race race;
  double allowed = 0;
  int searches = 0;
  race.add_timed([](double) { return 0.6e-3; });
  race.add({.search = [&](const PlanSearch& search) {
    allowed = search.seconds;
    ++searches;
    return std::make_unique<tuner_test::Timed>(
        race.now, [](double) { return 0.28e-3; }, "engine 38");
  }});
  race.add_timed([](double) { return 0.3e-3; });
  const std::vector<Contestant>& contestants = race.measured();
  CHECK(searches == 1);  // on three sets of tensors
  CHECK(allowed > 0.2);
  CHECK(allowed <= 0.25);
  CHECK(contestants[1].program == "engine 38");
  CHECK(contestants[0].program.empty());
  CHECK(*contestants[1].seconds < *contestants[2].seconds);
}

TEST_CASE("tuner: a contestant that another program interrupts in three of four runs still wins") {
  tuner_test::Race race;
  long interruptions = 0;
  int runs = 0;
  race.add_timed([](double) { return 3e-3; });
  race.add_timed([&](double) {
    if (++runs % 4 == 0) return 2e-3;
    ++interruptions;
    return 6e-3;
  });
  CHECK(race.winner([&] { return interruptions; }) == 1);
}

}  // namespace gable
