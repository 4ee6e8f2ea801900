// See trainium.h.
#include "bench/report/trainium.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bench/common/text.h"

namespace gable::bench::report {
namespace {

// Times of one NeuronCore. Those of the fused convolution are the same with and without the pool.
constexpr std::array<TrainiumFigure, 8> kFigures = {{
    {"vector_add_25600_1x1", "f32", "f32", 37318e-6, 0},
    {"vector_add_25600_128x1", "f32", "f32", 378e-6, 0},
    {"vector_add_25600_128x2", "f32", "f32", 186e-6, 0},
    {"vector_add_25600_128x200", "f32", "f32", 15e-6, 0},
    {"fused256", "f32", "f32", 3832e-6, 41},
    {"fused256+pool", "f32", "f32", 3832e-6, 41},
    {"fused256", "bf16", "f16", 824e-6, 90},
    {"fused256+pool", "bf16", "f16", 824e-6, 90},
}};

const TrainiumFigure* figure_of(const Measurement& m) {
  const auto found = std::find_if(kFigures.begin(), kFigures.end(), [&](const TrainiumFigure& f) {
    return m.identity.name == f.name && m.identity.dtype == f.case_dtype;
  });
  return found == kFigures.end() ? nullptr : &*found;
}

bool multiplies(const Measurement& m) { return m.identity.op == "conv2d" || m.identity.op == "matmul"; }

}  // namespace

std::vector<TrainiumRow> trainium_rows(const Studies& studies) {
  std::vector<TrainiumRow> rows;
  for (const Measurement& m : studies.measurements) {
    if (m.identity.suite == "primitives" && m.place.cache == "warm" && !m.identity.only_moves_bytes())
      rows.push_back({&m, figure_of(m)});
  }
  return rows;
}

double rate_of(const Measurement& m) { return multiplies(m) ? m.flops() : m.bandwidth(); }

std::string rate_text(const Measurement& m) {
  return multiplies(m) ? flops_text(rate_of(m)) : bandwidth_text(rate_of(m));
}

std::string trainium_table(const Studies& studies) {
  const std::vector<TrainiumRow> rows = trainium_rows(studies);
  if (rows.empty()) return "";
  std::string text =
      fmt::format("Beside the Trainium study (one NeuronCore)\n{:<26} {:<5} {:<18} {:>9} {:>15} {:>7}  {}\n",
                  "primitive", "dtype", "device", "T", "rate", "% roof", "on Trainium");
  for (const TrainiumRow& row : rows) {
    const Measurement& m = *row.measurement;
    const std::string percent = m.verdict.percent_of_roof ? fmt::format("{:.1f}", *m.verdict.percent_of_roof) : "-";
    std::string on_trainium = "-";
    if (row.trainium != nullptr) {
      on_trainium = seconds_text(row.trainium->seconds);
      if (row.trainium->percent > 0)
        on_trainium += fmt::format(", {:.0f} % of peak in {}", row.trainium->percent, row.trainium->dtype);
    }
    text += fmt::format("{:<26} {:<5} {:<18} {:>9} {:>15} {:>7}  {}\n", printable(m.label), m.identity.dtype,
                        printable(m.series), seconds_text(m.time.seconds), rate_text(m), percent, on_trainium);
  }
  return text;
}

}  // namespace gable::bench::report
