// See against.h.
#include "bench/report/against.h"

#include <fmt/format.h>

namespace gable::bench::report {
namespace {

// The fields that must be equal for two times to be comparable.
std::string comparable(const Measurement& m) {
  const Identity& i = m.identity;
  const EpilogueFields epilogue = i.epilogue.value_or(EpilogueFields{});
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", i.suite, i.name, i.op, i.problem, i.dtype, epilogue.bias,
                     epilogue.activation, max_pool_of(m), m.place.cache);
}

}  // namespace

Baselines::Baselines(const Studies& studies) {
  for (const Measurement& m : studies.measurements) {
    const Measurement*& slot = chosen_[comparable(m)];
    if (!slot || (is_vendor_library(m.place.device) && !is_vendor_library(slot->place.device))) slot = &m;
  }
}

const Measurement& Baselines::of(const Measurement& m) const { return *chosen_.at(comparable(m)); }

}  // namespace gable::bench::report
