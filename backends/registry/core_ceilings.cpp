// gable/ceilings.h and core_ceilings.h. On disk, the ceiling of one core lies in a file of its own in the cache of
// choices, as the measured time of a known amount of work.
#include "backends/registry/core_ceilings.h"

#include <gable/ceilings.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <vector>

#include "backends/registry/choice_cache.h"
#include "backends/registry/choice_identity.h"
#include "backends/registry/log.h"
#include "cpu/common/multiply_adds.h"

namespace gable {
namespace {

using Clock = std::chrono::steady_clock;

// Spent on measuring a core that `gable tune --ceilings` has not measured: when the rate is first needed, and for each
// sample before that.
constexpr double kProbeSeconds = 0.5e-3, kSampleSeconds = 0.1e-3;
constexpr double kBetweenSamples = 1e-3;
constexpr std::size_t kMostSamples = 32;  // of a process that opens `auto` often and never needs the rate
constexpr const char* kWorkName = "1e9 multiply-adds of f32, one core";
constexpr double kWorkDone = 1e9;

class CoreCeilings {
 public:
  static CoreCeilings& instance() {
    static CoreCeilings* one = new CoreCeilings();  // never destroyed: devices may outlive main()
    return *one;
  }

  double multiply_adds() {
    const std::lock_guard guard(mutex_);
    if (rate_ <= 0) rate_ = remembered();
    if (rate_ <= 0) {
      samples_.push_back(cpu::measured_multiply_adds(kProbeSeconds));
      rate_ = median_of_samples();
    }
    return rate_;
  }

  void sample() {
    const std::lock_guard guard(mutex_);
    if (rate_ <= 0 && samples_.empty()) rate_ = remembered();
    if (rate_ > 0 || samples_.size() == kMostSamples) return;
    if (std::chrono::duration<double>(Clock::now() - last_sample_).count() < kBetweenSamples) return;
    samples_.push_back(cpu::measured_multiply_adds(kSampleSeconds));
    last_sample_ = Clock::now();
  }

  double tune(double seconds) {
    const std::lock_guard guard(mutex_);
    rate_ = cpu::measured_multiply_adds(seconds);
    if (cache_.file().empty()) log_word("there is no folder for a cache, so ceilings are kept in memory alone");
    cache_.store(kWorkName, {.candidates = {{.device = "cpu", .kernel = "ceiling", .measured = kWorkDone / rate_}},
                             .source = ChoiceSource::measured});
    return rate_;
  }

 private:
  /// 0 if nothing was measured.
  double remembered() {
    const std::shared_ptr<const Ranking> found = cache_.find(kWorkName);
    if (!found || found->first() == nullptr || !found->first()->measured) return 0;
    return kWorkDone / *found->first()->measured;
  }

  /// Of an even number, the faster of the middle two.
  double median_of_samples() {
    std::sort(samples_.begin(), samples_.end());
    return samples_[samples_.size() / 2];
  }

  std::mutex mutex_;
  ChoiceCache cache_{choice_folder(), "gable ceilings; cpu" + cpu_identity()};
  double rate_ = 0;
  std::vector<double> samples_;  ///< in the order of time until the rate is known
  Clock::time_point last_sample_{};
};

}  // namespace

void sample_core_multiply_adds() { CoreCeilings::instance().sample(); }
double core_multiply_adds() { return CoreCeilings::instance().multiply_adds(); }
double tune_ceilings(double seconds) { return CoreCeilings::instance().tune(seconds); }

}  // namespace gable
