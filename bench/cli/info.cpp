// See info.h.
#include "bench/cli/info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gable/device.h>
#include <gable/version.h>
#include <nlohmann/json.hpp>

#include "bench/cli/dependencies.h"
#include "bench/common/text.h"
#include "bench/measure/devices.h"
#include "bench/record/study_json.h"
#include "perfcounters/sources/source.h"

namespace gable::bench {
namespace {

using nlohmann::json;

json device_record(const DeviceInfo& device) {
  return {{"uri", device.uri},
          {"device_kind", to_string(kind_of(device.memory))},
          {"backend", device.backend},
          {"name", device.name},
          {"available", device.available},
          {"reason", device.reason},
          {"memory", to_string(device.memory)},
          {"library", device.library},
          {"kernels", device.kernels}};
}

json abilities_record(const std::vector<perf::Ability>& abilities) {
  json list = json::array();
  for (const perf::Ability& one : abilities) {
    list.push_back(to_json(one));
  }
  return list;
}

json source_record(const perf::SourceStatus& source) {
  return {{"name", source.name},         {"available", source.available},
          {"provides", source.provides}, {"reason", source.reason},
          {"cure", source.cure},         {"quantities", abilities_record(source.abilities)}};
}

std::string indented(std::string text) {
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 6) text.replace(at, 1, "\n     ");
  return text;
}

std::vector<std::string> names_of(const std::vector<Dependency>& all) {
  std::vector<std::string> names;
  for (const Dependency& one : all) names.push_back(one.name + " " + one.version);
  return names;
}

void print_machine(const perf::Machine& machine, Console& console) {
  console.print(fmt::format("gable {}", GABLE_VERSION_STRING));
  console.print(fmt::format("\nMachine\n  {}, {} of {} hardware threads on {} cores, {:.2f} GHz", machine.cpu.name,
                            machine.threads.available, machine.threads.online, machine.threads.cores,
                            machine.cpu.clock_hz / 1e9));
  console.print(fmt::format(
      "  L1d {}, L2 {}, L3 {}, memory {}", bytes_text(static_cast<double>(machine.caches.l1d.bytes)),
      bytes_text(static_cast<double>(machine.caches.l2.bytes)),
      bytes_text(static_cast<double>(machine.caches.l3.bytes)), bytes_text(static_cast<double>(machine.memory.bytes))));
  console.print(fmt::format("  {}", fmt::join(machine.cpu.simd, " ")));
  console.print(
      fmt::format("  {}, {}{}", machine.system.os, machine.system.kernel,
                  machine.system.virtual_machine ? ", virtual machine (" + machine.system.hypervisor + ")" : ""));
  for (const std::string& note : machine.notes) console.print("  note: " + note);
}

void print_device(const DeviceInfo& device, Console& console) {
  const std::string state = device.available ? device.name : "not available: " + indented(device.reason);
  console.print(fmt::format("  {:<14} {}", device.uri, state));
  if (!device.kernels.empty()) console.print(fmt::format("  {:<14} kernels: {}", "", fmt::join(device.kernels, ", ")));
  if (!device.library.empty()) console.print(fmt::format("  {:<14} from {}", "", device.library));
}

/// For a source that is available: the quantities that it can't give, and the conditions of the others.
void print_abilities(const perf::SourceStatus& source, Console& console) {
  for (const perf::Ability& one : source.abilities) {
    if (!source.available || one.reason.empty() || one.reason == source.reason) continue;
    console.print(fmt::format("  {:<14} {}{}: {}", "", one.available ? "" : "no ", perf::to_string(one.metric),
                              indented(one.reason)));
  }
}

void print_source(const perf::SourceStatus& source, Console& console) {
  console.print(
      fmt::format("  {:<14} {}: {}", source.name, source.available ? "available" : "not available", source.provides));
  if (!source.reason.empty()) console.print(fmt::format("  {:<14} why not: {}", "", indented(source.reason)));
  if (!source.cure.empty()) console.print(fmt::format("  {:<14} cure: {}", "", indented(source.cure)));
  print_abilities(source, console);
}

}  // namespace

void info(Console& console) {
  console.check_target();
  const perf::Machine machine = perf::describe_machine();
  json document{{"schema_version", 1},
                {"version", GABLE_VERSION_STRING},
                {"machine", machine_json(machine, "gable info")},
                {"devices", json::array()},
                {"counters", json::array()}};
  print_machine(machine, console);
  console.print("\nDevices, as `auto` prefers them");
  for (const DeviceInfo& device : devices()) {
    print_device(device, console);
    document["devices"].push_back(device_record(device));
  }
  console.print("\nCounters: where work W, traffic Q and time T come from");
  for (const perf::SourceStatus& source : perf::counter_sources()) {
    print_source(source, console);
    document["counters"].push_back(source_record(source));
  }
  console.print(fmt::format("\nBuilt with\n  {}", fmt::join(names_of(dependencies()), ", ")));
  for (const Dependency& one : dependencies())
    document["dependencies"].push_back({{"name", one.name}, {"version", one.version}, {"license", one.license}});
  document["loaded_libraries"] = loaded_libraries();
  console.emit(document);
}

}  // namespace gable::bench
