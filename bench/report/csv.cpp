// study.csv.
#include "bench/report/csv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

#include "bench/common/text.h"
#include "bench/record/headroom.h"

namespace gable::bench::report {
namespace {

constexpr std::string_view kHeader =
    "suite,name,op,problem,dtype,layout,bias,activation,max_pool,math,device,device_name,kernel,fused,cache,threads,"
    "T_source,T_seconds,T_q1,T_q3,T_runs,W_source,W_flop,W_analytic,"
    "Q_dram_source,Q_dram_bytes,Q_dram_analytic,Q_l3_source,Q_l3_bytes,Q_l3_analytic,"
    "Q_l2_source,Q_l2_bytes,Q_l2_analytic,Q_l1_source,Q_l1_bytes,Q_l1_analytic,"
    "intensity,gflops,bound,percent_of_roof,max_error,error_bound,machine,cpu,gpu,date,tile,device_kind,roof,flags,"
    "next_bound,next_roof,percent_of_next_roof,regime,evidence,advice,naive_seconds,bytes_saved,seconds_saved,"
    "joules,watts,gflop_per_joule,energy_by,energy_reason,"
    "warp_instructions,active_threads,global_sectors_per_access,shared_wavefronts_per_access,time_at_twice_the_batch,"
    "used_threads,count";

class Line {
 public:
  Line& add(std::string_view text) {
    separate();
    return put(cell_text(text));
  }
  Line& add(const std::string& text) { return add(std::string_view(text)); }
  Line& add(const char* text) { return add(std::string_view(text)); }
  Line& add(bool value) { return add(value ? "true" : "false"); }
  Line& add(int value) { return add_number(fmt::format("{}", value)); }
  Line& add(double value) { return add_number(fmt::format("{}", value)); }
  template <class T>
  Line& add(const std::optional<T>& value) {
    return value ? add(*value) : add("");
  }
  const std::string& line() const { return line_; }

 private:
  Line& put(std::string_view text) {
    if (text.find_first_of(",\"\r\n") == std::string_view::npos) {
      line_ += text;
      return *this;
    }
    line_ += '"';
    for (char c : text) line_ += c == '"' ? std::string("\"\"") : std::string(1, c);
    line_ += '"';
    return *this;
  }
  Line& add_number(const std::string& digits) {
    separate();
    return put(digits);
  }

  void separate() {
    if (begun_) line_ += ',';
    begun_ = true;
  }
  std::string line_;
  bool begun_ = false;
};

void add_traffic(Line& row, const Measurement& m, const char* level) {
  auto it = m.traffic.find(level);
  if (it == m.traffic.end()) {
    row.add("").add("").add("");
  } else {
    row.add(it->second.source).add(it->second.value).add(it->second.analytic);
  }
}

void add_identity(Line& row, const Identity& identity, const std::string& max_pool) {
  const EpilogueFields epilogue = identity.epilogue.value_or(EpilogueFields{.activation = ""});
  row.add(identity.suite).add(identity.name).add(identity.op).add(identity.problem).add(identity.dtype);
  row.add(identity.layout).add(epilogue.bias).add(epilogue.activation).add(max_pool).add(identity.math);
}

void add_placement(Line& row, const Placement& place) {
  row.add(place.device).add(place.device_name).add(place.kernel).add(place.fused).add(place.cache).add(place.threads);
}

void add_insight(Line& row, const Measurement& m) {
  const RoofLimit* next = next_limit(m.verdict);
  if (next != nullptr) {
    row.add(next->bound).add(next->roof).add(next->percent);
  } else {
    row.add("").add("").add("");
  }
  const Regime regime = m.regime.value_or(Regime{});
  row.add(regime.name).add(regime.evidence).add(fmt::format("{}", fmt::join(regime.advice, "; ")));
  row.add(m.naive ? m.naive->seconds : std::nullopt);
  if (m.fusion) {
    row.add(m.fusion->bytes_saved).add(m.fusion->seconds_saved);
  } else {
    row.add("").add("");
  }
}

void add_energy(Line& row, const Measurement& m) {
  const EnergyFields energy = m.energy.value_or(EnergyFields{});
  const bool known = energy.joules.has_value();
  row.add(energy.joules).add(known ? std::optional(energy.watts) : std::nullopt);
  row.add(known ? std::optional(*m.flop_per_joule() / 1e9) : std::nullopt).add(energy.by).add(energy.reason);
}

void add_instructions(Line& row, const Measurement& m) {
  const perf::InstructionCounts counts = m.instructions.value_or(perf::InstructionCounts{});
  const auto per_access = [&](const char* level) {
    const auto found = counts.levels.find(level);
    return found == counts.levels.end() ? std::nullopt
                                        : std::optional(found->second.transactions / found->second.instructions);
  };
  const bool known = m.instructions.has_value();
  row.add(known ? std::optional(counts.warp) : std::nullopt);
  row.add(known ? std::optional(counts.active_share()) : std::nullopt);
  row.add(per_access("global")).add(per_access("shared"));
}

std::string row_of(const Measurement& m, const Machine& machine) {
  Line row;
  add_identity(row, m.identity, max_pool_of(m));
  add_placement(row, m.place);
  row.add(m.time.source).add(m.time.seconds).add(m.time.q1).add(m.time.q3).add(m.time.runs);
  row.add(m.work.source).add(m.work.value).add(m.work.analytic);
  for (const char* level : kLevels) add_traffic(row, m, level);
  row.add(m.intensity()).add(m.flops() / 1e9).add(m.verdict.bound);
  row.add(m.verdict.percent_of_roof).add(m.accuracy.max_error).add(m.accuracy.error_bound);
  row.add(machine.tag).add(machine.cpu).add(machine.gpu).add(machine.date).add(pair_text(m.identity.tile));
  row.add(to_string(m.place.kind)).add(m.verdict.roof).add(fmt::format("{}", fmt::join(m.verdict.flags, "; ")));
  add_insight(row, m);
  add_energy(row, m);
  add_instructions(row, m);
  row.add(m.scaling ? std::optional(m.scaling->time) : std::nullopt);
  row.add(m.place.used_threads);
  row.add(m.identity.count ? std::optional(fmt::format("{}", *m.identity.count)) : std::nullopt);
  return row.line();
}

}  // namespace

std::string cell_text(std::string_view text) {
  const bool is_formula = !text.empty() && std::string_view("=+-@\t\r").find(text.front()) != std::string_view::npos;
  std::string cell = is_formula ? "'" : "";
  for (std::size_t begin = 0, end = 0; end != std::string_view::npos; begin = end + 1) {  // a cell may have lines
    end = text.find('\n', begin);
    cell += printable(text.substr(begin, end - begin)) + (end == std::string_view::npos ? "" : "\n");
  }
  return cell;
}

std::string csv(const Studies& studies) {
  std::string text = std::string(kHeader) + "\r\n";
  for (const Measurement& m : studies.measurements) text += row_of(m, studies.machines[m.machine]) + "\r\n";
  return text;
}

}  // namespace gable::bench::report
