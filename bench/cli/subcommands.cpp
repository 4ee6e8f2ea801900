// See subcommands.h.
#include "bench/cli/subcommands.h"

#include <fmt/format.h>
#include <gable/error.h>

#include <set>
#include <string>

#include "bench/cli/info.h"
#include "bench/cli/list_command.h"
#include "bench/cli/options.h"
#include "bench/measure/outcome.h"

namespace gable::bench {
namespace {

void add_info(CLI::App& root, Arguments& a) {
  CLI::App& app = *root.add_subcommand("info", "devices, kernels, counters: available, or why not");
  add_json(app, a.json);
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
  add_json(app, a.json);
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
      ->check(whole(1, kMaxCount));
  app.add_option("--seed", a.random.seed, "of the first random problem; the next one has the next (default: 1)")
      ->check(whole(0, kMaxSeed));
  add_json(app, a.json);
  app.callback([&a] {
    a.action = [](Arguments& arguments, Console& console) {
      if (arguments.random.count > 0) return random_verify_command(arguments.study, arguments.random, console);
      return verify_command(arguments.study, console);
    };
  });
}

void add_rounds(CLI::App& app, StudyOptions& s) {
  app.add_option(
         "--rounds", s.effort.rounds,
         "measure rows in this many processes, one after the other, each with its part of --seconds: gable diff then "
         "knows a row's variation from run to run (default: 16 for rows of CPUs with --json, if all rows take at most "
         "a "
         "minute; else 1)")
      ->check(whole(1, 1000));
  // Only for the processes of further rounds.
  app.add_option("--round-cases", s.effort.round.cases, "")->delimiter(',')->group("");
  app.add_option("--round-devices", s.effort.round.devices, "")->delimiter(',')->group("");
  app.add_option("--round-list", s.effort.round.list, "")->group("");
}

void add_bench(CLI::App& root, Arguments& a) {
  CLI::App& app = *root.add_subcommand("bench", "time devices side by side, taking turns in one run");
  add_selection(app, a.study.selection);
  add_devices(app, a.study);
  add_measuring(app, a.study);
  app.add_flag("--ceilings", a.study.ceilings, "measure the machine's ceilings first, for percents of the roof");
  add_rounds(app, a.study);
  add_resume(app, a.study);
  app.add_option("--csv", a.study.csv, "write the rows to this file, with the columns of study.csv");
  add_json(app, a.json);
  app.callback([&a] {
    if (!a.study.effort.round.empty()) a.json = "-";
    a.action = [](Arguments& arguments, Console& console) { return bench_command(arguments.study, console); };
  });
}

void add_ceilings(CLI::App& root, Arguments& a) {
  CLI::App& app = *root.add_subcommand("ceilings", "measure what this machine's arithmetic and memory reach");
  app.add_flag("--quick", a.study.effort.quick, "fewer and shorter runs");
  add_json(app, a.json);
  app.callback([&a] {
    a.action = [](Arguments& arguments, Console& console) { return ceilings_command(arguments.study, console); };
  });
}

void add_program(CLI::App& app, Arguments& a) {
  app.add_option("program", a.program.argv, "after two dashes: a program that is not gable's, and its arguments");
  app.add_option("--top", a.program.top, "of a program: regions and kernels that get a line of their own (default: 20)")
      ->check(whole(1, kMaxCount));
  app.add_flag("--experiments", a.program.experiments,
               "run the program up to three times more, to tell what takes its time: with denormals as zeros, on one "
               "CPU, and stopped at random times to see its accesses");
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
                 "longest run of the program under a simulation, or that counts GPU kernels (default: 300)")
      ->check(positive());
  app.add_flag("--ceilings", s.ceilings, "measure the machine's ceilings too, for percents of the roof");
  app.footer(
      "Exit code: the program's own; 126 or 127 if it can't be started. Before it runs: 2 bad usage, 3 no such "
      "counters, "
      "4 system failure.");
  add_json(app, a.json);
  app.callback([&a] {
    a.action = [](Arguments& arguments, Console& console) {
      return program_command(arguments.study, arguments.program, false, console);
    };
  });
}

/// Throws where roofline has an option that what it measures does not heed: a program of the user's own, or gable's
/// operations.
void refuse_options_of_others(const CLI::App& roofline, bool has_program) {
  const std::set<std::string> of_program{"--top", "--experiments"};
  const std::set<std::string> of_both{"program", "--counters", "--counter-seconds", "--quick", "--out", "--json"};
  for (const CLI::Option* option : roofline.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || of_both.count(name) == 1 || (of_program.count(name) == 1) == has_program) continue;
    throw Error(ErrorCode::invalid_argument,
                has_program ? fmt::format("{}: is of gable's own operations, and changes nothing for a program; leave "
                                          "out the option, or the program",
                                          name)
                            : fmt::format("{}: is of programs: write one after two dashes, as in 'gable roofline -- "
                                          "./app 3', or leave the option out",
                                          name));
  }
}

