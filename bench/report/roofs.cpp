// See roofs.h.
#include "bench/report/roofs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "bench/common/text.h"

namespace gable::bench::report {
namespace {

// A ceiling's device is "cuda:N"; every backend of that GPU shares it.
bool is_of_gpu(const Ceiling& ceiling, int gpu) {
  const size_t colon = ceiling.device.rfind(':');
  if (gpu < 0 || colon == std::string::npos) return true;
  return ceiling.device.substr(colon + 1) == std::to_string(gpu);
}

// The units of f64 and i8 are drawn where a row computes in that type, or where there are no rows: among the roofs of
// f32 and 16-bit types they would only be clutter.
bool is_of_interest(const Ceiling& ceiling, const RoofGroup& group, const Studies& studies) {
  if (ceiling.is_bandwidth() || (ceiling.dtype != "f64" && ceiling.dtype != "i8")) return true;
  if (group.measurements.empty()) return true;
  return std::any_of(group.measurements.begin(), group.measurements.end(), [&](size_t i) {
    const Measurement& m = studies.measurements[i];
    return m.identity.dtype == ceiling.dtype || m.place.arithmetic.dtype == ceiling.dtype;
  });
}

// The ceilings of the group's own study; if it has none, those of other studies of the same machine, unless they were
// measured with fewer threads than the group's rows: these are no roofs of the rows.
std::vector<const Ceiling*> ceilings_of(const RoofGroup& group, const Studies& studies) {
  std::vector<const Ceiling*> own, same_machine;
  for (const Ceiling& c : studies.ceilings) {
    if (c.device_kind != group.kind || !is_of_gpu(c, group.gpu) || !is_of_interest(c, group, studies)) continue;
    if (c.machine == group.machine) own.push_back(&c);
    if (studies.machines[c.machine].tag == studies.machines[group.machine].tag) same_machine.push_back(&c);
  }
  if (!own.empty()) return own;
  const auto reaches = [&](const Ceiling* c) { return c->threads.value_or(0) >= group.threads; };
  return std::any_of(same_machine.begin(), same_machine.end(), reaches) ? same_machine : std::vector<const Ceiling*>{};
}

// The best of ceilings of one sort for `threads`, by the rule of the verdict (perf::compute_roof): the exact number of
// threads, else one thread's value scaled up, but not above the most that were measured.
Ceiling best_for(const std::vector<const Ceiling*>& sort, int threads) {
  int most = 0;
  for (const Ceiling* c : sort) most = std::max(most, c->threads.value_or(0));
  const int wanted = threads <= 0 ? most : std::min(threads, most);
  const Ceiling *exact = nullptr, *whole = nullptr, *one = nullptr;
  const auto keep_better = [](const Ceiling*& slot, const Ceiling* c) {
    if (!slot || c->limit.value > slot->limit.value) slot = c;
  };
  for (const Ceiling* c : sort) {
    const int of = c->threads.value_or(0);
    if (of == wanted) keep_better(exact, c);
    if (of == most) keep_better(whole, c);
    if (of == 1) keep_better(one, c);
  }
  if (exact) return *exact;
  if (!one || one->limit.value * wanted >= whole->limit.value) return *whole;
  Ceiling scaled = *one;
  scaled.name += fmt::format(" × {}", wanted);
  scaled.threads = wanted;
  scaled.limit.per_joule.reset();  // idle power does not grow with the threads
  for (double* value : {&scaled.limit.value, &scaled.limit.q1, &scaled.limit.q3}) *value *= wanted;
  for (std::optional<double>* value : {&scaled.limit.low, &scaled.limit.high}) {
    if (*value) **value *= wanted;
  }
  return scaled;
}

void find_roofs(RoofGroup& group, const Studies& studies) {
  std::map<std::string, std::vector<const Ceiling*>> sorts;  // keys: level of bandwidth; ISA and dtype of compute
  for (const Ceiling* c : ceilings_of(group, studies)) {
    sorts[c->is_bandwidth() ? c->level : c->isa + "\n" + c->dtype].push_back(c);
  }
  for (const auto& [key, sort] : sorts) group.roofs.push_back(best_for(sort, group.threads));
  std::stable_sort(group.roofs.begin(), group.roofs.end(),
                   [](const Ceiling& a, const Ceiling& b) { return a.limit.value > b.limit.value; });
}

double best(const std::vector<Ceiling>& roofs, bool bandwidth) {
  double value = 0;
  for (const Ceiling& c : roofs) {
    if (c.is_bandwidth() == bandwidth) value = std::max(value, c.limit.value);
  }
  return value;
}

// Studies of one machine share a group unless they have ceilings of their own.
size_t study_of_roofs(const Measurement& m, const Studies& studies) {
  const auto has_own = [&](size_t machine) {
    return std::any_of(studies.ceilings.begin(), studies.ceilings.end(),
                       [&](const Ceiling& c) { return c.machine == machine && c.device_kind == m.place.kind; });
  };
  if (has_own(m.machine)) return m.machine;
  for (size_t i = 0; i < m.machine; ++i) {
    if (studies.machines[i].tag == studies.machines[m.machine].tag && !has_own(i)) return i;
  }
  return m.machine;
}

RoofGroup group_of(const Measurement& m, const Studies& studies) {
  return {.kind = m.place.kind,
          .machine = study_of_roofs(m, studies),
          .gpu = m.on_gpu() ? m.place.gpu.value_or(-1) : -1,
          .threads = m.on_gpu() ? 0 : m.place.running_threads().value_or(0)};
}

int device_threads(const RoofGroup& group, const Studies& studies) {
  const auto threads = [&](size_t i) { return studies.measurements[i].place.threads.value_or(0); };
  const int first = group.measurements.empty() ? 0 : threads(group.measurements.front());
  const bool same =
      std::all_of(group.measurements.begin(), group.measurements.end(), [&](size_t i) { return threads(i) == first; });
  return same && first > group.threads ? first : 0;
}

bool same_place(const RoofGroup& a, const RoofGroup& b) {
  return a.kind == b.kind && a.machine == b.machine && a.gpu == b.gpu && a.threads == b.threads;
}

std::vector<RoofGroup> groups_without_rows(const Studies& studies) {
  std::vector<RoofGroup> groups;
  for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::gpu}) {
    std::set<std::string> tags;
    for (const Ceiling& c : studies.ceilings) {
      if (c.device_kind != kind || !tags.insert(studies.machines[c.machine].tag).second) continue;
      groups.push_back({.kind = kind, .machine = c.machine});
    }
  }
  if (groups.empty()) groups.emplace_back();
  return groups;
}

}  // namespace

