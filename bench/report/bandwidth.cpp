// See bandwidth.h. A row's column is its name without the first and the last word: "bandwidth_read_1t_4KiB".
#include "bench/report/bandwidth.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "bench/common/text.h"

namespace gable::bench::report {
namespace {

std::string column_of(const Measurement& m) {
  const std::string& name = m.identity.name;
  const std::size_t first = name.find('_');
  const std::size_t last = name.rfind('_');
  return first < last ? name.substr(first + 1, last - first - 1) : name;
}

struct Rates {
  std::vector<std::string> columns;                       // in the study's order
  std::map<double, std::map<std::string, double>> rates;  // working set, column
};

std::string text_of(const std::string& series, const Rates& table) {
  std::string text = fmt::format("Bandwidth of {}, by working set\n{:<10}", printable(series), "");
  for (const std::string& column : table.columns) text += fmt::format("  {:>10}", printable(column));
  text += "\n";
  for (const auto& [bytes, row] : table.rates) {
    text += fmt::format("{:<10}", bytes_text(bytes));
    for (const std::string& column : table.columns) {
      const auto rate = row.find(column);
      text += fmt::format("  {:>{}}", rate == row.end() ? "-" : bandwidth_text(rate->second),
                          std::max<std::size_t>(10, column.size()));
    }
    text += "\n";
  }
  return text;
}

}  // namespace

std::string bandwidth_table(const Studies& studies) {
  std::map<std::string, Rates> tables;
  for (const Measurement& m : studies.measurements) {
    if (!m.identity.only_moves_bytes()) continue;
    Rates& table = tables[m.series];
    const std::string column = column_of(m);
    if (std::find(table.columns.begin(), table.columns.end(), column) == table.columns.end()) {
      table.columns.push_back(column);
    }
    table.rates[*m.identity.working_set_bytes][column] = m.bandwidth();
  }
  std::string text;
  for (const auto& [series, table] : tables) text += text_of(series, table);
  return text;
}

}  // namespace gable::bench::report
