// See program_command.h.
#include "bench/cli/program_command.h"

#include <fmt/format.h>
#include <gable/error.h>

#include <nlohmann/json.hpp>

#include "bench/cli/report_files.h"
#include "bench/program/program_study.h"
#include "bench/record/study_json.h"
#include "bench/report/program.h"
#include "perfcounters/interrupt.h"

namespace gable::bench {
namespace {

ProgramOptions program_options(const StudyOptions& options, const ProgramArguments& program, bool report) {
  ProgramOptions measured{.argv = program.argv, .top = program.top, .command = options.line.text};
  if (!options.counters.mode.empty()) measured.mode = parse_counter_mode(options.counters.mode);
  if (options.counters.seconds_each > 0) measured.counter_seconds = options.counters.seconds_each;
  measured.ceilings = report || options.ceilings;
  measured.quick_ceilings = !report || options.effort.quick;
  measured.experiments = program.experiments;
  return measured;
}

}  // namespace

int program_command(const StudyOptions& options, const ProgramArguments& program, bool report, Console& console) {
  if (program.argv.empty()) {
    throw Error(ErrorCode::invalid_argument, "no program: write it after two dashes, as in 'gable measure -- ./app 3'");
  }
  console.leave_standard_output();
  console.check_target();
  const std::string folder = report ? report_folder(options.out) : "";
  if (report) make_report_folder(folder);
  const perf::InterruptKeeper interrupts;  // until all is written
  const ProgramStudy measured = measure_program(program_options(options, program, report), console);
  if (!measured.end.reason.empty()) {
    console.print("gable: " + measured.end.reason);
    return measured.end.status();
  }
  console.print(report::program_table(measured.study));
  const nlohmann::json document = to_json(measured.study, measured.run);
  if (report) write_study_report(document, folder, console);
  console.emit(document);
  return measured.end.status();
}

}  // namespace gable::bench
