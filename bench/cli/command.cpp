// See command.h.
#include "bench/cli/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gable/choose.h>
#include <gable/error.h>
#include <gable/version.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <new>
#include <string_view>

#include "bench/cli/choice_commands.h"
#include "bench/cli/cliffs_command.h"
#include "bench/cli/diff_command.h"
#include "bench/cli/info.h"
#include "bench/cli/list_command.h"
#include "bench/cli/profile_command.h"
#include "bench/cli/program_command.h"
#include "bench/cli/run_conv2d.h"
#include "bench/cli/study_commands.h"
#include "bench/cli/verify_command.h"
#include "bench/common/files.h"
#include "bench/counting/workload_process.h"
#include "bench/measure/outcome.h"
#include "bench/workloads/networks.h"
#include "bench/workloads/suites.h"
#include "perfcounters/interrupt.h"

namespace gable::bench {
namespace {

/// The values of all options. Each subcommand reads those that it has.
constexpr int kSignalled = 128;  ///< an exit code above it tells the signal, as in a shell

struct Arguments {
  StudyOptions study;
  RunOptions run;
  ProfileOptions profile;
  WorkloadOptions workload;
  CliffOptions cliffs;
  ChoiceOptions choice;
  DiffArguments diff;
  ProgramArguments program;
  RandomVerifyOptions random;
  std::string json;
  bool gpu = false;
  PlotOptions plot;
  std::function<int(Arguments&, Console&)> action;  ///< returns the exit code
};

/// CLI::PositiveNumber takes nan for a number, and would tell its range in 300 digits.
CLI::Validator positive() {
  return CLI::Validator(
      [](const std::string& text) {
        double value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && value > 0 && std::isfinite(value);
        return good ? std::string() : fmt::format("'{}': must be a number above 0", text);
      },
      "POSITIVE");
}

/// CLI::Range takes nan.
CLI::Validator share() {
  return CLI::Validator(
      [](const std::string& text) {
        double value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && value >= 0 && value <= 1;
        return good ? std::string() : fmt::format("'{}': must be a number from 0 to 1", text);
      },
      "SHARE");
}

/// CLI11 takes the nearest number for one that is out of range, and counts -1 as the greatest without a sign.
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
constexpr std::uint64_t kMostBatch = 1'000'000'000;  // as in a problem
constexpr std::uint64_t kMostSeed = std::numeric_limits<std::uint64_t>::max();

void add_json(CLI::App& app, Arguments& a) {
  app.add_option("--json", a.json, "write the record as JSON to this file; '-' or nothing: to standard output")
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

std::string network_names() {
  std::vector<std::string> names;
  for (const NetworkList& list : network_lists(network_folders())) names.push_back(list.suite);
  return fmt::format("{}", fmt::join(names, ", "));
}

void add_selection(CLI::App& app, SelectionOptions& s) {
  add_problem(app, s);
  app.add_option("--suite", s.suite,
                 fmt::format("a named suite: {}, {} (all), or one of them: {}", fmt::join(suite_names(), ", "),
                             kNetworks, network_names()));
  app.add_option("--file", s.file, "a list of descriptors, as benchdnn's --batch reads them");
  add_attributes(app, s);
  add_epilogue(app, s);
  app.add_flag("--bias", s.bias, "add a bias");
  app.add_option("--name", s.names, "only the cases whose name contains this; several with commas")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--max-batch", s.max_batch, "cap the batch, where time or memory is short")
      ->check(whole(1, kMostBatch));
}

void add_threads(CLI::App& app, int& threads) {
  app.add_option("--threads", threads, "threads of CPU devices (default: all)")->check(positive());
}

void add_devices(CLI::App& app, StudyOptions& s) {
  app.add_option("--device", s.devices,
                 "devices, several with commas, e.g. cpu,onednn,cuda:0 (default: every available one of these)")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_threads(app, s.threads);
}

void add_measuring(CLI::App& app, StudyOptions& s) {
  app.add_option("--cache", s.cache, "warm, cold or both")->check(CLI::IsMember({"warm", "cold", "both"}));
  app.add_option("--seconds", s.seconds,
                 "time for one device on one case in one cache state, after a first run; that may take longer")
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

void add_info(CLI::App& root, Arguments& a) {
  CLI::App& app = *root.add_subcommand("info", "devices, kernels, counters: available, or why not");
  add_json(app, a);
  app.callback([&a] {
    a.action = [](Arguments&, Console& console) {
      info(console);
      return kDone;
    };
  });
}

void add_list(CLI::App& root, Arguments& a) {
  CLI::App& app = *root.add_subcommand("list", "the cases of a selection, with their shapes and work; runs nothing");
  add_selection(app, a.study.selection);
  app.add_flag("--gpu", a.gpu, "with the batches that GPUs get (default: a CPU's)");
  add_json(app, a);
  app.callback([&a] {
    a.action = [](Arguments& arguments, Console& console) {
      return list_command(arguments.study.selection, arguments.gpu, console);
    };
  });
}

void add_run(CLI::App& root, Arguments& a) {
  CLI::App& run = *root.add_subcommand("run", "run one op on real data");
  run.require_subcommand(1);
  CLI::App& app = *run.add_subcommand(
      "conv2d", "a convolution on .npy files: x in the layout's order, weights (O, I/g, kh, kw), bias (O,)");
  add_problem(app, a.run.problem);
  app.get_option("--problem")->required();
  add_attributes(app, a.run.problem);
  add_epilogue(app, a.run.problem);
  app.add_option("--x", a.run.x, ".npy file, f32 or f16 (f32 for --dtype bf16); default: random numbers");
  app.add_option("--weights", a.run.weights, ".npy file; default: random numbers");
  app.add_option("--bias", a.run.bias, "add a bias: .npy file; random numbers without a file")
      ->type_name("[FILE]")
      ->expected(0, 1);
  app.add_option("--output", a.run.output, ".npy file for y; bf16 is written as f32")->required();
  app.add_option("--device", a.run.device, "device (default: auto)");
  add_threads(app, a.run.threads);
  app.callback([&a, &app] {
    a.run.problem.bias = app.count("--bias") > 0;
    a.action = [](Arguments& arguments, Console& console) {
      run_conv2d(arguments.run, console);
      return kDone;
    };
  });
}

void add_verify(CLI::App& root, Arguments& a) {
  CLI::App& app = *root.add_subcommand("verify", "compare devices with the f64 reference; exit 1 on a mismatch");
  add_selection(app, a.study.selection);
  add_devices(app, a.study);
  app.add_option("--random", a.random.count,
                 "this many small random problems with odd values, each on a random kernel of every own device or of "
                 "--device")
      ->check(positive());
  app.add_option("--seed", a.random.seed, "of the first random problem; the next one has the next (default: 1)")
      ->check(whole(0, kMostSeed));
  add_json(app, a);
  app.callback([&a] {
    a.action = [](Arguments& arguments, Console& console) {
      if (arguments.random.count > 0) return random_verify_command(arguments.study, arguments.random, console);
      return verify_command(arguments.study, console);
    };
  });
}

void add_rounds(CLI::App& app, StudyOptions& s) {
  app.add_option(
         "--rounds", s.rounds,
         "measure rows by so many processes, one after the other, each with its part of --seconds: gable diff then "
         "knows how far a row lies apart from run to run (default: those of CPUs by 16 with --json where all rows "
         "have at most a minute, else 1)")
      ->check(whole(1, 1000));
  // Only for the processes of further rounds.
  app.add_option("--round-cases", s.round.cases, "")->delimiter(',')->group("");
  app.add_option("--round-devices", s.round.devices, "")->delimiter(',')->group("");
}

void add_bench(CLI::App& root, Arguments& a) {
  CLI::App& app = *root.add_subcommand("bench", "time devices side by side, taking turns in one run");
  add_selection(app, a.study.selection);
  add_devices(app, a.study);
  add_measuring(app, a.study);
  app.add_flag("--ceilings", a.study.ceilings, "measure the machine's ceilings first, for percents of the roof");
  add_rounds(app, a.study);
  add_resume(app, a.study);
  add_json(app, a);
  app.callback([&a] {
    if (!a.study.round.empty()) a.json = "-";
    a.action = [](Arguments& arguments, Console& console) { return bench_command(arguments.study, console); };
  });
}

void add_ceilings(CLI::App& root, Arguments& a) {
  CLI::App& app = *root.add_subcommand("ceilings", "measure what this machine's arithmetic and memory reach");
  app.add_flag("--quick", a.study.quick, "fewer and shorter runs");
  add_json(app, a);
  app.callback([&a] {
    a.action = [](Arguments& arguments, Console& console) { return ceilings_command(arguments.study, console); };
  });
}

void add_program(CLI::App& app, Arguments& a) {
  app.add_option("program", a.program.argv, "after two dashes: a program that is not gable's, and its arguments");
  app.add_option("--top", a.program.top, "of a program: regions and kernels that get a line of their own (default: 20)")
      ->check(positive());
  app.add_flag("--experiments", a.program.experiments,
               "run the program up to twice more, with denormals as zeros and on one CPU: what takes its time?");
}

void add_measure(CLI::App& root, Arguments& a) {
  CLI::App& app = *root.add_subcommand(
      "measure", "your own program, unchanged: T, W and Q of the whole, of its regions and of its GPU kernels");
  add_program(app, a);
  StudyOptions& s = a.study;
  app.add_option("--counters", s.counters.mode,
                 "where W and Q come from: auto (default), counter, simulated, or analytic: only times")
      ->check(CLI::IsMember({"auto", "counter", "simulated", "analytic"}));
  app.add_option("--counter-seconds", s.counters.seconds_each,
                 "longest run of the program under a simulation (default: 300); what takes longer is refused")
      ->check(positive());
  app.add_flag("--ceilings", s.ceilings, "measure the machine's ceilings too, for percents of the roof");
  app.footer(
      "Exit code: the program's own; 126 or 127 where it can't be started; 2 bad usage, 3 no such counters here, 4 "
      "system "
      "failure, each before it runs.");
  add_json(app, a);
  app.callback([&a] {
    a.action = [](Arguments& arguments, Console& console) {
      return program_command(arguments.study, arguments.program, false, console);
    };
  });
}

/// What only a study of gable's own operations takes.
void refuse_selection(const SelectionOptions& s) {
  if (s.suite.empty() && s.file.empty() && s.problems.empty()) return;
  throw Error(ErrorCode::invalid_argument,
              "--suite, --file and --problem select gable's own operations: give either them or a program after two "
              "dashes");
}

void add_roofline(CLI::App& root, Arguments& a) {
  CLI::App& app = *root.add_subcommand(
      "roofline",
      "the whole study: ceilings, measurement, report; of gable's operations or, after --, of your program");
  add_program(app, a);
  add_selection(app, a.study.selection);
  add_devices(app, a.study);
  add_measuring(app, a.study);
  app.add_flag("--quick", a.study.quick, "two minutes on two cores: smaller batches, fewer runs, warm only");
  app.add_option("--out", a.study.out, "folder of the report (default: report)");
  add_resume(app, a.study);
  add_json(app, a);
  app.callback([&a] {
    a.action = [](Arguments& arguments, Console& console) -> int {
      SelectionOptions& s = arguments.study.selection;
      if (!arguments.program.argv.empty()) {
        refuse_selection(s);
        if (arguments.study.resume) {
          throw Error(ErrorCode::invalid_argument, "--resume: a program is measured in one go; leave the option out");
        }
        if (arguments.study.energy) {
          throw Error(ErrorCode::invalid_argument,
                      "--energy: a program's energy is not measured; leave the option out");
        }
        return program_command(arguments.study, arguments.program, true, console);
      }
      if (s.suite.empty() && s.file.empty() && s.problems.empty()) s.suite = "study";
      return roofline_command(arguments.study, console);
    };
  });
}

void add_plot(CLI::App& root, Arguments& a) {
  CLI::App& app = *root.add_subcommand("plot", "draw studies again, merged, also from several machines");
  app.add_option("studies", a.plot.files, "study.json files")->required();
  app.add_option("--out", a.plot.out, "folder of the report");
  app.add_flag("--ascii", a.plot.ascii, "print the roofline as text");
  app.callback([&a] {
    a.action = [](Arguments& arguments, Console& console) {
      if (arguments.plot.out.empty() && !arguments.plot.ascii)
        throw Error(ErrorCode::invalid_argument, "give --out DIR for the report, or --ascii for text");
      return plot_command(arguments.plot, console);
    };
  });
}

void add_diff(CLI::App& root, Arguments& a) {
  CLI::App& app = *root.add_subcommand(
      "diff",
      "two studies of one machine: what became slower or faster beyond the noise; exit 1 if anything is slower");
  DiffOptions& options = a.diff.options;
  app.add_option("old", a.diff.before, "record of the old build; better several, with commas between")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->required();
  app.add_option("new", a.diff.after, "record of the new build; likewise")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->required();
  app.add_option("--noise", options.noise.least,
                 "least standard deviation between two runs of one build, as a share (default: 0.004)")
      ->check(share());
  app.add_option("--drift", options.noise.drift,
                 "largest shift of all rows that is taken for the machine's, as a share (default: 0.1)")
      ->check(share());
  app.add_option("--same", options.same, "a row that changed by no more, for certain, is the same (default: 0.03)")
      ->check(share());
  app.add_flag("--allow-other-machine", a.diff.allow_other_machine, "compare studies of different machines, too");
  add_json(app, a);
  app.callback([&a] {
    a.action = [](Arguments& arguments, Console& console) { return diff_command(arguments.diff, console); };
  });
}

void add_profile(CLI::App& root, Arguments& a) {
  CLI::App& app = *root.add_subcommand("profile", "what runs are made of: kernels, copies, API calls; phases on CPUs");
  add_selection(app, a.study.selection);
  add_devices(app, a.study);
  app.add_option("--runs", a.profile.runs, "runs of each case (default: 10)")->check(positive());
  app.add_flag("--deep", a.profile.deep, "GPUs: why warps waited, kernel by kernel, from counters in further runs");
  app.add_option("--csv", a.profile.csv, "write the table to this file");
  app.add_option("--trace", a.profile.trace, "write a trace for Chrome (chrome://tracing) and Perfetto to this file");
  add_json(app, a);
  app.callback([&a] {
    a.action = [](Arguments& arguments, Console& console) {
      return profile_command(arguments.study, arguments.profile, console);
    };
  });
}

void add_cliffs(CLI::App& root, Arguments& a) {
  CLI::App& app = *root.add_subcommand(
      "cliffs", "random layers: which take longer than in f32, dense, with more channels, image by image, reordered");
  CliffJob& job = a.cliffs.job;
  app.add_option("--device", a.cliffs.device, "one device (default: cpu)");
  add_threads(app, a.cliffs.threads);
  app.add_option("--layers", job.layers, "layers to sample (default: 2000)")->check(positive());
  app.add_option("--seconds", job.seconds, "fewer layers where they take longer (default: 600)")->check(positive());
  app.add_option("--seconds-each", job.seconds_each, "time for each op of a layer (default: 0.01)")->check(positive());
  app.add_option("--seed", job.seed, "the same seed gives the same layers (default: 1)")->check(whole(0, kMostSeed));
  app.add_option("--gflop", job.limits.gflop, "most work of a layer (default: 0.3; a GPU takes 20)")->check(positive());
  app.add_option("--megabytes", job.limits.megabytes, "most data of a layer, as f32 (default: 32)")->check(positive());
  app.add_option("--max-batch", job.limits.batch, "largest batch (default: 8)")->check(whole(1, kMostBatch));
  add_json(app, a);
  app.callback([&a] {
    a.action = [](Arguments& arguments, Console& console) {
      arguments.cliffs.command = arguments.study.command;
      return cliffs_command(arguments.cliffs, console);
    };
  });
}

void add_choice(CLI::App& app, ChoiceOptions& choice) {
  add_selection(app, choice.selection);
  app.add_option("--device", choice.device, "an auto, e.g. auto?only=cpu+onednn or auto?memory=host (default: auto)");
  add_threads(app, choice.threads);
}

void add_tune(CLI::App& root, Arguments& a) {
  CLI::App& app = *root.add_subcommand(
      "tune", "measure the devices and kernels that auto chooses among, and remember the fastest for each op");
  add_choice(app, a.choice);
  app.add_option("--seconds", a.choice.seconds, "limit of the whole run (default: 60)")->check(positive());
  app.add_flag("--again", a.choice.again, "also what was tuned before");
  app.add_flag("--ceilings", a.choice.ceilings, "measure what a core of this machine reaches, instead of ops");
  add_json(app, a);
  app.callback([&a] {
    a.action = [](Arguments& arguments, Console& console) {
      arguments.choice.command = arguments.study.command;
      const bool ceilings = arguments.choice.ceilings;
      return ceilings ? tune_ceilings_command(arguments.choice, console) : tune_command(arguments.choice, console);
    };
  });
}

void add_regret(CLI::App& root, Arguments& a) {
  CLI::App& app = *root.add_subcommand(
      "regret", "how good auto's choices are: time of what it chose / time of the best; exit 1 beyond the limits");
  add_choice(app, a.choice);
  RegretJob& job = a.choice.job;
  app.add_option("--seconds", job.seconds_each,
                 "time for one contestant on one layer, after a first run; that may take longer (default: 0.1)")
      ->check(positive());
  app.add_option("--rounds", a.choice.rounds,
                 "measure the list so many times, in other orders: the median of each time counts (default: 1)")
      ->check(whole(1, 100));
  app.add_flag("--kernels", job.kernels,
               "compare with every kernel of each device, not only with the one it would take");
  app.add_option("--geo", a.choice.geo, "most geometric mean of a dtype and layout (default: 1.05)")->check(positive());
  app.add_option("--worst", a.choice.worst, "most of one layer (default: 1.3)")->check(positive());
  app.add_option("--most", a.choice.most, "layers to print (default: 20)")->check(whole(1, kMostBatch));
  add_json(app, a);
  app.callback([&a] {
    a.action = [](Arguments& arguments, Console& console) {
      arguments.choice.command = arguments.study.command;
      return regret_command(arguments.choice, console);
    };
  });
}

/// The command `gable counted`, which gable itself starts; see workload_process.h.
void add_counted(CLI::App& root, Arguments& a) {
  CLI::App& app = *root.add_subcommand("counted", "one workload, to be counted from outside");
  app.group("");  // hidden from the help
  add_workload_options(app, a.workload);
  app.callback([&a] {
    a.action = [](Arguments& arguments, Console&) {
      run_workload(arguments.workload);
      return kDone;
    };
  });
}

/// How many words are gable's own: the words before the first "--". The program's follow. (CLI11 takes "--" for the end
/// of an option's optional value too, and would read the program's options as gable's.)
int count_own_words(int argc, const char* const* argv) {
  const auto* end = std::find_if(argv, argv + argc, [](const char* word) { return std::string_view(word) == "--"; });
  return static_cast<int>(end - argv);
}

/// For the record. Without --resume, so that a resumed study has the command of the whole one.
std::string command_line(int argc, const char* const* argv) {
  const int own_words = count_own_words(argc, argv);
  std::string text = "gable";
  for (int i = 1; i < argc; ++i) {
    if (i >= own_words || std::string_view(argv[i]) != "--resume") text += fmt::format(" {}", argv[i]);
  }
  return text;
}

int complain(const std::string& message, int code) {
  std::fputs((printable_lines("gable: " + message) + "\n").c_str(), stderr);
  return code;
}

int complain_of_memory() {
  std::fputs("gable: host memory ran out\n", stderr);  // as text that needs none
  return kFailure;
}

/// The option whose value is empty, for example because of an unset variable in a script; empty if there is none. An
/// empty value means nothing for any option, and CLI11 would treat some as if they had not been given.
std::string option_without_value(int own_words, const char* const* argv) {
  for (int i = 1; i < own_words; ++i) {
    const std::string_view word = argv[i];
    if (word.find_first_not_of(',') == std::string_view::npos) return i > 1 ? argv[i - 1] : "gable";
    if (word.starts_with("--") && word.find('=') == word.size() - 1)
      return std::string(word.substr(0, word.size() - 1));
  }
  return "";
}

/// Throws std::bad_alloc alone.
int run_action(Arguments& arguments) {
  Console console(arguments.json);
  try {
    const int code = arguments.action(arguments, console);
    console.finish_progress();
    if (console.reader_left()) return kSignalled + SIGPIPE;
    if (!console.lost().empty()) return complain(console.lost(), kFailure);
    // Under gable measure the exit code is the program's own.
    const int signal = arguments.program.argv.empty() ? perf::interrupting_signal() : 0;
    return signal == 0 ? code : complain("interrupted", kSignalled + signal);
  } catch (const Error& error) {
    console.finish_progress();
    return complain(error.what(), exit_code(error.code()));
  } catch (const std::filesystem::filesystem_error& error) {
    console.finish_progress();
    return complain(error.what(), exit_code(code_of(error.code())));
  } catch (const std::bad_alloc&) {
    console.finish_progress();
    throw;
  } catch (const std::exception& error) {
    console.finish_progress();
    return complain(error.what(), kFailure);
  }
}

int parse_and_run(int argc, const char* const* argv) {
  Arguments arguments;
  arguments.study.command = command_line(argc, argv);
  arguments.study.words.assign(argv + 1, argv + std::max(1, argc));
  set_log([](std::string_view message) { std::fputs(("gable: " + std::string(message) + "\n").c_str(), stderr); });
  CLI::App app("gable: one tensor/conv API over CPU and GPU, on one measured roofline", "gable");
  app.set_version_flag("--version", "gable " GABLE_VERSION_STRING);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done, 1 a check failed, 2 bad usage or input, 3 the device can't do it, 4 device or system "
      "failure.");
  for (const auto add : {add_info, add_list, add_run, add_verify, add_bench, add_ceilings, add_roofline, add_measure,
                         add_plot, add_diff, add_profile, add_cliffs, add_tune, add_regret, add_counted}) {
    add(app, arguments);
  }
  const int own_words = count_own_words(argc, argv);
  const std::string no_value = option_without_value(own_words, argv);
  if (!no_value.empty()) return complain(fmt::format("{}: the value is empty", no_value), kBadInput);
  try {
    app.parse(own_words, argv);
  } catch (const CLI::ParseError& error) {
    const bool asked_for = app.exit(error) == 0;  // help or version
    errno = 0;
    if (asked_for && !std::cout.flush() && errno == EPIPE) return kSignalled + SIGPIPE;
    if (asked_for && !std::cout) return complain("standard output: the text can't be written", kFailure);
    return asked_for ? kDone : kBadInput;
  }
  if (own_words < argc) {
    if (!app.got_subcommand("measure") && !app.got_subcommand("roofline"))
      return complain("'--': only measure and roofline take a program behind it", kBadInput);
    arguments.program.argv.insert(arguments.program.argv.end(), argv + own_words + 1, argv + argc);
  }
  return run_action(arguments);
}

}  // namespace

int command(int argc, const char* const* argv) {
  try {
    return parse_and_run(argc, argv);
  } catch (const std::bad_alloc&) {
    return complain_of_memory();
  }
}

void exit_where_memory_runs_out() {
  std::set_terminate([] {
    try {
      if (std::current_exception()) throw;
    } catch (const std::bad_alloc&) {
      ::_exit(complain_of_memory());
    } catch (...) {
    }
    std::abort();
  });
}

}  // namespace gable::bench
