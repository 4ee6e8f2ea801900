// See own_row.h.
#include "bench/library/own_row.h"

#include <fmt/format.h>
#include <gable/device.h>

#include <filesystem>

#include "bench/common/text.h"
#include "perfcounters/sources/child_process.h"

namespace gable::bench {
namespace {

std::string gpu_name(const std::string& device) {
  for (const DeviceInfo& info : devices()) {
    if (info.available && info.uri == device) return info.name;
  }
  return "GPU " + device;
}

Quantity quantity_of(const MeasuredQuantity& measured) {
  Quantity quantity{.source = measured.source,
                    .value = *measured.value,
                    .analytic = measured.declared,
                    .by = measured.by,
                    .note = measured.note,
                    .reason = measured.reason};
  if (quantity.is_analytic()) return quantity;
  quantity.spread = {.q1 = measured.q1, .q3 = measured.q3, .repetitions = measured.repetitions, .multiplex = 1};
  if (measured.declared && *measured.declared > 0) quantity.ratio = *measured.value / *measured.declared;
  return quantity;
}

std::string missing(const char* what, const char* option, const MeasuredQuantity& quantity) {
  if (quantity.value) return "";
  return fmt::format("; {} is not known: {} is not declared, and no counter gave it{}", what, option,
                     quantity.reason.empty() ? "" : " (" + quantity.reason + ")");
}

}  // namespace

const perf::Machine& this_machine() {
  static const perf::Machine machine = perf::describe_machine();
  return machine;
}

Row own_row(const std::string& name, const MeasureOptions& options) {
  Row row;
  row.identity = {.suite = std::filesystem::path(perf::own_executable()).filename().string(),
                  .name = name,
                  .op = kOwnOp,
                  .problem = options.problem,
                  .dtype = options.dtype};
  Placement& place = row.place;
  place.cache = options.cache == CacheState::warm ? "warm" : "cold";
  place.arithmetic.dtype = options.dtype;
  if (options.gpu) {
    place.device = "cuda:" + std::to_string(*options.gpu);
    place.kind = DeviceKind::gpu;
    place.gpu = options.gpu;
    place.device_name = gpu_name(place.device);
  } else {
    place.device = "cpu";
    place.device_name = this_machine().cpu.name;
    place.threads = options.threads;
  }
  return row;
}

Row row_of(const Measurement& m) {
  Row row = own_row(m.name, m.options);
  row.time = {.source = m.time_source,
              .seconds = m.time.seconds,
              .q1 = m.time.q1,
              .q3 = m.time.q3,
              .fastest = m.time.fastest,
              .runs = m.time.runs,
              .calls_per_run = m.time.calls_per_run};
  row.work = quantity_of(m.work);
  if (!row.work.analytic) row.work.analytic = 0;  // the record needs a number
  for (const auto& [level, quantity] : m.traffic) {
    if (quantity.value) row.traffic[level] = quantity_of(quantity);
  }
  row.counters.extra = m.extra;
  row.verdict.flags = m.flags;
  return row;
}

Refusal refusal_of(const Measurement& m) {
  const auto dram = m.traffic.find("dram");
  const Row row = own_row(m.name, m.options);
  return {.suite = row.identity.suite,
          .name = m.name,
          .problem = m.options.problem,
          .dtype = m.options.dtype,
          .device = row.place.device,
          .reason = "T = " + seconds_text(m.time.seconds) + missing("W", ".flop", m.work) +
                    missing("Q(dram)", ".bytes", dram == m.traffic.end() ? MeasuredQuantity{} : dram->second)};
}

}  // namespace gable::bench
