// See tuner.h.
//
// A contestant's time is the first quartile of its samples: what else runs on the machine only adds to samples. Samples
// of all contestants alternate, so that a slow phase of the machine meets all of them.
#include "backends/registry/tuner.h"

#include <gable/error.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

#include "backends/registry/operands.h"

namespace gable {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSampleSeconds = 100e-6;  // several runs make a sample where one is shorter
constexpr int kMostRuns = 2000;            // of a sample
constexpr std::size_t kLeastSamples = 3, kMostSamples = 60;
constexpr double kPrepareShare = 0.5;  // of the limit: after first runs of that time no further contestant is made
constexpr double kHopeless = 3;        // times the fastest, after the first samples
constexpr double kSlow = 1.25;         // times the fastest, after kLeastSamples
constexpr double kBehind = 1.08;       // times the fastest, after three times as many

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Random values between -1 and 1 in any dtype; a block of them is repeated.
void fill(void* to, std::size_t bytes, DType dtype) {
  constexpr std::size_t kBlock = 1 << 16;
  const std::size_t block = std::min(bytes, kBlock);
  auto* const first = static_cast<unsigned char*>(to);
  std::uint32_t state = 1;
  for (std::size_t at = 0; at + size_of(dtype) <= block; at += size_of(dtype)) {
    state = state * 1664525u + 1013904223u;
    const float value = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
    if (dtype == DType::f32) {
      std::memcpy(first + at, &value, sizeof(value));
    } else {
      const std::uint16_t half = dtype == DType::f16 ? f16_from_float(value) : bf16_from_float(value);
      std::memcpy(first + at, &half, sizeof(half));
    }
  }
  for (std::size_t done = block; done < bytes;) {
    const std::size_t more = std::min(done, bytes - done);
    std::memcpy(first + done, first, more);
    done += more;
  }
}

/// The op's tensors, in the memory of their owner.
class Track {
 public:
  Track(const Op& op, const DeviceImpl& owner) : owner_(owner) {
    const Operands operands = operands_of(op);
    for (std::size_t i = 0; i < 2; ++i)
      arguments_.inputs[i] = filled(operands.bytes(operands.inputs[i]), operands.dtype);
    weights_ = filled(operands.bytes(operands.weights), operands.dtype);
    arguments_.bias = static_cast<const float*>(filled(operands.bias_bytes(), DType::f32));
    arguments_.output = allocate(operands.bytes(operands.output));
    owner_.synchronize(nullptr);
  }

  const RunArguments& arguments() const { return arguments_; }
  const void* weights() const { return weights_; }

 private:
  void* allocate(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    storages_.push_back(owner_.allocate(bytes));
    return storages_.back().get();
  }

  void* filled(std::size_t bytes, DType dtype) {
    void* const to = allocate(bytes);
    if (bytes == 0) return to;
    const Memory memory = owner_.info().memory;
    if (memory.kind == Memory::Kind::host) {
      fill(to, bytes, dtype);
      return to;
    }
    const Tensor values(DType::f16, Shape{static_cast<std::int64_t>(bytes / 2)});
    fill(values.data(), bytes, dtype);
    owner_.copy(values, TensorView(to, DType::f16, values.shape(), Layout::nchw, memory), nullptr);
    owner_.synchronize(nullptr);
    return to;
  }

  const DeviceImpl& owner_;
  std::vector<std::shared_ptr<void>> storages_;
  RunArguments arguments_{};
  const void* weights_ = nullptr;
};

/// A contestant with its plan.
class Runner {
 public:
  Runner(Contestant& contestant, std::unique_ptr<PlanImpl> plan, const Track& track)
      : contestant_(&contestant), arguments_(track.arguments()), plan_(std::move(plan)) {
    if (track.weights() != nullptr) {
      packed_ = contestant.device->allocate(plan_->details().packed_bytes);
      plan_->pack(track.weights(), packed_.get());
      arguments_.weights = packed_.get();
    }
    seconds_of(1);  // a GPU loads or translates code in the first run, which may take seconds
    const double second = seconds_of(1);
    runs_ = std::clamp(static_cast<int>(kSampleSeconds / std::max(second, 1e-9)), 1, kMostRuns);
    least_ = second;
  }

  void sample() {
    samples_.push_back(seconds_of(runs_));
    least_ = std::min(least_, samples_.back());
  }
  double least() const { return least_; }
  std::size_t samples() const { return samples_.size(); }
  /// Of one run, from now.
  double sample_seconds() const { return least_ * runs_; }

  void finish() {
    if (samples_.empty()) samples_.push_back(least_);
    const auto quartile = samples_.begin() + static_cast<std::ptrdiff_t>(samples_.size() / 4);
    std::nth_element(samples_.begin(), quartile, samples_.end());
    contestant_->seconds = *quartile;
  }

  void fail(const std::string& what) { contestant_->failure = what; }

 private:
  double seconds_of(int runs) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < runs; ++i) plan_->run(arguments_);
    contestant_->device->synchronize(nullptr);
    return seconds_since(start) / runs;
  }

  Contestant* contestant_;
  RunArguments arguments_;
  std::unique_ptr<PlanImpl> plan_;
  std::shared_ptr<void> packed_;
  std::vector<double> samples_;
  double least_ = 0;
  int runs_ = 1;
};

double least(const std::vector<Runner>& runners) {
  return std::min_element(runners.begin(), runners.end(),
                          [](const Runner& a, const Runner& b) { return a.least() < b.least(); })
      ->least();
}

void drop_slower_than(double limit, std::vector<Runner>& runners) {
  const auto slow =
      std::stable_partition(runners.begin(), runners.end(), [&](const Runner& one) { return one.least() <= limit; });
  for (auto one = slow; one != runners.end(); ++one) one->finish();
  runners.erase(slow, runners.end());
}

/// Takes the time of first runs from `left`, at most kPrepareShare of it. That of making plans does not count: cuDNN's
/// takes seconds, since it measures its engines.
std::vector<Runner> prepare(std::vector<Contestant>& contestants, const Track& track, double& left) {
  std::vector<Runner> runners;
  const double kept = (1 - kPrepareShare) * left;
  for (Contestant& one : contestants) {
    if (!runners.empty() && left < kept) break;
    try {
      std::unique_ptr<PlanImpl> plan = one.make();
      const Clock::time_point start = Clock::now();
      runners.emplace_back(one, std::move(plan), track);
      left -= seconds_since(start);
    } catch (const std::bad_alloc&) {
      one.failure = "out of memory";
    } catch (const std::exception& error) {
      one.failure = error.what();
    }
    if (!runners.empty()) drop_slower_than(kHopeless * least(runners), runners);
  }
  left = std::max(left, kept);
  return runners;
}

}  // namespace

void measure(const Contest& contest, std::vector<Contestant>& contestants) {
  const Track track(contest.op, *contest.owner);
  double left = contest.seconds;
  std::vector<Runner> runners = prepare(contestants, track, left);
  const Clock::time_point start = Clock::now();
  for (std::size_t round = 1; round <= kMostSamples && !runners.empty(); ++round) {
    double next = 0;
    for (const Runner& one : runners) next += one.sample_seconds();
    if (round > 1 && seconds_since(start) + next > left) break;
    for (Runner& one : runners) one.sample();
    if (round == kLeastSamples) drop_slower_than(kSlow * least(runners), runners);
    if (round == 3 * kLeastSamples) drop_slower_than(kBehind * least(runners), runners);
    if (runners.size() == 1 && round >= kLeastSamples) break;
  }
  for (Runner& one : runners) one.finish();
}

}  // namespace gable
