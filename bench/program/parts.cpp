// See parts.h.
#include "bench/program/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "bench/record/study.h"

namespace gable::bench {
namespace {

std::string device_of(const MeasuredPart& part) { return part.gpu ? fmt::format("cuda:{}", *part.gpu) : "cpu"; }

/// Sums up the kernels beyond the limit in one part. Its W and Q are sums of what is known.
MeasuredPart rest_of(const std::vector<MeasuredPart>& parts) {
  MeasuredPart rest{.kind = "rest", .gpu = parts.front().gpu, .device_name = parts.front().device_name};
  for (const MeasuredPart& part : parts) {
    rest.called.calls += part.called.calls;
    rest.called.seconds += part.called.seconds;
    if (part.called.share) rest.called.share = rest.called.share.value_or(0) + *part.called.share;
  }
  rest.called.calls -= 1;  // a part begins with one call
  rest.name = fmt::format("{} other kernels", parts.size());
  rest.counted.reason = "beyond --top";
  return rest;
}

Quantity quantity(const CountedWork& counted, double value) {
  Quantity one{.source = counted.source, .value = value, .by = counted.by, .note = counted.note};
  if (counted.source == "analytic") one.analytic = value;
  return one;
}

double sum(const std::map<std::string, double>& values) {
  double total = 0;
  for (const auto& [name, value] : values) total += value;
  return total;
}

Timing timing_of(const MeasuredPart& part) {
  return {.source = part.gpu ? "event" : "clock",
          .seconds = part.times.median,
          .q1 = part.times.q1,
          .q3 = part.times.q3,
          .fastest = part.times.fastest,
          .runs = static_cast<int>(std::min<std::int64_t>(part.times.calls, 1 << 30))};
}

}  // namespace

std::string main_dtype(const std::map<std::string, double>& flop) {
  std::string most = "f32";
  double largest = -1;  // a region that only moves data has a type, too
  for (const auto& [dtype, value] : flop) {
    if (value <= largest) continue;
    largest = value;
    most = dtype == "x87" ? "f64" : dtype;
  }
  return most;
}

void make_names_unique(std::vector<MeasuredPart>& parts) {
  const auto extend = [&](const std::function<std::string(const MeasuredPart&)>& more) {
    std::map<std::string, std::vector<MeasuredPart*>> same;
    for (MeasuredPart& part : parts) same[part.kind + "\n" + part.name].push_back(&part);
    for (auto& [name, those] : same) {
      if (those.size() < 2) continue;
      for (MeasuredPart* part : those) {
        if (const std::string text = more(*part); !text.empty()) part->name += " " + text;
      }
    }
  };
  extend([](const MeasuredPart& part) { return part.shape; });
  extend([](const MeasuredPart& part) { return part.called.region.empty() ? "" : "in " + part.called.region; });
  int number = 0;
  extend([&number](const MeasuredPart&) { return fmt::format("#{}", ++number); });
}

std::vector<MeasuredPart> with_most_time(std::vector<MeasuredPart> parts, int most) {
  std::stable_sort(parts.begin(), parts.end(),
                   [](const MeasuredPart& a, const MeasuredPart& b) { return a.called.seconds > b.called.seconds; });
  std::vector<MeasuredPart> kept;
  std::map<std::string, std::vector<MeasuredPart>> beyond;  // by kind and device
  for (const char* kind : {"program", "region", "kernel"}) {
    int taken = 0;
    for (MeasuredPart& part : parts) {
      if (part.kind != kind) continue;
      if (taken++ < most) {
        kept.push_back(std::move(part));
      } else if (part.kind == "kernel") {
        beyond[device_of(part)].push_back(std::move(part));
      }
    }
  }
  for (const auto& [device, those] : beyond) kept.push_back(rest_of(those));
  return kept;
}

ProgramPart entry_of(const MeasuredPart& part) {
  ProgramPart entry{
      .kind = part.kind, .name = part.name, .device = device_of(part), .called = part.called, .flags = part.flags};
  if (part.times.median > 0) entry.time = {part.times.median, part.times.q1, part.times.q3};
  if (!part.counted.flop.empty()) entry.work = {part.counted.source, sum(part.counted.flop)};
  if (!part.counted.is_point()) {
    entry.reason = part.counted.reason.empty() ? "W and Q were not counted" : part.counted.reason;
  }
  return entry;
}

void flag_rows(const std::vector<MeasuredPart>& parts, std::vector<Row>& rows) {
  for (const MeasuredPart& part : parts) {
    if (Row* row = row_of_part(rows, entry_of(part)))
      row->verdict.flags.insert(row->verdict.flags.end(), part.flags.begin(), part.flags.end());
  }
}

Row row_of(const MeasuredPart& part, const std::string& program) {
  Row row;
  row.identity = {.suite = program,
                  .name = part.name,
                  .op = part.kind,
                  .problem = part.shape,
                  .dtype = main_dtype(part.counted.flop)};
  row.place = {.device = device_of(part),
               .kind = part.gpu ? DeviceKind::gpu : DeviceKind::cpu,
               .gpu = part.gpu,
               .device_name = part.device_name,
               .kernel = part.kernel.empty() ? part.name : part.kernel,
               .cache = part.kind == "program" ? "cold" : "warm"};
  row.place.arithmetic.dtype = row.identity.dtype;
  if (part.counted.flop.size() > 1) row.place.arithmetic.flop = part.counted.flop;
  if (!part.gpu) row.place.threads = part.threads;
  row.time = timing_of(part);
  row.work = quantity(part.counted, sum(part.counted.flop));
  if (!row.work.analytic) row.work.analytic = 0;  // the least W of a foreign program is not known
  for (const auto& [level, bytes] : part.counted.bytes) {
    if (bytes > 0) row.traffic[level] = quantity(part.counted, bytes);
  }
  row.called = part.called;
  return row;
}

}  // namespace gable::bench
