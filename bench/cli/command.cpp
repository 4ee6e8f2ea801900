// See command.h.
#include "bench/cli/command.h"

#include <fmt/format.h>
#include <gable/choose.h>
#include <gable/error.h>
#include <gable/version.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <set>
#include <string_view>
#include <vector>

#include "bench/cli/subcommands.h"
#include "bench/common/files.h"
#include "bench/measure/outcome.h"
#include "perfcounters/interrupt.h"

namespace gable::bench {
namespace {

constexpr int kSignalled = 128;  ///< an exit code above it tells the signal, as in a shell

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

/// Of a first word that is no subcommand; empty: it is one, or an option, or there is none.
std::string unknown_command(const CLI::App& app, int own_words, const char* const* argv) {
  if (own_words < 2 || argv[1][0] == '-') return "";
  std::string known;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->check_name(argv[1])) return "";
    if (!command->get_group().empty()) known += (known.empty() ? "" : ", ") + command->get_name();
  }
  return fmt::format("unknown command '{}'; known are {}", argv[1], known);
}

/// `gable run conv2d`, say: the innermost command that was called.
std::string called_command(const CLI::App& app) {
  std::string name = "gable";
  for (const CLI::App* inner = &app; !inner->get_subcommands().empty();) {
    inner = inner->get_subcommands()[0];
    name += " " + inner->get_name();
  }
  return name;
}

/// The first word that the command has no use for, with where its help is. Options come before what follows them.
std::string surplus_word(const CLI::App& app, int own_words, const char* const* argv) {
  const std::vector<std::string> surplus = app.remaining(true);
  std::string first = surplus.empty() ? "" : surplus.back();  // where CLI11 cut the word
  for (int i = own_words - 1; i > 0; --i)
    if (std::find(surplus.begin(), surplus.end(), argv[i]) != surplus.end()) first = argv[i];
  const std::string command = called_command(app);
  return fmt::format("{} does not take '{}'; '{} --help' lists what it takes{}", command, first, command,
                     first.starts_with("--csv") ? ", and 'gable plot STUDY.json --out DIR' writes DIR/study.csv" : "");
}

/// Throws std::bad_alloc alone.
int run_action(Arguments& arguments) {
  Console console(arguments.json);
  try {
    const int code = arguments.action(arguments, console);
    console.finish_progress();
    // Under gable measure the exit code is the program's own, though nobody reads what gable says.
    if (!arguments.program.argv.empty()) return code;
    if (console.reader_left()) return kSignalled + SIGPIPE;
    if (!console.lost().empty()) return complain(console.lost(), kFailure);
    const int signal = perf::interrupting_signal();
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
  arguments.study.line.text = command_line(argc, argv);
  arguments.study.line.words.assign(argv + 1, argv + std::max(1, argc));
  // Each message once: devices are opened several times.
  set_log([said = std::set<std::string>()](std::string_view message) mutable {
    if (said.emplace(message).second) std::fputs(("gable: " + std::string(message) + "\n").c_str(), stderr);
  });
  CLI::App app("gable: one tensor/conv API over CPU and GPU, on one measured roofline", "gable");
  app.set_version_flag("--version", "gable " GABLE_VERSION_STRING);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done, 1 a check failed, 2 bad usage or input, 3 the device can't do it, 4 device or system "
      "failure.");
  add_subcommands(app, arguments);
  const int own_words = count_own_words(argc, argv);
  const std::string no_value = option_without_value(own_words, argv);
  if (!no_value.empty()) return complain(fmt::format("{}: the value is empty", no_value), kBadInput);
  const std::string unknown = unknown_command(app, own_words, argv);
  if (!unknown.empty()) return complain(unknown, kBadInput);
  try {
    app.parse(own_words, argv);
  } catch (const CLI::ParseError& error) {
    // A misspelt option is the cause where CLI11 misses a required one.
    const bool required = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr || (required && !app.remaining(true).empty()))
      return complain(surplus_word(app, own_words, argv), kBadInput);
    if (error.get_exit_code() != 0)
      return complain(fmt::format("{}; '{} --help' lists what it takes", error.what(), called_command(app)), kBadInput);
    app.exit(error);  // help or version
    errno = 0;
    if (!std::cout.flush() && errno == EPIPE) return kSignalled + SIGPIPE;
    if (!std::cout) return complain("standard output: the text can't be written", kFailure);
    return kDone;
  }
  if (own_words < argc) {
    if (!app.got_subcommand("measure") && !app.got_subcommand("roofline"))
      return complain("'--': only measure and roofline take a program behind it", kBadInput);
    if (own_words + 1 == argc)
      return complain("no program: write it after two dashes, as in 'gable measure -- ./app 3'", kBadInput);
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
