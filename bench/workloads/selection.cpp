// See selection.h.
#include "bench/workloads/selection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gable/error.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <sstream>

#include "bench/common/files.h"
#include "bench/common/text.h"
#include "bench/workloads/networks.h"
#include "bench/workloads/problem.h"
#include "bench/workloads/suites.h"

namespace gable::bench {
namespace {

[[noreturn]] void misuse(const std::string& message) { throw Error(ErrorCode::invalid_argument, message); }

std::vector<DType> dtypes_of(const SelectionOptions& options) {
  std::vector<DType> dtypes;
  for (const std::string& name : options.dtypes) dtypes.push_back(parse_dtype(name));
  return dtypes;
}

/// Returns the new cases, one for each dtype.
std::span<Case> add_problem(const SelectionOptions& options, const std::string& suite_name, const Problem& problem,
                            std::vector<Case>& cases) {
  std::vector<DType> dtypes = dtypes_of(options);
  if (dtypes.empty()) dtypes.push_back(DType::f32);
  for (const DType dtype : dtypes) {
    Conv2d conv = problem.conv;
    conv.dtype = dtype;
    apply_attributes(options, conv);
    cases.push_back({suite_name, problem.name.empty() ? descriptor(conv) : problem.name, conv});
  }
  return std::span(cases).last(dtypes.size());
}

std::vector<Math> maths_of(const SelectionOptions& options) {
  std::vector<Math> maths;
  for (const std::string& name : options.maths) {
    const Math math = parse_math(name);
    if (std::find(maths.begin(), maths.end(), math) != maths.end()) {
      misuse(fmt::format("--math: {} is named twice", name));
    }
    maths.push_back(math);
  }
  return maths;
}

/// Repeats each case in each math, if its op has a math.
void multiply(std::vector<Case>& cases, const std::vector<Math>& maths) {
  if (maths.empty()) return;
  std::vector<Case> all;
  for (const Case& one : cases) {
    if (!has_math(one.op)) {
      all.push_back(one);
      continue;
    }
    for (const Math math : maths) all.push_back({one.suite, one.name, in_math(one.op, math), one.count});
  }
  cases = std::move(all);
}

Selection from_problems(const SelectionOptions& options) {
  Selection selection;
  for (const std::string& text : options.problems) add_problem(options, "", parse_problem(text), selection.cases);
  return selection;
}

void add_list(const SelectionOptions& options, const std::string& suite_name, const std::vector<ListEntry>& list,
              Selection& selection) {
  for (const ListEntry& entry : list) {
    if (entry.problem) {
      for (Case& one : add_problem(options, suite_name, *entry.problem, selection.cases)) {
        one.count = entry.problem->count;
      }
      continue;
    }
    selection.malformed += entry.malformed ? 1 : 0;
    selection.refused.push_back({.suite = suite_name,
                                 .name = fmt::format("line {}", entry.line),
                                 .problem = entry.text,
                                 .dtype = "",
                                 .math = "",
                                 .device = "",
                                 .reason = entry.refusal});
  }
}

Selection from_file(const SelectionOptions& options) {
  Selection selection;
  std::istringstream text(options.text ? *options.text : read_list_text(options.file));
  const bool is_input = options.file == kStandardInput;
  add_list(options, is_input ? "stdin" : std::filesystem::path(options.file).filename().string(), parse_list(text),
           selection);
  return selection;
}

/// A list that can't be read does not keep the others from running.
void add_unreadable(const NetworkList& list, const Error& error, Selection& selection) {
  ++selection.malformed;
  selection.refused.push_back({.suite = list.suite,
                               .name = list.file.filename().string(),
                               .problem = "",
                               .dtype = "",
                               .math = "",
                               .device = "",
                               .reason = error.what()});
}

/// Bias and relu, every dtype, NHWC: as the fixed suites of networks.
Selection from_networks(SelectionOptions options, const std::vector<NetworkList>& lists) {
  options.bias = true;
  options.activation = to_string(Activation::relu);
  if (options.layout.empty()) options.layout = to_string(Layout::nhwc);
  if (options.dtypes.empty()) options.dtypes = {"f32", "bf16", "f16"};
  Selection selection;
  for (const NetworkList& list : lists) {
    try {
      add_list(options, list.suite, read_list(list.file.string()), selection);
    } catch (const Error& error) {
      add_unreadable(list, error, selection);
    }
  }
  return selection;
}

[[noreturn]] void unknown_suite(const std::string& name, const std::vector<NetworkList>& lists) {
  std::string known = fmt::format("{}, {}", fmt::join(suite_names(), ", "), kNetworks);
  for (const NetworkList& list : lists) known += ", " + list.suite;
  std::vector<std::string> folders;
  for (const std::filesystem::path& folder : network_folders()) folders.push_back(folder.string());
  misuse(
      fmt::format("unknown suite '{}'; known are {} (networks are files NAME.txt in the folders {}; GABLE_NETWORKS "
                  "names more folders)",
                  name, known, fmt::join(folders, ", ")));
}

Selection from_fixed_suite(const SelectionOptions& options, bool gpu) {
  Selection selection;
  selection.cases = suite(options.suite, gpu);
  for (Case& one : selection.cases) {
    if (auto* conv = std::get_if<Conv2d>(&one.op)) apply_attributes(options, *conv);
  }
  const std::vector<DType> wanted = dtypes_of(options);
  if (!wanted.empty()) {
    std::erase_if(selection.cases, [&](const Case& one) {
      return std::find(wanted.begin(), wanted.end(), dtype_of(one.op)) == wanted.end();
    });
  }
  if (wanted.empty() || std::find(wanted.begin(), wanted.end(), DType::f32) != wanted.end()) {
    selection.bandwidths = bandwidth_cases(options.suite, gpu);
    selection.graphs = graph_cases(options.suite, gpu);
  }
  return selection;
}

Selection from_suite(const SelectionOptions& options, bool gpu) {
  if (options.bias || !options.activation.empty() || !options.max_pool.empty()) {
    misuse(
        fmt::format("suite '{}' has its own epilogues; --bias, --activation and --max-pool go with --problem or "
                    "--file",
                    options.suite));
  }
  const std::vector<std::string> fixed = suite_names();
  if (std::find(fixed.begin(), fixed.end(), options.suite) != fixed.end()) return from_fixed_suite(options, gpu);
  const std::vector<NetworkList> all = network_lists(network_folders());
  const std::vector<NetworkList> lists = lists_of_suite(options.suite, all);
  if (lists.empty()) unknown_suite(options.suite, all);
  return from_networks(options, lists);
}

bool is_named(const std::string& name, const std::vector<std::string>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const std::string& part) { return name.find(part) != std::string::npos; });
}

}  // namespace