bool RoofGroup::has_fused_twin(const Ceiling& roof) const {
  return std::any_of(roofs.begin(), roofs.end(), [&](const Ceiling& other) {
    return !other.is_bandwidth() && other.dtype == roof.dtype && other.isa == roof.isa + " fma";
  });
}

double RoofGroup::best_compute() const { return best(roofs, false); }
double RoofGroup::best_bandwidth() const { return best(roofs, true); }

std::vector<RoofGroup> roof_groups(const Studies& studies) {
  std::vector<RoofGroup> groups;
  for (size_t i = 0; i < studies.measurements.size(); ++i) {
    const Measurement& m = studies.measurements[i];
    if (!m.can_be_drawn()) continue;
    const RoofGroup own = group_of(m, studies);
    auto it = std::find_if(groups.begin(), groups.end(), [&](const RoofGroup& g) { return same_place(g, own); });
    if (it == groups.end()) it = groups.insert(groups.end(), own);
    it->measurements.push_back(i);
  }
  if (groups.empty()) groups = groups_without_rows(studies);
  for (RoofGroup& group : groups) {
    if (group.kind == DeviceKind::cpu) group.out_of = device_threads(group, studies);
    find_roofs(group, studies);
  }
  const auto rank = [](const RoofGroup& g) { return g.kind == DeviceKind::gpu ? 2 : g.out_of > 0 ? 1 : 0; };
  std::stable_sort(groups.begin(), groups.end(),
                   [&](const RoofGroup& a, const RoofGroup& b) { return rank(a) < rank(b); });
  return groups;
}

std::vector<int> group_of_measurements(const Studies& studies, const std::vector<RoofGroup>& groups) {
  std::vector<int> group_of(studies.measurements.size(), -1);
  for (size_t g = 0; g < groups.size(); ++g) {
    for (const size_t i : groups[g].measurements) group_of[i] = static_cast<int>(g);
  }
  return group_of;
}

std::string title_of(const RoofGroup& group, const std::vector<RoofGroup>& all, const Studies& studies) {
  const Machine& machine = studies.machines[group.machine];
  const bool gpu = group.kind == DeviceKind::gpu;
  std::string title = machine.tag.empty() ? "" : machine.tag + ": ";
  title += printable(gpu && !machine.gpu.empty() ? machine.gpu : machine.cpu);
  if (gpu && group.gpu > 0) title += fmt::format(" · GPU {}", group.gpu);
  if (group.threads > 0) title += " · " + threads_text(group.threads, group.out_of);
  const bool has_twin = std::any_of(all.begin(), all.end(), [&](const RoofGroup& other) {
    return &other != &group && other.machine != group.machine && other.kind == group.kind &&
           other.threads == group.threads && studies.machines[other.machine].tag == machine.tag;
  });
  if (has_twin) title += " · " + printable(machine.date);
  return group.has_roofs() ? title : title + " · no ceilings were measured";
}

bool has_roofs(const std::vector<RoofGroup>& groups) {
  return std::any_of(groups.begin(), groups.end(), [](const RoofGroup& g) { return g.has_roofs(); });
}

std::string figure_title(const std::vector<RoofGroup>& groups) {
  return has_roofs(groups) ? "Measured roofline" : "Performance against intensity: no ceilings were measured";
}

}  // namespace gable::bench::report
