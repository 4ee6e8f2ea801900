// What a row's time is compared with: the same case, layout aside, on a vendor's library; without one, on the first
// device.
#pragma once

#include <map>
#include <string>

#include "bench/report/study.h"

namespace gable::bench::report {

class Baselines {
 public:
  explicit Baselines(const Studies& studies);
  // The row itself where nothing else ran this case. `m` is of the studies that were passed.
  const Measurement& of(const Measurement& m) const;

 private:
  std::map<std::string, const Measurement*> chosen_;
};

}  // namespace gable::bench::report
