// The schema of a study but for its rows (row_schema.h).
#include "bench/record/schema.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/common/text.h"
#include "bench/record/field_check.h"
#include "bench/record/levels.h"
#include "bench/record/row_schema.h"

namespace gable::bench {
namespace {

using nlohmann::json;

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

void check_energy_counter(Checker& check, const json& entry, const std::string& at) {
  check.nonempty({entry, at, "device"});
  check_device_kind(check, entry, at);
  check.flag({entry, at, "available"});
  for (const char* key : {"by", "reason", "cure", "note"}) check.text({entry, at, key, Presence::optional});
  check.not_negative({entry, at, "idle_watts", Presence::optional});
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
