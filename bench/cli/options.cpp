// See options.h.
#include "bench/cli/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <vector>

#include "bench/workloads/networks.h"
#include "bench/workloads/suites.h"

namespace gable::bench {
namespace {

std::string network_names() {
  std::vector<std::string> names;
  for (const NetworkList& list : network_lists(network_folders())) names.push_back(list.suite);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

CLI::Validator positive() {
  return CLI::Validator(
      [](const std::string& text) {
        double value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && value > 0 && std::isfinite(value);
        return good ? std::string() : fmt::format("'{}': must be a number above 0", text);
      },
      "POSITIVE");
}

CLI::Validator share() {
  return CLI::Validator(
      [](const std::string& text) {
        double value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && value >= 0 && value <= 1;
        return good ? std::string() : fmt::format("'{}': must be a number from 0 to 1", text);
      },
      "SHARE");
}

CLI::Validator whole(std::uint64_t least, std::uint64_t most) {
  return CLI::Validator(
      [least, most](const std::string& text) {
        std::uint64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool good = error == std::errc() && end == text.data() + text.size() && value >= least && value <= most;
        return good ? std::string() : fmt::format("'{}': must be a whole number from {} to {}", text, least, most);
      },
      "NUMBER");
}
void add_json(CLI::App& app, std::string& json) {
  app.add_option("--json", json, "write the record as JSON to this file; '-' or nothing: to standard output")
      ->type_name("[FILE]")
      ->expected(0, 1)
      ->default_str("-");
}

void add_attributes(CLI::App& app, SelectionOptions& s) {
  app.add_option("--dtype", s.dtypes, "f32, f16, bf16; several with commas (for a suite: which of its own to keep)")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--layout", s.layout, "nchw or nhwc, of x and y (default: nchw; suites: nhwc)");
  app.add_option("--math", s.maths, "strict, tf32, split3, split6; several with commas take turns (default: strict)")
      ->delimiter(',')
      ->allow_extra_args(false);
}

void add_epilogue(CLI::App& app, SelectionOptions& s) {
  app.add_option("--activation", s.activation, "none, relu or tanh (default: none)");
  app.add_option("--max-pool", s.max_pool, "fused max-pool: window and stride, as 2, 3x2 or 3x3,2");
}

void add_problem(CLI::App& app, SelectionOptions& s) {
  app.add_option("--problem", s.problems, "benchdnn's descriptor, e.g. mb16ic64ih224oc64oh224kh3ph1n\"vgg\"")
      ->allow_extra_args(false);
}

void add_selection(CLI::App& app, SelectionOptions& s) {
  add_problem(app, s);
  app.add_option("--suite", s.suite,
                 fmt::format("a named suite: {}, {} (all), or one of them: {}", fmt::join(suite_names(), ", "),
                             kNetworks, network_names()));
  app.add_option("--file", s.file, "a list of descriptors, as benchdnn's --batch reads them; - is standard input");
  add_attributes(app, s);
  add_epilogue(app, s);
  app.add_flag("--bias", s.bias, "add a bias");
  app.add_option("--name", s.names, "only the cases whose name contains this; several with commas")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--max-batch", s.max_batch, "cap the batch, where time or memory is short")
      ->check(whole(1, kMaxBatch));
}

void add_threads(CLI::App& app, int& threads) {
  app.add_option("--threads", threads, "threads of CPU devices (default: all)")->check(whole(1, kMaxThreads));
}

void add_devices(CLI::App& app, StudyOptions& s) {
  app.add_option("--device", s.devices,
                 "devices, several with commas, e.g. cpu,onednn,cuda:0; in only= of an auto with + (default: cpu, "
                 "onednn and all devices on GPUs, as far as they are available)")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_threads(app, s.threads);
}

void add_measuring(CLI::App& app, StudyOptions& s) {
  app.add_option("--cache", s.effort.cache, "warm, cold or both (default: warm; roofline without --quick: both)")
      ->check(CLI::IsMember({"warm", "cold", "both"}));
  app.add_option(
         "--seconds", s.effort.seconds,
         "time for one device on one case in one cache state, after a first run; that may take longer (default: 1; "
         "roofline without --quick: 4)")
      ->check(positive());
  app.add_option("--counters", s.counters.mode,
                 "where W and Q come from: auto (the best source of each), counter, simulated or analytic (default)")
      ->check(CLI::IsMember({"auto", "counter", "simulated", "analytic"}));
  app.add_option("--counter-seconds", s.counters.seconds_each,
                 "longest run of a row in a process under a simulation (default: 60); what takes longer is refused")
      ->check(positive());
  app.add_flag("--energy", s.energy,
               "joules of a call, from RAPL or NVML: repeats each warm row, and each ceiling, for about a "
               "second more; rows that only move bytes and pagerank have none");
}

void add_resume(CLI::App& app, StudyOptions& s) {
  app.add_flag("--resume", s.resume,
               "go on with the record that an interrupted run of the same command left: measure what it lacks");
}

}  // namespace gable::bench
