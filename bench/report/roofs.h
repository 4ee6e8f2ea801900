// Which rows stand under which roofs. A row's roofs are those of its own machine, its own kind of device (and GPU), and
// the number of threads that it ran on, so that no point is drawn under a foreign roof: neither of another study of a
// merge nor of all threads, where a short row ran on one of them.
#pragma once

#include <string>
#include <vector>

#include "bench/report/study.h"

namespace gable::bench::report {

// The rows of one machine, device and number of threads, with their roofs.
struct RoofGroup {
  DeviceKind kind = DeviceKind::cpu;
  size_t machine = 0;  // index of the study
  int gpu = -1;        // index of the GPU; -1: not known, or a CPU
  int threads = 0;     // that the rows ran on, of a CPU; 0: not known, or a GPU
  int out_of = 0;      // threads of their device, where all rows ran on fewer; else 0
  // The best bandwidth of each level and the best of each ISA and dtype, best first. Their values are for `threads`: a
  // ceiling of one thread that was scaled up, as the verdict does, says so in its name.
  std::vector<Ceiling> roofs{};
  std::vector<size_t> measurements{};  // the rows that can be drawn

  bool has_roofs() const { return !roofs.empty(); }
  // Whether the same vectors have a higher roof with fused multiply-adds. The page shows this one where it is asked
  // for; on paper it would be clutter.
  bool has_fused_twin(const Ceiling& roof) const;
  double best_compute() const;    // FLOP/s; 0: none
  double best_bandwidth() const;  // B/s; 0: none
};

// CPUs first, of these last the rows that ran on fewer threads than their device has; else in the order of the rows.
// Without rows to draw: a group for each kind of device that has ceilings, or one empty group.
std::vector<RoofGroup> roof_groups(const Studies& studies);

// The group of each measurement; -1 where it can't be drawn.
std::vector<int> group_of_measurements(const Studies& studies, const std::vector<RoofGroup>& groups);

// "AMD EPYC · 2 threads" or "AMD EPYC · 1 of 2 threads", with what tells this group from the others: the machine's tag,
// the GPU's index, the date.
std::string title_of(const RoofGroup& group, const std::vector<RoofGroup>& all, const Studies& studies);

// Whether any group has a roof. Without one, a figure is no roofline.
bool has_roofs(const std::vector<RoofGroup>& groups);

// What the figure is called: "Measured roofline", or that there are no ceilings.
std::string figure_title(const std::vector<RoofGroup>& groups);

}  // namespace gable::bench::report
