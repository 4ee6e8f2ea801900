// Files that anyone may have written: .npy and studies.
#include <fcntl.h>
#include <gable/error.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/cli/npy.h"
#include "bench/diff/compare.h"
#include "bench/record/schema.h"
#include "bench/record/study_file.h"
#include "bench/record/study_json.h"
#include "bench/report/csv.h"
#include "bench/report/html.h"
#include "bench/report/study.h"
#include "bench/report/svg.h"
#include "bench/report/table.h"
#include "fuzz/base_study.h"
#include "fuzz/targets.h"

namespace gable::fuzz {
namespace {

using nlohmann::json;

/// A file in memory that has a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view data) : descriptor_(::memfd_create("gable_fuzz", MFD_CLOEXEC)) {
    if (descriptor_ < 0 || ::write(descriptor_, data.data(), data.size()) != static_cast<ssize_t>(data.size()))
      fail("no file in memory");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

const json& base_study() {
  static const json base = json::parse(kBaseStudy);
  return base;
}

void check(const bench::StudyDiff& diff) {
  for (const bench::RowPair& pair : diff.pairs) {
    for (const double ratio : {pair.ratio, pair.low.value_or(1), pair.high.value_or(1)}) {
      if (!(ratio >= 0)) fail("diff: a ratio is no number");
    }
  }
  if (!(diff.geometric_mean > 0)) fail("diff: a mean of ratios is no number");
}

/// `gable diff`, one study a side and several.
void differences_of(const bench::Study& study) {
  static const bench::Study base = bench::study_from_json(base_study()).study;
  check(bench::compare_studies(base, study, {}));
  check(bench::compare_studies(study, base, {}));
  const std::array two{study, study}, others{base, study};
  check(bench::compare_studies(two, others, {}));
}

void report_of(const json& document) {
  bench::report::Studies studies;
  try {
    bench::validate_study(document);
    studies = bench::report::merge({document});
    differences_of(bench::study_from_json(document).study);
  } catch (const bench::SchemaError&) {
    return;
  } catch (const Error&) {
    return;
  }
  constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
  for (const std::string& text : {bench::report::csv(studies), bench::report::svg(studies),
                                  bench::report::html(studies), bench::report::table(studies)}) {
    if (text.size() > kMaxBytes) fail("a report of more than 64 MB");
  }
}

/// The next byte; 0 at the end.
std::uint8_t take(std::string_view& data) {
  if (data.empty()) return 0;
  const auto byte = static_cast<std::uint8_t>(data.front());
  data.remove_prefix(1);
  return byte;
}

template <typename Number>
Number take_number(std::string_view& data) {
  Number number{};
  const std::size_t bytes = std::min(sizeof(number), data.size());
  std::memcpy(&number, data.data(), bytes);
  data.remove_prefix(bytes);
  return number;
}

/// A value that may stand in the place of any other.
json other_value(std::string_view& data) {
  constexpr double kNumbers[] = {0, -0.0, -1, 1e-310, 5e-324, 1e300, std::numeric_limits<double>::max(), 1e-12};
  switch (take(data) % 8) {
    case 0:
      return nullptr;
    case 1:
      return take_number<double>(data);  // NaN and infinities too: texts can't hold them, but they do no harm
    case 2:
      return take_number<std::int64_t>(data);
    case 3: {
      const std::string_view text = data.substr(0, take(data) % 32);
      data.remove_prefix(text.size());
      return std::string(text);
    }
    case 4:
      return take(data) % 2 == 0;
    case 5:
      return json::array();
    default:
      return kNumbers[take(data) % std::size(kNumbers)];
  }
}

void collect(json& value, std::vector<json*>& all) {
  all.push_back(&value);
  if (!value.is_structured()) return;
  for (json& child : value) collect(child, all);
}

/// A study that gable wrote, with some values replaced and rows repeated.
json changed_study(std::string_view data) {
  json document = base_study();
  for (int changes = take(data) % 8; changes >= 0 && !data.empty(); --changes) {
    std::vector<json*> all;
    collect(document, all);
    json& place = *all[take_number<std::uint16_t>(data) % all.size()];
    if (place.is_array() && !place.empty() && take(data) % 2 == 0) {
      for (int copies = take(data) % 40; copies > 0; --copies) place.push_back(json(place[0]));
    } else {
      place = other_value(data);
    }
  }
  return document;
}

}  // namespace

void npy(std::string_view data) {
  const MemoryFile file(data);
  try {
    bench::NpyReader reader(file.path());
    if (reader.bytes() > data.size()) fail(".npy: more bytes than the file has");
    std::vector<char> elements(reader.bytes());
    reader.read(elements.data());
    reader.require_shape("x", {1, 2});
  } catch (const Error&) {
  }
}

void study(std::string_view data) {
  try {
    report_of(data.starts_with('{') ? bench::parse_document(std::string(data), "input") : changed_study(data));
  } catch (const Error&) {
  }
}

}  // namespace gable::fuzz