void add_roofline(CLI::App& root, Arguments& a) {
  CLI::App& app = *root.add_subcommand(
      "roofline",
      "the whole study: ceilings, measurement, report; of gable's operations or, after --, of your program");
  add_program(app, a);
  add_selection(app, a.study.selection);
  add_devices(app, a.study);
  add_measuring(app, a.study);
  app.add_flag("--quick", a.study.effort.quick, "two minutes on two cores: smaller batches, fewer runs, warm only");
  app.add_option("--out", a.study.out, "folder of the report (default: report)");
  add_resume(app, a.study);
  add_json(app, a.json);
  app.callback([&a, &app] {
    a.action = [&app](Arguments& arguments, Console& console) -> int {
      const bool has_program = !arguments.program.argv.empty();
      refuse_options_of_others(app, has_program);
      if (has_program) return program_command(arguments.study, arguments.program, true, console);
      SelectionOptions& s = arguments.study.selection;
      if (s.suite.empty() && s.file.empty() && s.problems.empty()) s.suite = "study";
      return roofline_command(arguments.study, console);
    };
  });
}

void add_plot(CLI::App& root, Arguments& a) {
  CLI::App& app = *root.add_subcommand("plot", "draw studies again, merged, also from several machines");
  app.add_option("studies", a.plot.files, "study.json files")->required();
  app.add_option("--out", a.plot.out, "folder of the report (default: none, which needs --ascii)");
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
  add_json(app, a.json);
  app.callback([&a] {
    a.action = [](Arguments& arguments, Console& console) { return diff_command(arguments.diff, console); };
  });
}

void add_profile(CLI::App& root, Arguments& a) {
  CLI::App& app = *root.add_subcommand("profile", "what runs are made of: kernels, copies, API calls; phases on CPUs");
  add_selection(app, a.study.selection);
  add_devices(app, a.study);
  app.add_option("--runs", a.profile.runs, "runs of each case (default: 10)")->check(whole(1, kMaxCount));
  app.add_flag("--deep", a.profile.deep, "GPUs: why warps waited, kernel by kernel, from counters in further runs");
  app.add_option("--csv", a.profile.csv, "write the table to this file");
  app.add_option("--trace", a.profile.trace, "write a trace for Chrome (chrome://tracing) and Perfetto to this file");
  add_json(app, a.json);
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
  app.add_option("--layers", job.layers, "layers to sample (default: 2000)")->check(whole(1, kMaxCount));
  app.add_option("--seconds", job.seconds, "limit of the whole run, which then samples fewer layers (default: 600)")
      ->check(positive());
  app.add_option("--seconds-each", job.seconds_each, "time for each op of a layer (default: 0.01)")->check(positive());
  app.add_option("--seed", job.seed, "the same seed gives the same layers (default: 1)")->check(whole(0, kMaxSeed));
  app.add_option("--gflop", job.limits.gflop, "most work of a layer (default: 0.3; a GPU takes 20)")->check(positive());
  app.add_option("--megabytes", job.limits.megabytes, "most data of a layer, as f32 (default: 32)")->check(positive());
  app.add_option("--max-batch", job.limits.batch, "largest batch (default: 8)")->check(whole(1, kMaxBatch));
  add_json(app, a.json);
  app.callback([&a] {
    a.action = [](Arguments& arguments, Console& console) {
      arguments.cliffs.command = arguments.study.line.text;
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
  add_json(app, a.json);
  app.callback([&a] {
    a.action = [](Arguments& arguments, Console& console) {
      arguments.choice.command = arguments.study.line.text;
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
                 "measure the list this often, in different orders; the medians of the times count (default: 1)")
      ->check(whole(1, 100));
  app.add_flag("--kernels", job.kernels,
               "compare with every kernel of each device, not only with the one it would take");
  app.add_option("--geo", a.choice.geo,
                 "exit 1 if the geometric mean of a dtype and layout is above this (default: 1.05)")
      ->check(positive());
  app.add_option("--worst", a.choice.worst, "exit 1 if a layer is above this (default: 1.3)")->check(positive());
  app.add_option("--most", a.choice.most, "layers to print (default: 20)")->check(whole(1, kMaxBatch));
  add_json(app, a.json);
  app.callback([&a] {
    a.action = [](Arguments& arguments, Console& console) {
      arguments.choice.command = arguments.study.line.text;
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

}  // namespace

void add_subcommands(CLI::App& app, Arguments& arguments) {
  for (const auto add : {add_info, add_list, add_run, add_verify, add_bench, add_ceilings, add_roofline, add_measure,
                         add_plot, add_diff, add_profile, add_cliffs, add_tune, add_regret, add_counted}) {
    add(app, arguments);
  }
}

}  // namespace gable::bench
