// Studies in memory: one or several validated JSON documents merged into typed lists. Everything that a report draws or
// prints comes from here, so each output agrees with the others.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gable::bench::report {

// Where a device's points go: "cuda…" and "cudnn…" are GPUs.
bool is_gpu(const std::string& device);

struct Machine {
  std::string tag;  // "A", "B", … when the merged studies come from several machines; empty for one
  std::string cpu, gpu, date;
  int threads = 0;
  std::vector<std::pair<std::string, std::string>> facts;  // every field, flattened, for people
};

struct Ceiling {
  size_t machine = 0;
  std::string device, name, kind, level, isa, dtype, formula;
  std::optional<int> threads;
  double value = 0, q1 = 0, q3 = 0;
  int runs = 0;
  std::optional<double> theoretical;

  bool is_bandwidth() const { return kind == "bandwidth"; }
};

// A limit that is no roof: instructions a second, what a launch costs, copies from and to the host.
struct Rate {
  size_t machine = 0;
  std::string device, name, unit, formula;
  double value = 0, q1 = 0, q3 = 0;
  std::optional<double> theoretical;
};

struct Time {
  std::string source;
  double seconds = 0, q1 = 0, q3 = 0;
  int runs = 0;
};

struct Work {
  std::string source;
  double flop = 0, analytic = 0;
};

struct Traffic {
  std::string source;
  double bytes = 0;
  std::optional<double> analytic, q1, q3;
};

struct Measurement {
  size_t machine = 0;
  std::string suite, name, op, problem, dtype, layout, math, device, device_name, kernel, cache, bound;
  std::string activation, max_pool;  // "none"/"relu"/"tanh"; "2x2" or empty
  std::string tile;                  // "128x200" or empty
  bool bias = false, fused = false;
  std::optional<int> threads;
  Time time;
  Work work;
  std::map<std::string, Traffic> traffic;  // by level; "dram" is always there
  std::optional<double> percent_of_roof, max_error, error_bound;
  std::optional<double> working_set_bytes;  // of what only moves bytes, for its bandwidth

  std::string label;  // name, with "+pool" where the study has it with and without
  std::string
      series;  // device, with its math where others than strict are, and the machine's tag where several are merged

  double flops() const { return work.flop / time.seconds; }
  double bandwidth() const { return traffic.at("dram").bytes / time.seconds; }
  double intensity() const { return work.flop / traffic.at("dram").bytes; }
  // A logarithmic plot has no place for work of zero (transpose, reorder), and the points of one addition in many tiles
  // would hide each other, as those of one loop over many working sets: tables show those.
  bool can_be_drawn() const { return work.flop > 0 && tile.empty() && !working_set_bytes; }
};

struct Refused {
  size_t machine = 0;
  std::string suite, name, problem, dtype, device, reason;
};

struct Studies {
  std::vector<Machine> machines;  // one a study
  std::vector<Ceiling> ceilings;
  std::vector<Measurement> measurements;
  std::vector<Refused> refused;
  std::vector<Rate> rates;
};

// Validates each study (SchemaError; with several, the message says which) and merges them in order. Two studies of one
// machine share a tag; every entry keeps its machine.
Studies merge(const std::vector<nlohmann::json>& studies);

// The ceilings that a panel's roof is made of: of one kind of device, at the thread count of its measurements (else
// the most threads measured); the best bandwidth a level, every compute ceiling. Best first, one machine after another.
std::vector<const Ceiling*> roof_of(const Studies& studies, bool gpu);

}  // namespace gable::bench::report
