// A small checker for this one schema. Each field is looked up by name and has a predicate and a sentence that states
// what is expected, so that messages are as good as the documentation.
#include "bench/record/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>

#include "bench/common/text.h"
#include "bench/record/row_json.h"

namespace gable::bench {
namespace {

using nlohmann::json;
using Names = std::initializer_list<const char*>;

constexpr Names kDtypes = {"f64", "f32", "tf32", "f16", "bf16", "i8"};
constexpr Names kLevels = {"l1", "l2", "l3", "dram"};
constexpr Names kMaths = {"strict", "tf32", "split3", "split6"};
constexpr Names kSources = {"counter", "simulated", "analytic"};
constexpr Names kBounds = {"compute", "memory:dram", "memory:l3", "memory:l2", "memory:l1", "overhead"};
constexpr double kDerivedTolerance = 0.01;

// What can be measured lies far inside, in any unit of the record. The axes of a figure span what a study has, so
// 5e-324 FLOP would be an axis of 300 decades.
constexpr double kMinDrawn = 1e-18, kMaxDrawn = 1e30;
constexpr double kMaxInt = 2147483647;
constexpr double kMaxExact = 9007199254740992;  // 2^53

enum class Presence { required, optional };

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  constexpr size_t kMost = 80;
  return text.size() <= kMost ? text : text.substr(0, kMost) + "…";
}

std::string pointer_token(std::string_view key) {
  std::string token;
  for (char c : key) token += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return token;
}

std::string one_of(Names names) {
  std::string text = "one of";
  for (const char* name : names) text += fmt::format(" \"{}\"", name);
  return text;
}

bool is_one_of(const json& value, Names names) {
  if (!value.is_string()) return false;
  for (const char* name : names) {
    if (value.get_ref<const std::string&>() == name) return true;
  }
  return false;
}

bool is_number_from(const json& value, double least) {
  return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() >= least;
}

bool is_positive(const json& value) { return is_number_from(value, 0) && value.get<double>() > 0; }

bool is_in_range(const json& value) { return value.get<double>() >= kMinDrawn && value.get<double>() <= kMaxDrawn; }

bool is_count(const json& value, double most) {
  return value.is_number_integer() && value.get<double>() >= 1 && value.get<double>() <= most;
}

/// A field of an object, by its key. `at` is the object's JSON pointer.
struct Field {
  const json& holder;
  std::string at;
  const char* key;
  Presence presence = Presence::required;

  std::string pointer() const { return at + "/" + pointer_token(key); }
};

class Checker {
 public:
  explicit Checker(std::vector<Violation>& violations) : violations_(violations) {}

  void report(std::string pointer, const json& value, std::string expected) {
    violations_.push_back({std::move(pointer), shown(value), std::move(expected)});
  }

  void missing(std::string pointer, std::string expected) {
    violations_.push_back({std::move(pointer), "missing", std::move(expected)});
  }

  // The field's value if it satisfies the predicate, else null. An optional field may be missing or null; any other
  // failure is a violation.
  template <class Predicate>
  const json* value(const Field& field, Predicate right, const std::string& expected) {
    const bool optional = field.presence == Presence::optional;
    auto it = field.holder.find(field.key);
    const bool absent = it == field.holder.end() || (optional && it->is_null());
    if (absent) {
      if (!optional) missing(field.pointer(), expected);
      return nullptr;
    }
    if (!right(*it)) {
      report(field.pointer(), *it, expected + (optional ? ", or null" : ""));
      return nullptr;
    }
    return &*it;
  }

  void text(const Field& field) {
    value(
        field, [](const json& v) { return v.is_string(); }, "a string");
  }

  void nonempty(const Field& field) {
    const auto right = [](const json& v) { return v.is_string() && !v.get_ref<const std::string&>().empty(); };
    value(field, right, "a string that is not empty");
  }

  const json* choice(const Field& field, Names names) {
    const auto right = [&](const json& v) { return is_one_of(v, names); };
    return value(field, right, one_of(names));
  }

  const json* positive(const Field& field) { return in_range(field, value(field, is_positive, "a number > 0")); }

  const json* not_negative(const Field& field) {
    return value(
        field, [](const json& v) { return is_number_from(v, 0); }, "a number >= 0");
  }

  // A number >= 0 that a figure draws where it is not 0.
  const json* zero_or_positive(const Field& field) {
    const json* number = not_negative(field);
    return number && *number == 0 ? number : in_range(field, number);
  }

  void count(const Field& field, double most = kMaxInt) {
    const auto right = [&](const json& v) { return is_count(v, most); };
    value(field, right, fmt::format("an integer from 1 to {:.0f}", most));
  }

  void flag(const Field& field) {
    value(
        field, [](const json& v) { return v.is_boolean(); }, "true or false");
  }

  const json* object(const Field& field) {
    return value(
        field, [](const json& v) { return v.is_object(); }, "an object");
  }

