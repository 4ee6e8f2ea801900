// See tuner.h.
//
// A contestant's time is the first quartile of its samples: what else runs on the machine only adds to samples. Samples
// of all contestants alternate, so that a slow phase of the machine meets all of them. On the host they are measured
// with several plans and sets of tensors each, and the median counts: how memory lies in caches decides some percent
// between direct kernels, and a factor of two where a library keeps much in a workspace (oneDNN's Winograd).
//
// On the host a sample of a short op is the geometric mean of two times: of runs that follow one another, as in a loop
// over one op, and of a run as a layer of a network sees it: matrix units awake, input and output in L2, weights from
// the last level, where other layers have pushed them. Kernels that are equal in one of these states differ by up to 3
// in the other, so the one that is best in both together is right wherever the op runs.
#include "backends/registry/tuner.h"

#include <gable/error.h>

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "backends/registry/operands.h"
#include "backends/registry/sweep.h"
#include "common/interruptions.h"
#include "common/number.h"

namespace gable {
namespace {

constexpr double kSampleSeconds = 20e-6;  // a sample is several runs if one is shorter
constexpr double kLong = 1e-3;            // longer runs take the same time whatever was in L2 before
constexpr double kQueuedSeconds = 2e-3;   // the same where runs are enqueued: to start and await them takes 10 us
constexpr int kMaxRuns = 2000;            // of a sample
constexpr std::size_t kMinSamples = 3, kEnoughSamples = 40, kMaxSamples = 2000;
constexpr std::size_t kTracks = 3;                             // plans and sets of tensors, on the host,
constexpr std::size_t kMaxTrackBytes = std::size_t{64} << 20;  // where one is at most of this size
constexpr double kPrepareShare = 0.5;  // of the limit: after first runs of that time no further contestant is made
constexpr double kSearchShare = 0.5;   // of the limit: for searching for plans, where one is searched for
constexpr int kTries = 4;              // of a sample,
constexpr double kRepeatable = 20e-3;  // where it takes at most that long: no longer one goes without interruptions
constexpr int kMinRuns = 2;            // of a contestant: the first may load code
constexpr double kFillRate = 1e9;      // bytes a second of random tensors, whose pages are new
constexpr double kShort = 4;           // samples: shorter runs are repeated, to learn how many make a sample
constexpr double kPlausible = 10;      // times the prediction: a first run of less loads no code
constexpr double kHopeless = 3;        // times the fastest, after first runs of kHeldUp
constexpr double kSlow = 1.25;         // times the fastest, after kMinSamples and kHeldUp
constexpr double kBehind = 1.08;       // times the fastest, after three times as many
constexpr double kFar = 2.5;           // times the fastest on one set of tensors: no other set makes up for it
constexpr double kHeldUp = 20e-3;      // seconds that another process may slow one contestant down for

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double now(const Contest& contest) { return contest.clock ? contest.clock() : steady_seconds(); }

long interruptions_of(const Contest& contest) {
  return contest.interruptions ? contest.interruptions() : interruptions();
}

std::string text_of_seconds(double seconds) { return short_number(seconds, 3) + " s"; }

void sweep(const Contest& contest, int threads) { contest.sweep ? contest.sweep() : sweep_private_caches(threads); }

/// Host devices compute with OpenMP's threads unless ?threads= says how many.
int threads_of(const DeviceImpl& device) {
  const DeviceUri uri = parse_device_uri(device.info().uri);
  const auto option = uri.options.find("threads");
  return option == uri.options.end() ? omp_get_max_threads() : std::max(1, std::atoi(option->second.c_str()));
}

/// The time limit of a contest. A run can't be interrupted, so a run that would exceed the limit must not begin.
class Limit {
 public:
  explicit Limit(const Contest& contest) : contest_(contest) {}

  double left() const { return contest_.seconds - (now(contest_) - start_); }
  /// Throws Error(invalid_argument) if `seconds`, the predicted time of `what`, exceed what is left.
  void require(double seconds, const char* what) const {
    if (seconds <= left()) return;
    throw Error(ErrorCode::invalid_argument, describe(contest_.op) + ": the limit is " +
                                                 text_of_seconds(contest_.seconds) + ", of which " +
                                                 text_of_seconds(std::max(0.0, left())) + " are left, too short for " +
                                                 text_of_seconds(seconds) + " of " + what);
  }

