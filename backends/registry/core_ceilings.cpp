// gable/ceilings.h. On disk, the ceiling of one core lies in a file of its own in the cache of choices, as the measured
// time of a known amount of work.
#include <gable/ceilings.h>

#include <mutex>

#include "backends/registry/choice_cache.h"
#include "backends/registry/choice_identity.h"
#include "backends/registry/log.h"
#include "cpu/common/multiply_adds.h"

namespace gable {
namespace {

constexpr double kProbeSeconds = 0.5e-3;  // spent on measuring a core that `gable tune --ceilings` has not measured
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
    if (rate_ <= 0) rate_ = cpu::measured_multiply_adds(kProbeSeconds);
    return rate_;
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

  std::mutex mutex_;
  ChoiceCache cache_{choice_folder(), "gable ceilings; cpu" + cpu_identity()};
  double rate_ = 0;
};

}  // namespace

double core_multiply_adds() { return CoreCeilings::instance().multiply_adds(); }
double tune_ceilings(double seconds) { return CoreCeilings::instance().tune(seconds); }

}  // namespace gable
