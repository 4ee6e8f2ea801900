// See race.h.
#include "backends/cudnn/race.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "backends/cudnn/entrants.h"

namespace gable::cudnn {
namespace {

constexpr double kMaxSeconds = 3.1;      // of a race
constexpr double kCompilingShare = 0.8;  // of them
constexpr double kReadySeconds = 1;
constexpr double kNever = 1e9;
constexpr double kWarmUpMilliseconds = 30;  // for the clocks to rise
constexpr double kHopeless = 3;             // times the fastest single call
constexpr double kSlow = 1.15;              // times the fastest of the short rounds
constexpr double kDoubt = 0.99;             // times the heuristics' choice: a smaller gain does not count
constexpr std::size_t kWorkspaceAlignment = 256;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

class Event {
 public:
  Event() { GABLE_CUDA_CHECK(cudaEventCreate(&event_)); }
  ~Event() { cuda::ignore(cudaEventDestroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record() const { GABLE_CUDA_CHECK(cudaEventRecord(event_)); }
  double milliseconds_since(const Event& begin) const {
    GABLE_CUDA_CHECK(cudaEventSynchronize(event_));
    float time = 0;
    GABLE_CUDA_CHECK(cudaEventElapsedTime(&time, begin.event_, event_));
    return time;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Random values between -1 and 1: on constants a GPU draws less power and runs faster. A block of them is
/// repeated.
void fill(void* to, std::size_t bytes, DType dtype) {
  constexpr std::size_t kBlock = std::size_t{1} << 18;
  const std::size_t block = std::min(bytes, kBlock);
  std::vector<unsigned char> values(block / size_of(dtype) * size_of(dtype));
  std::minstd_rand engine;
  for (std::size_t i = 0; i < values.size() / size_of(dtype); ++i) {
    const float value = static_cast<float>(engine() % 20001) * 1e-4f - 1.0f;
    if (dtype == DType::f32) {
      reinterpret_cast<float*>(values.data())[i] = value;
    } else {
      reinterpret_cast<std::uint16_t*>(values.data())[i] =
          dtype == DType::f16 ? f16_from_float(value) : bf16_from_float(value);
    }
  }
  auto* const first = static_cast<unsigned char*>(to);
  GABLE_CUDA_CHECK(cudaMemcpy(first, values.data(), values.size(), cudaMemcpyHostToDevice));
  for (std::size_t done = values.size(); done != 0 && done < bytes;) {
    const std::size_t more = std::min(done, bytes - done);
    GABLE_CUDA_CHECK(cudaMemcpyAsync(first + done, first, more, cudaMemcpyDeviceToDevice));
    done += more;
  }
}

/// Operands to measure on, and a workspace for the most demanding recipe.
class Track {
 public:
  Track(const Op& op, const CudaDevice& device, std::size_t workspace) : workspace_(device.allocate(workspace)) {
    const DType dtype = dtype_of(op);
    const auto place = [&](Slot slot, std::int64_t elements, DType of) {
      const std::size_t bytes = static_cast<std::size_t>(elements) * size_of(of);
      owned_.push_back(device.allocate(bytes));
      pointers_[slot] = owned_.back().get();
      if (slot != kY) fill(pointers_[slot], bytes, of);
    };
    if (const auto* c = std::get_if<Conv2d>(&op)) {
      place(kX, c->input.elements(), dtype);
      place(kWeights, c->weights.elements(), dtype);
      place(kBias, c->weights[0], DType::f32);
    } else {
      const auto& m = std::get<Matmul>(op);
      place(kX, m.m * m.k, dtype);
      place(kWeights, m.k * m.n, dtype);
      place(kBias, m.n, DType::f32);
    }
    place(kY, output_shape(op).elements(), dtype);
  }

  /// The time of one run, in milliseconds. A run before the first event keeps the GPU busy while the host queues the
  /// rest.
  double milliseconds(Session& session, Recipe& recipe, int runs) const {
    const Event begin, end;
    run_steps(session, recipe, pointers_, workspace_.get(), nullptr);
    begin.record();
    for (int i = 0; i < runs; ++i) run_steps(session, recipe, pointers_, workspace_.get(), nullptr);
    end.record();
    return end.milliseconds_since(begin) / runs;
  }

 private:
  std::shared_ptr<void> workspace_;
  std::vector<std::shared_ptr<void>> owned_;
  Pointers pointers_{};
};

struct Contender {
  std::size_t recipe = 0;
  std::size_t engine = 0;
  double milliseconds = 0;
  std::vector<double> rounds{};
};

bool take(std::vector<Recipe>& recipes, const Contender& contender) {
  std::string why;
  GraphStep* const product = recipes[contender.recipe].product;
  return product == nullptr || product->choose(contender.engine, why);
}

Clock::duration seconds(double value) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(value));
}

/// Then no more engines are compiled at run time.
Clock::time_point compiling_end(const RaceTime& time) {
  return time.begin + seconds(kCompilingShare * std::min(time.seconds, kMaxSeconds));
}

double seconds_of(Clock::time_point time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

/// Engines that do not compile are left out.
std::vector<Contender> contenders_of(std::vector<Recipe>& recipes, const RaceTime& time) {
  std::vector<RecipeEngines> engines;
  for (const Recipe& recipe : recipes) engines.push_back({recipe.product->traits(), recipe.product->chosen()});
  const Compiling how{
      .compile = [&](const Entrant& one) { return take(recipes, {.recipe = one.recipe, .engine = one.engine}); },
      .now = [] { return seconds_of(Clock::now()); },
      .end = seconds_of(compiling_end(time)),
      .ready_end = seconds_of(ready_end(time))};
  std::vector<Contender> found;
  for (const Entrant& one : entrants(engines, how)) found.push_back({.recipe = one.recipe, .engine = one.engine});
  return found;
}

std::size_t most_workspace(std::vector<Recipe>& recipes, const std::vector<Contender>& contenders) {
  std::size_t most = 0;
  for (const Contender& contender : contenders) {
    take(recipes, contender);
    most = std::max(most, workspace_bytes(recipes[contender.recipe]));
  }
  return most;
}

double least(const std::vector<Contender>& contenders) {
  return std::min_element(contenders.begin(), contenders.end(),
                          [](const Contender& a, const Contender& b) { return a.milliseconds < b.milliseconds; })
      ->milliseconds;
}

/// Drops contenders that are too slow, except the first, which the heuristics chose.
void drop_slower_than(double limit, std::vector<Contender>& contenders) {
  contenders.erase(std::remove_if(contenders.begin() + 1, contenders.end(),
                                  [&](const Contender& c) { return c.milliseconds > limit; }),
                   contenders.end());
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class Race {
 public:
  Race(const Op& op, const CudaDevice& device, Session& session, std::vector<Recipe>& recipes, RaceTime time)
      : session_(session),
        recipes_(recipes),
        contenders_(contenders_of(recipes, time)),
        tried_(contenders_.size()),
        track_(op, device, most_workspace(recipes, contenders_)),
        end_(Clock::now() + seconds((1 - kCompilingShare) * time.seconds)) {}

  /// The winner. The report has its time and that of the heuristics' choice.
  Contender winner() {
    for (double busy = 0; busy < kWarmUpMilliseconds;) busy += std::max(0.01, run(contenders_.front(), 5) * 6);
    for (Contender& c : contenders_) {
      const bool measures = &c == &contenders_.front() || Clock::now() < end_;
      c.milliseconds = measures ? run(c, 1) : kNever;
    }
    drop_slower_than(kHopeless * least(contenders_), contenders_);
    rounds(3, 0.5);
    drop_slower_than(kSlow * least(contenders_), contenders_);
    rounds(7, 1.5);
    const auto best = std::min_element(contenders_.begin(), contenders_.end(),
                                       [](const auto& a, const auto& b) { return a.milliseconds < b.milliseconds; });
    const Contender& heuristic = contenders_.front();
    return best->milliseconds < kDoubt * heuristic.milliseconds ? *best : heuristic;
  }

  const Contender& heuristic() const { return contenders_.front(); }
  std::size_t tried() const { return tried_; }

 private:
  double run(const Contender& contender, int runs) {
    take(recipes_, contender);
    return track_.milliseconds(session_, recipes_[contender.recipe], runs);
  }

  /// Runs every contender once in each round, for about `milliseconds` and at least one round; keeps their medians.
  void rounds(int count, double milliseconds) {
    for (Contender& c : contenders_) c.rounds.clear();
    for (int round = 0; round < count && (round == 0 || Clock::now() < end_); ++round) {
      for (Contender& c : contenders_) {
        c.rounds.push_back(run(c, std::clamp(static_cast<int>(milliseconds / c.milliseconds), 1, 100)));
      }
    }
    for (Contender& c : contenders_) c.milliseconds = median(c.rounds);
  }

  Session& session_;
  std::vector<Recipe>& recipes_;
  std::vector<Contender> contenders_;
  std::size_t tried_;
  Track track_;
  Clock::time_point end_;  // then it begins no round except the first
};

std::string microseconds(double milliseconds) { return std::to_string(static_cast<int>(milliseconds * 1e3 + 0.5)); }

}  // namespace

std::size_t workspace_bytes(const Recipe& recipe) {
  return aligned(recipe.workspace_bytes()) + aligned(recipe.between_bytes) + recipe.bias_bytes;
}

void run_steps(Session& session, Recipe& recipe, Pointers pointers, void* workspace, cudaStream_t stream) {
  pointers[kBetween] = static_cast<char*>(workspace) + aligned(recipe.workspace_bytes());
  pointers[kBetweenAgain] = pointers[kBetween];
  pointers[kRoundedBias] = static_cast<char*>(pointers[kBetween]) + aligned(recipe.between_bytes);
  pointers[kYAgain] = pointers[kY];
  const std::lock_guard lock(session.mutex);
  session.use(stream);
  for (const auto& step : recipe.steps) step->run(session, pointers, workspace);
}

Clock::time_point ready_end(const RaceTime& time) {
  return std::max(compiling_end(time), time.begin + seconds(kReadySeconds));
}

Choice fastest(const Op& op, const CudaDevice& device, Session& session, std::vector<Recipe> recipes, RaceTime time) {
  time.seconds = std::min(time.seconds, kMaxSeconds);
  Race race(op, device, session, recipes, time);
  const Contender winner = race.winner();
  take(recipes, winner);
  recipes[winner.recipe].product->forget_others();
  const std::chrono::duration<double, std::milli> took = Clock::now() - time.begin;
  return {std::move(recipes[winner.recipe]),
          "measured in " + std::to_string(static_cast<int>(took.count())) + " ms, the fastest of " +
              std::to_string(race.tried()) + " (" + std::to_string(recipes.size()) +
              " ways): " + microseconds(winner.milliseconds) + " us, the heuristics' first " +
              microseconds(race.heuristic().milliseconds) + " us",
          true};
}

}  // namespace gable::cudnn