  // The median is required; q1 and q3 of the same object enclose it. `median.presence` is that of q1 and q3.
  void quartiles(const Field& median) {
    const json* q1 = positive({median.holder, median.at, "q1", median.presence});
    const json* q3 = positive({median.holder, median.at, "q3", median.presence});
    const json* middle = positive({median.holder, median.at, median.key});
    if (q1 && middle && q1->get<double>() > middle->get<double>()) {
      report(median.at + "/q1", *q1, fmt::format("at most {}, which is {}", median.key, shown(*middle)));
    }
    if (q3 && middle && q3->get<double>() < middle->get<double>()) {
      report(median.at + "/q3", *q3, fmt::format("at least {}, which is {}", median.key, shown(*middle)));
    }
  }

 private:
  // `number`, or null and a violation where it is out of the range of what can be measured.
  const json* in_range(const Field& field, const json* number) {
    if (!number || is_in_range(*number)) return number;
    report(field.pointer(), *number, fmt::format("a number from {:g} to {:g}", kMinDrawn, kMaxDrawn));
    return nullptr;
  }

  std::vector<Violation>& violations_;
};

void check_machine(Checker& check, const json& study) {
  const json* machine = check.object({study, "", "machine"});
  if (!machine) return;
  const std::string at = "/machine";
  for (const char* key : {"cpu", "vendor", "compiler", "os", "date", "command"}) check.text({*machine, at, key});
  for (const char* key : {"cores", "threads"}) check.count({*machine, at, key});
  for (const char* key : {"gpu", "driver"}) check.text({*machine, at, key, Presence::optional});
  if (const json* caches = check.object({*machine, at, "caches"})) {
    for (const auto& [name, bytes] : caches->items()) {
      if (!is_positive(bytes)) check.report(at + "/caches/" + pointer_token(name), bytes, "a number of bytes > 0");
    }
  }
  if (const json* instances = check.object({*machine, at, "cache_instances", Presence::optional})) {
    for (const auto& [name, count] : instances->items()) {
      if (!is_count(count, kMaxInt)) check.report(at + "/cache_instances/" + pointer_token(name), count, "a count");
    }
  }
  if (const json* versions = check.object({*machine, at, "versions"})) {
    for (const auto& [name, version] : versions->items()) {
      if (!version.is_string()) check.report(at + "/versions/" + pointer_token(name), version, "a string");
    }
  }
}

void check_device_kind(Checker& check, const json& entry, const std::string& at) {
  check.choice({entry, at, "device_kind", Presence::optional}, {"cpu", "gpu"});
}

void check_ceiling(Checker& check, const json& ceiling, const std::string& at) {
  check.nonempty({ceiling, at, "device"});
  check_device_kind(check, ceiling, at);
  check.nonempty({ceiling, at, "name"});
  const json* kind = check.choice({ceiling, at, "kind"}, {"compute", "bandwidth"});
  if (kind && *kind == "compute") {
    check.nonempty({ceiling, at, "isa"});
    check.choice({ceiling, at, "dtype"}, kDtypes);
  } else if (kind) {
    check.choice({ceiling, at, "level"}, kLevels);
    check.choice({ceiling, at, "dtype", Presence::optional}, kDtypes);
  }
  check.count({ceiling, at, "threads", Presence::optional});
  check.positive({ceiling, at, "level_bytes", Presence::optional});
  check.quartiles({ceiling, at, "value"});
  check.count({ceiling, at, "runs"});
  check.positive({ceiling, at, "theoretical", Presence::optional});
  check.text({ceiling, at, "formula", Presence::optional});
  check.count({ceiling, at, "rounds", Presence::optional});
  for (const char* key : {"low", "high", "per_joule"}) check.positive({ceiling, at, key, Presence::optional});
}

void check_rate(Checker& check, const json& rate, const std::string& at) {
  for (const char* key : {"device", "name", "unit"}) check.nonempty({rate, at, key});
  check_device_kind(check, rate, at);
  check.quartiles({rate, at, "value"});
  check.count({rate, at, "runs"});
  check.positive({rate, at, "theoretical", Presence::optional});
  check.text({rate, at, "formula", Presence::optional});
}

bool is_pair_of_counts(const json& v) {
  return v.is_array() && v.size() == 2 && is_count(v[0], kMaxExact) && is_count(v[1], kMaxExact);
}

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
const char* farthest_level(const json& entry, const json& traffic) {
  const auto called = entry.find("called");
  if (called != entry.end() && called->is_object()) {
    for (const char* level : {"dram", "l3", "l2", "l1"})
      if (traffic.contains(level)) return level;
  }
  return "dram";
}

// Returns the bytes of the farthest level, which define the intensity.
const json* check_traffic(Checker& check, const json& entry, const std::string& at) {
  const json* traffic = check.object({entry, at, "Q"});
  if (!traffic) return nullptr;
  const json* farthest_bytes = nullptr;
  const char* farthest = farthest_level(entry, *traffic);
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

template <class CheckEntry>
void check_list(Checker& check, const Field& field, CheckEntry check_entry) {
  const json* list = check.value(
      field, [](const json& v) { return v.is_array(); }, "a list");
  if (!list) return;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string at = fmt::format("{}/{}", field.pointer(), i);
    if ((*list)[i].is_object()) {
      check_entry(check, (*list)[i], at);
    } else {
      check.report(at, (*list)[i], "an object");
    }
  }
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

void check_energy_counter(Checker& check, const json& entry, const std::string& at) {
  check.nonempty({entry, at, "device"});
  check_device_kind(check, entry, at);
  check.flag({entry, at, "available"});
  for (const char* key : {"by", "reason", "cure", "note"}) check.text({entry, at, key, Presence::optional});
  check.not_negative({entry, at, "idle_watts", Presence::optional});
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

void check_total(Checker& check, const json& entry, const std::string& at) {
  for (const char* key : {"suite", "dtype", "device"}) check.nonempty({entry, at, key});
  for (const char* key : {"layers", "layers_of_list", "convolutions"}) check.count({entry, at, key}, kMaxExact);
  check.positive({entry, at, "seconds"});
  check.not_negative({entry, at, "flop"});
}

void check_part(Checker& check, const json& entry, const std::string& at) {
  check.choice({entry, at, "kind"}, {"program", "region", "kernel", "rest"});
  check.nonempty({entry, at, "name"});
  check.text({entry, at, "device"});
  check_called(check, entry, at, Presence::required);
  check.text({entry, at, "reason", Presence::optional});
  if (const json* time = check.object({entry, at, "T", Presence::optional})) {
    check.positive({*time, at + "/T", "seconds"});
    check.quartiles({*time, at + "/T", "seconds"});
  }
  if (const json* work = check.object({entry, at, "W", Presence::optional})) {
    check.choice({*work, at + "/W", "source"}, kSources);
    check.not_negative({*work, at + "/W", "flop"});
  }
}

void check_kernel_refusal(Checker& check, const json& entry, const std::string& at) {
  for (const char* key : {"kernel", "reason"}) check.text({entry, at, key});
}

void check_refused(Checker& check, const json& entry, const std::string& at) {
  for (const char* key : {"suite", "name", "problem", "dtype", "device", "reason"}) check.text({entry, at, key});
  check.choice({entry, at, "math", Presence::optional}, kMaths);
  check_list(check, {entry, at, "kernels", Presence::optional}, check_kernel_refusal);
}

void check_program(Checker& check, const json& study) {
  const json* program = check.object({study, "", "program", Presence::optional});
  if (!program) return;
  const std::string at = "/program";
  check.flag({*program, at, "interrupted", Presence::optional});
  check.text({*program, at, "command"});
  check.not_negative({*program, at, "seconds"});
  check_list(check, {*program, at, "parts"}, check_part);
  const json* notes = check.value(
      {*program, at, "notes"}, [](const json& v) { return v.is_array(); }, "a list");
  if (!notes) return;
  for (size_t i = 0; i < notes->size(); ++i) {
    if (!(*notes)[i].is_string()) check.report(fmt::format("{}/notes/{}", at, i), (*notes)[i], "a string");
  }
}

std::string message(const std::vector<Violation>& violations) {
  constexpr size_t kMost = 10;
  std::string text = "the study does not follow its schema (docs/record.md):";
  for (size_t i = 0; i < violations.size() && i < kMost; ++i) {
    const Violation& v = violations[i];
    text += fmt::format("\n  {}: is {}; expected {}", v.pointer.empty() ? "the document" : printable(v.pointer),
                        printable(v.value), v.expected);
  }
  if (violations.size() > kMost) text += fmt::format("\n  and {} more", violations.size() - kMost);
  return text;
}

}  // namespace

SchemaError::SchemaError(std::vector<Violation> violations)
    : std::runtime_error(message(violations)), violations_(std::move(violations)) {}

std::vector<Violation> check_study(const json& study) {
  std::vector<Violation> violations;
  Checker check(violations);
  if (!study.is_object()) {
    check.report("", study, "an object: a study");
    return violations;
  }
  check.value(
      {study, "", "schema_version"}, [](const json& v) { return v == kSchemaVersion; },
      fmt::format("{}, the version that this gable reads", kSchemaVersion));
  check_machine(check, study);
  check_list(check, {study, "", "ceilings"}, check_ceiling);
  check_list(check, {study, "", "measurements"}, check_measurement);
  check_list(check, {study, "", "refused"}, check_refused);
  check_list(check, {study, "", "rates", Presence::optional}, check_rate);
  check_list(check, {study, "", "totals", Presence::optional}, check_total);
  check_list(check, {study, "", "energy", Presence::optional}, check_energy_counter);
  check_program(check, study);
  return violations;
}

void validate_study(const json& study) {
  std::vector<Violation> violations = check_study(study);
  if (!violations.empty()) throw SchemaError(std::move(violations));
}

}  // namespace gable::bench
