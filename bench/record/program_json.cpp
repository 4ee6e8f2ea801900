// See program_json.h.
#include "bench/record/program_json.h"

#include <nlohmann/json.hpp>

#include "bench/record/row_json.h"

namespace gable::bench {
namespace {

using nlohmann::json;

json to_json(const ProgramPart& part) {
  json entry{{"kind", part.kind}, {"name", part.name}, {"device", part.device}, {"called", to_json(part.called)}};
  if (part.time) entry["T"] = {{"seconds", part.time->seconds}, {"q1", part.time->q1}, {"q3", part.time->q3}};
  if (part.work) entry["W"] = {{"source", part.work->source}, {"flop", part.work->flop}};
  if (!part.reason.empty()) entry["reason"] = part.reason;
  if (!part.flags.empty()) entry["flags"] = part.flags;
  for (const Regime& finding : part.findings) entry["findings"].push_back(to_json(finding));
  if (!part.counts.empty()) entry["counts"] = part.counts;
  return entry;
}

std::vector<Regime> findings_from_json(const json& entry) {
  std::vector<Regime> findings;
  const auto found = entry.find("findings");
  if (found == entry.end() || !found->is_array()) return findings;
  for (const json& finding : *found) {
    if (auto regime = regime_from_json(finding)) findings.push_back(std::move(*regime));
  }
  return findings;
}

std::optional<CallTime> time_from_json(const json& part) {
  const auto found = part.find("T");
  if (found == part.end() || !found->is_object()) return std::nullopt;
  const auto seconds = number_or_empty<double>(*found, "seconds");
  if (!seconds || *seconds <= 0) return std::nullopt;
  return CallTime{*seconds, number_or_empty<double>(*found, "q1").value_or(*seconds),
                  number_or_empty<double>(*found, "q3").value_or(*seconds)};
}

std::optional<CallWork> work_from_json(const json& part) {
  const auto found = part.find("W");
  if (found == part.end() || !found->is_object()) return std::nullopt;
  const auto flop = number_or_empty<double>(*found, "flop");
  return flop ? std::optional(CallWork{text_or_empty(*found, "source"), *flop}) : std::nullopt;
}

ProgramPart part_from_json(const json& entry) {
  ProgramPart part{.kind = entry["kind"],
                   .name = entry["name"],
                   .device = entry["device"],
                   .called = called_from_json(entry).value_or(CallFields{}),
                   .time = time_from_json(entry),
                   .work = work_from_json(entry),
                   .reason = text_or_empty(entry, "reason"),
                   .findings = findings_from_json(entry)};
  if (const auto flags = entry.find("flags"); flags != entry.end() && flags->is_array()) {
    for (const json& flag : *flags) {
      if (flag.is_string()) part.flags.push_back(flag);
    }
  }
  if (const auto counts = entry.find("counts"); counts != entry.end() && counts->is_object()) {
    for (const auto& [name, value] : counts->items()) {
      if (value.is_number()) part.counts[name] = value;
    }
  }
  return part;
}

}  // namespace

json to_json(const CallFields& called) {
  json entry{{"calls", called.calls}, {"seconds", called.seconds}};
  if (called.share) entry["share"] = *called.share;
  if (!called.region.empty()) entry["region"] = called.region;
  if (!called.origin.empty()) entry["origin"] = called.origin;
  return entry;
}

std::optional<CallFields> called_from_json(const json& measurement) {
  const auto found = measurement.find("called");
  if (found == measurement.end() || !found->is_object()) return std::nullopt;
  return CallFields{.calls = number_or_empty<std::int64_t>(*found, "calls").value_or(1),
                    .seconds = number_or_empty<double>(*found, "seconds").value_or(0),
                    .share = number_or_empty<double>(*found, "share"),
                    .region = text_or_empty(*found, "region"),
                    .origin = text_or_empty(*found, "origin")};
}

json to_json(const ProgramEntry& program) {
  json entry{{"command", program.command},
             {"exit_code", program.exit_code ? json(*program.exit_code) : json(nullptr)},
             {"signal", program.signal ? json(*program.signal) : json(nullptr)},
             {"seconds", program.seconds},
             {"processes", program.processes},
             {"interrupted", program.interrupted},
             {"parts", json::array()},
             {"notes", program.notes}};
  if (program.cpu_seconds) entry["cpu_seconds"] = *program.cpu_seconds;
  for (const ProgramPart& part : program.parts) entry["parts"].push_back(to_json(part));
  for (const Regime& finding : program.findings) entry["findings"].push_back(to_json(finding));
  return entry;
}

ProgramEntry program_from_json(const json& program) {
  ProgramEntry entry{.command = program["command"],
                     .exit_code = number_or_empty<int>(program, "exit_code"),
                     .signal = number_or_empty<int>(program, "signal"),
                     .seconds = program["seconds"],
                     .cpu_seconds = number_or_empty<double>(program, "cpu_seconds"),
                     .processes = number_or_empty<int>(program, "processes").value_or(1),
                     .interrupted = program.contains("interrupted") && program["interrupted"] == true};
  for (const json& part : program["parts"]) entry.parts.push_back(part_from_json(part));
  for (const json& note : program["notes"]) entry.notes.push_back(note);
  entry.findings = findings_from_json(program);
  return entry;
}

}  // namespace gable::bench