 private:
  const Contest& contest_;
  double start_ = now(contest_);
};

/// Random values between -1 and 1 in any dtype; a block of them is repeated.
void fill(void* to, std::size_t bytes, DType dtype, const Limit& limit) {
  constexpr std::size_t kBlock = 1 << 16, kPiece = 1 << 25;
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
    limit.require(static_cast<double>(bytes - done) / kFillRate, "making tensors");
    const std::size_t more = std::min({done, bytes - done, kPiece});
    std::memcpy(first + done, first, more);
    done += more;
  }
}

/// The op's tensors, in the memory of their owner.
class Track {
 public:
  Track(const Contest& contest, const Limit& limit) : owner_(*contest.owner), limit_(limit) {
    const Operands operands = operands_of(contest.op);
    for (std::size_t i = 0; i < 2; ++i)
      arguments_.inputs[i] = filled(operands.bytes(operands.inputs[i]), operands.dtype);
    weights_ = filled(operands.bytes(operands.weights), operands.dtype);
    arguments_.bias = static_cast<const float*>(filled(operands.bias_bytes(), DType::f32));
    arguments_.output = allocate(operands.bytes(operands.output));
    owner_.synchronize(nullptr);
  }

  const RunArguments& arguments() const { return arguments_; }
  const void* weights() const { return weights_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void* allocate(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    bytes_ += bytes;
    storages_.push_back(owner_.allocate(bytes));
    return storages_.back().get();
  }

  void* filled(std::size_t bytes, DType dtype) {
    void* const to = allocate(bytes);
    if (bytes == 0) return to;
    const Memory memory = owner_.info().memory;
    if (memory.kind == Memory::Kind::host) {
      fill(to, bytes, dtype, limit_);
      return to;
    }
    const Tensor values(DType::f16, Shape{static_cast<std::int64_t>(bytes / 2)});
    fill(values.data(), bytes, dtype, limit_);
    owner_.copy(values, TensorView(to, DType::f16, values.shape(), Layout::nchw, memory), nullptr);
    owner_.synchronize(nullptr);
    return to;
  }

  const DeviceImpl& owner_;
  const Limit& limit_;
  std::vector<std::shared_ptr<void>> storages_;
  RunArguments arguments_{};
  const void* weights_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A contestant with its plan.
class Runner {
 public:
  /// A first run of more than `limit` seconds is not repeated.
  Runner(const Contest& contest, Contestant& contestant, std::unique_ptr<PlanImpl> plan, const Track& track,
         double limit)
      : contest_(&contest),
        contestant_(&contestant),
        queued_(contestant.device->info().memory.kind != Memory::Kind::host),
        threads_(queued_ ? 1 : threads_of(*contestant.device)),
        plan_(std::move(plan)) {
    use(track);
    sample_seconds_ = queued_ ? kQueuedSeconds : kSampleSeconds;
    least_ = seconds_of(1);  // a GPU loads or translates code in the first run, which may take seconds
    const bool suffices = least_ > limit && contestant.predicted && least_ < kPlausible * *contestant.predicted;
    if (!suffices) least_ = seconds_of(1);
    warm_ = least_;
    if (!queued_ && least_ < kShort * sample_seconds_) find_warm_time();
  }

  /// The next samples use these tensors. Weights are packed into new memory.
  void use(const Track& track) {
    end_track();
    arguments_ = track.arguments();
    if (track.weights() == nullptr) return;
    const std::shared_ptr<void> before = std::move(packed_), spare_before = std::move(spare_);
    packed_ = packed(track);
    arguments_.weights = packed_.get();
    if (!queued_ && plan_->details().packed_bytes <= kMaxTrackBytes) spare_ = packed(track);
  }

  /// The same with a new plan, whose workspace lies elsewhere, where it is not searched for.
  void use_anew(const Track& track) {
    if (contestant_->search) return use(track);
    std::unique_ptr<PlanImpl> plan = contestant_->make();
    const std::unique_ptr<PlanImpl> before = std::exchange(plan_, std::move(plan));
    use(track);
    timed(1);
  }

  void sample() {
    const double start = now(*contest_);
    const bool is_short = !queued_ && least_ < kLong;
    const double seconds = is_short ? std::sqrt(seconds_repeated() * seconds_in_network()) : seconds_of(runs());
    took_ = now(*contest_) - start;
    least_ = samples_.empty() ? seconds : std::min(least_, seconds);
    samples_.push_back(seconds);
  }
  /// How many times as long as predicted a run takes; 1 where nothing was predicted.
  double slowness() const { return contestant_->predicted ? least_ / *contestant_->predicted : 1; }
  /// Its fastest run with the current tensors.
  double least() const { return least_; }
  std::size_t samples() const { return samples_.size(); }
  /// Expected duration of one sample.
  double sample_seconds() const { return std::max(took_, least_ * runs()); }

  void finish() {
    if (samples_.empty() && quartiles_.empty()) samples_.push_back(least_);
    end_track();
    const auto median = quartiles_.begin() + static_cast<std::ptrdiff_t>((quartiles_.size() - 1) / 2);
    std::nth_element(quartiles_.begin(), median, quartiles_.end());
    contestant_->seconds = *median;
  }

  void fail(const std::string& what) { contestant_->failure = what; }

 private:
  /// By the time of runs that follow one another: a sample whose weights come from L3 would else have fewer runs, and
  /// never find out how fast the contestant becomes.
  int runs() const {
    const double seconds = std::max(std::min(warm_, least_), 1e-9);
    return std::clamp(static_cast<int>(sample_seconds_ / seconds), 1, kMaxRuns);
  }

  /// Matrix units need some runs to wake up.
  void find_warm_time() {
    for (int count = 2, before = 1; count > before; before = count, count = runs()) {
      warm_ = std::min(warm_, seconds_of(count));
    }
  }

  std::shared_ptr<void> packed(const Track& track) {
    std::shared_ptr<void> weights = contestant_->device->allocate(plan_->details().packed_bytes);
    plan_->pack(track.weights(), weights.get());
    return weights;
  }

  /// A run in a loop: the run before has put into L2 what fits.
  double seconds_repeated() {
    return uninterrupted(runs(), [&](int runs) {
      timed(1);
      return timed(runs);
    });
  }

  /// A run among other layers, which have pushed the weights out of L2. A run with the same weights in another place
  /// comes before it: it wakes matrix units and brings input, output and code, as the layer before does.
  double seconds_in_network() {
    return uninterrupted(1, [&](int) {
      sweep(*contest_, threads_);
      RunArguments elsewhere = arguments_;
      if (spare_ != nullptr) elsewhere.weights = spare_.get();
      plan_->run(elsewhere);
      return timed(1);
    });
  }

  double seconds_of(int runs) {
    return uninterrupted(runs, [&](int count) { return timed(count); });
  }

  /// Runs that another program interrupts are repeated: the least of kTries counts.
  template <typename Time>
  double uninterrupted(int runs, const Time& time) {
    double least = 0;
    for (int i = 0; i < kTries; ++i) {
      const long before = interruptions_of(*contest_);
      const double seconds = time(runs);
      least = i == 0 ? seconds : std::min(least, seconds);
      if (interruptions_of(*contest_) == before || runs * seconds > kRepeatable) break;
    }
    return least;
  }

  double timed(int runs) {
    const double start = now(*contest_);
    for (int i = 0; i < runs; ++i) plan_->run(arguments_);
    contestant_->device->synchronize(nullptr);
    return (now(*contest_) - start) / runs;
  }

  void end_track() {
    if (!samples_.empty()) quartiles_.push_back(quartile());
    samples_.clear();
  }

  double quartile() {
    const auto at = samples_.begin() + static_cast<std::ptrdiff_t>(samples_.size() / 4);
    std::nth_element(samples_.begin(), at, samples_.end());
    return *at;
  }

  const Contest* contest_;
  Contestant* contestant_;
  bool queued_;  ///< runs are enqueued, not finished
  int threads_;  ///< of the host
  RunArguments arguments_{};
  std::unique_ptr<PlanImpl> plan_;
  std::shared_ptr<void> packed_;
  std::shared_ptr<void> spare_;    ///< the same weights once more, on the host
  std::vector<double> samples_;    // with the current tensors
  std::vector<double> quartiles_;  // one for each earlier set of tensors
  double sample_seconds_ = kSampleSeconds;
  double least_ = 0;
  double warm_ = 0;  ///< a run among others of its own, at best
  double took_ = 0;  ///< the last sample with all that belongs to it
};

double least(const std::vector<Runner*>& runners) {
  return (*std::min_element(runners.begin(), runners.end(),
                            [](const Runner* a, const Runner* b) { return a->least() < b->least(); }))
      ->least();
}

std::vector<Runner*> pointers_to(std::vector<Runner>& runners) {
  std::vector<Runner*> all;
  for (Runner& one : runners) all.push_back(&one);
  return all;
}

/// Drops the runners whose fastest run took longer than `limit`.
void drop_slower_than(double limit, std::vector<Runner*>& runners) {
  runners.erase(std::remove_if(runners.begin(), runners.end(), [&](const Runner* one) { return one->least() > limit; }),
                runners.end());
}

/// Ends the runners whose fastest run took `times` as long as the fastest of all, unless it was shorter than `held_up`:
/// another process may have delayed it.
void end_slower_than(double times, std::vector<Runner>& runners, double held_up = 0) {
  const double limit = times * least(pointers_to(runners));
  const auto slow = std::stable_partition(
      runners.begin(), runners.end(), [&](const Runner& one) { return one.least() <= limit || one.least() < held_up; });
  for (auto one = slow; one != runners.end(); ++one) one->finish();
  runners.erase(slow, runners.end());
}

/// Makes the plans and runs each for the first time. Searches for plans get kSearchShare of `left`, first runs up to
/// kPrepareShare of the rest. Making plans without a search does not count.
std::vector<Runner> prepare(const Contest& contest, std::vector<Contestant>& contestants, const Track& track,
                            double& left) {
  std::vector<Runner> runners;
  const auto searches =
      std::count_if(contestants.begin(), contestants.end(), [](const auto& one) { return one.search; });
  const PlanSearch search{.seconds = searches == 0 ? 0 : kSearchShare * left / static_cast<double>(searches)};
  left -= search.seconds * static_cast<double>(searches);
  const double kept = (1 - kPrepareShare) * left;
  for (Contestant& one : contestants) {
    if (!runners.empty() && left < kept) break;
    const double slowness = runners.empty() ? 1 : runners.front().slowness();
    if (!runners.empty() && kMinRuns * slowness * one.predicted.value_or(0) > left) continue;
    try {
      std::unique_ptr<PlanImpl> plan = one.search ? one.search(search) : one.make();
      one.program = plan->details().program;
      const double start = now(contest);
      runners.emplace_back(contest, one, std::move(plan), track, left);
      left -= now(contest) - start;
    } catch (const std::bad_alloc&) {
      one.failure = "out of memory";
    } catch (const std::exception& error) {
      one.failure = error.what();
    }
    if (!runners.empty()) end_slower_than(kHopeless, runners, kHeldUp / kMinRuns);
  }
  left = std::max(left, kept);
  return runners;
}

/// Takes one sample of each runner a round, until the order is certain, there are enough samples, or `seconds` are
/// over.
void take_turns(const Contest& contest, std::vector<Runner*> runners, double seconds) {
  const double start = now(contest);
  const bool alone = runners.size() == 1;
  for (std::size_t round = 1; round <= kMaxSamples && !runners.empty(); ++round) {
    double next = 0;
    for (const Runner* one : runners) next += one->sample_seconds();
    if (now(contest) - start + next > seconds) return;
    for (Runner* one : runners) one->sample();
    if (alone && round >= kMinSamples) return;
    if (round < kMinSamples || now(contest) - start < kHeldUp) continue;
    drop_slower_than((round < 3 * kMinSamples ? kSlow : kBehind) * least(runners), runners);
    if (runners.size() == 1 || round >= kEnoughSamples) return;
  }
}

/// How many sets of tensors to measure on.
std::size_t tracks_of(const Contest& contest, const Track& track) {
  const bool on_host = contest.owner->info().memory.kind == Memory::Kind::host;
  return on_host && track.bytes() <= kMaxTrackBytes ? kTracks : 1;
}

/// Gives the runners a further set of tensors and, where it is not searched for, a new plan. False where there is no
/// memory or no time for it.
bool use_further(std::vector<std::unique_ptr<Track>>& tracks, const Contest& contest, const Limit& limit,
                 std::vector<Runner>& runners) {
  try {
    tracks.push_back(std::make_unique<Track>(contest, limit));
    for (Runner& one : runners) one.use_anew(*tracks.back());
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

void measure(const Contest& contest, std::vector<Contestant>& contestants) {
  const Limit limit(contest);
  const double runs = contestants.empty() ? 0 : kMinRuns * contestants.front().predicted.value_or(0);
  limit.require(runs, "two runs, by prediction");
  std::vector<std::unique_ptr<Track>> tracks;  // all are kept, so that each has other memory
  tracks.push_back(std::make_unique<Track>(contest, limit));
  limit.require(runs, "two runs, by prediction");
  double left = std::max(0.0, limit.left());
  std::vector<Runner> runners = prepare(contest, contestants, *tracks.front(), left);
  for (std::size_t tracks_left = tracks_of(contest, *tracks.front()); tracks_left > 0 && !runners.empty();
       --tracks_left) {
    const double start = now(contest);
    take_turns(contest, pointers_to(runners), left / static_cast<double>(runners.size() == 1 ? 1 : tracks_left));
    end_slower_than(kFar, runners);
    if (tracks_left == 1 || runners.size() == 1 || !use_further(tracks, contest, limit, runners)) break;
    left -= now(contest) - start;
  }
  for (Runner& one : runners) one.finish();
}

}  // namespace gable
