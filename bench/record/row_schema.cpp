// See row_schema.h.
#include "bench/record/row_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "bench/record/levels.h"
#include "bench/record/row_json.h"

namespace gable::bench {
namespace {

using nlohmann::json;

constexpr std::array kBounds{"compute", "memory:dram", "memory:l3", "memory:l2", "memory:l1", "overhead"};
constexpr double kDerivedTolerance = 0.01;

void check_tile(Checker& check, const json& entry, const std::string& at) {
  check.value({entry, at, "tile", Presence::optional}, is_pair_of_counts, "[lanes, length] of integers >= 1");
}

void check_epilogue(Checker& check, const json& entry, const std::string& at, Presence presence) {
  const json* epilogue = check.object({entry, at, "epilogue", presence});
  if (!epilogue) return;
  const std::string here = at + "/epilogue";
  check.flag({*epilogue, here, "bias"});
  check.choice({*epilogue, here, "activation"}, {"none", "relu", "tanh"});
  check.value({*epilogue, here, "max_pool", Presence::optional}, is_pair_of_counts, "a window [h, w] of integers >= 1");
}

// `value` is numerator / denominator * scale. Each part is null where the record has no valid one.
struct Ratio {
  const json* value;
  const json* numerator;
  const json* denominator;
  double scale;
  const char* formula;
};

// A point whose numbers contradict each other would be drawn in the wrong place.
void check_ratio(Checker& check, const std::string& pointer, const Ratio& ratio) {
  if (!ratio.value || !ratio.numerator || !ratio.denominator) return;
  const double right = ratio.numerator->get<double>() / ratio.denominator->get<double>() * ratio.scale;
  if (std::abs(ratio.value->get<double>() - right) > kDerivedTolerance * right) {
    check.report(pointer, *ratio.value, fmt::format("{} = {:.6g}", ratio.formula, right));
  }
}

// [q1, seconds, q3] of each round.
void check_rounds(Checker& check, const json& time, const std::string& at) {
  const auto rounds = time.find("rounds");
  if (rounds == time.end() || rounds->is_null()) return;
  if (!rounds->is_array()) return check.report(at + "/rounds", *rounds, "a list, or null");
  for (std::size_t i = 0; i < rounds->size(); ++i) {
    const json& one = (*rounds)[i];
    const bool three = one.is_array() && one.size() == 3 && std::all_of(one.begin(), one.end(), [](const json& v) {
                         return is_positive(v) && is_in_range(v);
                       });
    if (!three || one[0].get<double>() > one[1].get<double>() || one[1].get<double>() > one[2].get<double>())
      check.report(fmt::format("{}/rounds/{}", at, i), one, "[q1, seconds, q3], numbers that rise from 1e-18 to 1e30");
  }
}

const json* check_time(Checker& check, const json& entry, const std::string& at) {
  const json* time = check.object({entry, at, "T"});
  if (!time) return nullptr;
  check.choice({*time, at + "/T", "source"}, {"clock", "event"});
  check.count({*time, at + "/T", "runs"});
  check.quartiles({*time, at + "/T", "seconds"});
  check_rounds(check, *time, at + "/T");
  auto seconds = time->find("seconds");
  return seconds != time->end() && is_positive(*seconds) ? &*seconds : nullptr;
}

const json* check_work(Checker& check, const json& entry, const std::string& at) {
  const json* work = check.object({entry, at, "W"});
  if (!work) return nullptr;
  check.choice({*work, at + "/W", "source"}, kSources);
  check.not_negative({*work, at + "/W", "analytic"});
  return check.zero_or_positive({*work, at + "/W", "flop"});
}

// The farthest level that a row has Q of. Data of a program's part may stay in the caches; every other row has dram.
const char* required_level(const json& entry, const json& traffic) {
  const auto called = entry.find("called");
  const bool is_part = called != entry.end() && called->is_object();
  const char* farthest = is_part ? farthest_level([&](const char* one) { return traffic.contains(one); }) : nullptr;
  return farthest != nullptr ? farthest : "dram";
}

// Returns the bytes of the farthest level, which define the intensity.
const json* check_traffic(Checker& check, const json& entry, const std::string& at) {
  const json* traffic = check.object({entry, at, "Q"});
  if (!traffic) return nullptr;
  const json* farthest_bytes = nullptr;
  const char* farthest = required_level(entry, *traffic);
  if (!traffic->contains(farthest)) check.missing(at + "/Q/dram", "an object: the traffic to memory");
  for (const auto& [level, part] : traffic->items()) {
    const std::string here = at + "/Q/" + pointer_token(level);
    if (!is_one_of(json(level), kLevels)) {
      check.report(here, part, "a level: " + one_of(kLevels));
    } else if (!part.is_object()) {
      check.report(here, part, "an object");
    } else {
      check.choice({part, here, "source"}, kSources);
      check.positive({part, here, "analytic", Presence::optional});
      check.quartiles({part, here, "bytes", Presence::optional});
      auto bytes = part.find("bytes");
      if (level == farthest && bytes != part.end() && is_positive(*bytes)) farthest_bytes = &*bytes;
    }
  }
  return farthest_bytes;
}

bool says_conv_like(const json& entry) {
  auto op = entry.find("op");
  return op != entry.end() && (*op == "conv2d" || *op == "max_pool");
}

void check_arithmetic(Checker& check, const json& entry, const std::string& at) {
  const json* arithmetic = check.object({entry, at, "arithmetic", Presence::optional});
  if (!arithmetic) return;
  check.choice({*arithmetic, at + "/arithmetic", "dtype"}, kDtypes);
  check.count({*arithmetic, at + "/arithmetic", "products"});
  check.object({*arithmetic, at + "/arithmetic", "flop", Presence::optional});
}

void check_scaling(Checker& check, const json& entry, const std::string& at) {
  const json* scaling = check.object({entry, at, "scaling", Presence::optional});
  if (!scaling) return;
  for (const char* key : {"work", "bytes", "time"}) check.positive({*scaling, at + "/scaling", key});
  check.text({*scaling, at + "/scaling", "kernel", Presence::optional});
}

void check_energy(Checker& check, const json& entry, const std::string& at) {
  const json* energy = check.object({entry, at, "energy", Presence::optional});
  if (!energy) return;
  // A figure draws FLOP a joule.
  check.positive({*energy, at + "/energy", "joules", Presence::optional});
  for (const char* key : {"watts", "seconds", "uncertainty", "gflop_per_joule"}) {
    check.not_negative({*energy, at + "/energy", key, Presence::optional});
  }
  for (const char* key : {"reason", "by"}) check.text({*energy, at + "/energy", key, Presence::optional});
}

void check_instructions(Checker& check, const json& entry, const std::string& at) {
  const json* counts = check.object({entry, at, "instructions", Presence::optional});
  if (!counts) return;
  const std::string here = at + "/instructions";
  check.positive({*counts, here, "warp"});
  for (const char* key : {"thread", "thread_active"}) check.not_negative({*counts, here, key});
  const json* levels = check.object({*counts, here, "levels"});
  if (!levels) return;
  for (const auto& [name, level] : levels->items()) {
    const std::string place = here + "/levels/" + pointer_token(name);
    if (!level.is_object()) {
      check.report(place, level, "an object");
      continue;
    }
    for (const char* key : {"instructions", "transactions"}) check.positive({level, place, key});
  }
}

void check_limit(Checker& check, const json& limit, const std::string& at) {
  check.choice({limit, at, "bound"}, kBounds);
  check.text({limit, at, "roof"});
  check.positive({limit, at, "value"});
  check.not_negative({limit, at, "percent"});
}

void check_regime(Checker& check, const json& entry, const std::string& at) {
  const json* regime = check.object({entry, at, "regime", Presence::optional});
  if (!regime) return;
  check.nonempty({*regime, at + "/regime", "name"});
  check.text({*regime, at + "/regime", "evidence"});
}

}  // namespace

void check_device_kind(Checker& check, const json& entry, const std::string& at) {
  check.choice({entry, at, "device_kind", Presence::optional}, {"cpu", "gpu"});
}

void check_called(Checker& check, const json& entry, const std::string& at, Presence presence) {
  const json* called = check.object({entry, at, "called", presence});
  if (!called) return;
  check.count({*called, at + "/called", "calls"}, kMaxExact);
  check.not_negative({*called, at + "/called", "seconds"});
  check.not_negative({*called, at + "/called", "share", Presence::optional});
}

void check_measurement(Checker& check, const json& entry, const std::string& at) {
  for (const char* key : {"suite", "problem", "device_name", "kernel"}) check.text({entry, at, key});
  for (const char* key : {"name", "op", "device"}) check.nonempty({entry, at, key});
  check.text({entry, at, "asked", Presence::optional});
  check.choice({entry, at, "dtype"}, kDtypes);
  check.choice({entry, at, "layout", says_conv_like(entry) ? Presence::required : Presence::optional},
               {"nchw", "nhwc"});
  const bool is_conv = entry.contains("op") && entry["op"] == "conv2d";
  check_epilogue(check, entry, at, is_conv ? Presence::required : Presence::optional);
  check.choice({entry, at, "math", Presence::optional}, kMaths);
  check_tile(check, entry, at);
  check.flag({entry, at, "fused"});
  check.choice({entry, at, "cache"}, {"warm", "cold"});
  check_device_kind(check, entry, at);
  const bool on_gpu = device_kind_of(entry) == DeviceKind::gpu;
  check.count({entry, at, "threads", on_gpu ? Presence::optional : Presence::required});
  check.count({entry, at, "used_threads", Presence::optional});
  check_arithmetic(check, entry, at);

  const json* seconds = check_time(check, entry, at);
  const json* flop = check_work(check, entry, at);
  const json* bytes = check_traffic(check, entry, at);
  const json* intensity = check.not_negative({entry, at, "intensity"});
  const json* gflops = check.not_negative({entry, at, "gflops"});
  check_ratio(check, at + "/intensity", {intensity, flop, bytes, 1, "W.flop / Q.dram.bytes"});
  check_ratio(check, at + "/gflops", {gflops, flop, seconds, 1e-9, "W.flop / T.seconds / 1e9"});

  check.choice({entry, at, "bound", Presence::optional}, kBounds);
  check_list(check, {entry, at, "limits", Presence::optional}, check_limit);
  check_regime(check, entry, at);
  check.positive({entry, at, "working_set_bytes", Presence::optional});
  check.count({entry, at, "count", Presence::optional}, kMaxExact);
  check_called(check, entry, at, Presence::optional);
  check_energy(check, entry, at);
  check_instructions(check, entry, at);
  check_scaling(check, entry, at);
  for (const char* key : {"percent_of_roof", "max_error", "error_bound"}) {
    check.not_negative({entry, at, key, Presence::optional});
  }
}

}  // namespace gable::bench