void read_file(SelectionOptions& options) {
  if (!options.file.empty()) options.text = read_list_text(options.file);
}

void apply_attributes(const SelectionOptions& options, Conv2d& conv) {
  if (!options.layout.empty()) conv.layout = parse_layout(options.layout);
  if (options.bias) conv.epilogue.bias = true;
  if (!options.activation.empty()) conv.epilogue.activation = parse_activation(options.activation);
  if (!options.max_pool.empty()) conv.epilogue.max_pool = parse_max_pool(options.max_pool);
}

Selection select(const SelectionOptions& options, bool gpu) {
  const int given =
      (options.problems.empty() ? 0 : 1) + (options.suite.empty() ? 0 : 1) + (options.file.empty() ? 0 : 1);
  if (given != 1) misuse("give exactly one of --problem, --suite and --file");
  if (options.max_batch < 0) misuse(fmt::format("--max-batch {}: must be at least 1", options.max_batch));
  Selection selection = !options.suite.empty()  ? from_suite(options, gpu)
                        : !options.file.empty() ? from_file(options)
                                                : from_problems(options);
  if (!options.names.empty()) {
    const auto other = [&](const auto& one) { return !is_named(one.name, options.names); };
    std::erase_if(selection.cases, other);
    std::erase_if(selection.bandwidths, other);
    std::erase_if(selection.graphs, other);
  }
  if (options.max_batch > 0) cap_batch(selection.cases, options.max_batch);
  multiply(selection.cases, maths_of(options));
  if (!options.suite.empty()) selection.repeated = drop_repeated(selection.cases);
  if (selection.cases.empty() && selection.bandwidths.empty() && selection.graphs.empty() &&
      selection.refused.empty()) {
    const std::string list = options.file.empty() ? "" : fmt::format("problem list '{}': ", printable(options.file));
    misuse(list + "nothing is selected: the list is empty, or --name and --dtype leave nothing");
  }
  return selection;
}

}  // namespace gable::bench
