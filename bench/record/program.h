// What `gable measure` saw of a program that is not gable's. Its regions and kernels with known W and Q are rows of the
// study as well; here stands everything, so that a total is a total. program_json.h writes and reads it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/record/insight.h"

namespace gable::bench {

/// Calls of a region, launches of a kernel, or the one run of a program.
struct CallFields {
  std::int64_t calls = 1;
  double seconds = 0;             ///< of all calls together
  std::optional<double> share{};  ///< of the program's time (regions), or of all kernels' time (kernels); 0 ... 1
  std::string region{};           ///< of a kernel: the path of the region that launched it; empty: none
  std::string origin{};           ///< of a region: "gable" or "nvtx"
};

/// T of one call, in seconds.
struct CallTime {
  double seconds = 0;  ///< median
  double q1 = 0, q3 = 0;
};

/// W of one call, where it is known.
struct CallWork {
  std::string source{};  ///< "counter", "simulated", or "analytic": declared by the program
  double flop = 0;
};

/// A region, a kernel or the whole program.
struct ProgramPart {
  std::string kind{};  ///< "program", "region", "kernel", or "rest": the kernels beyond --top together
  std::string name{};
  std::string device{};  ///< "cpu", "cuda:0"
  CallFields called{};
  std::optional<CallTime> time{};          ///< none: of several kernels, or of an older record
  std::optional<CallWork> work{};          ///< may be known where Q is not
  std::string reason{};                    ///< why it is no point of the roofline; empty: it is one of the measurements
  std::vector<std::string> flags{};        ///< what may be wrong with T
  std::vector<Regime> findings{};          ///< of a kernel (bench/program/kernel_findings.h)
  std::map<std::string, double> counts{};  ///< of a kernel with findings: what they rest on, per launch
};

struct ProgramEntry {
  std::string command{};
  std::optional<int> exit_code{};  ///< none: a signal ended it
  std::optional<int> signal{};
  double seconds = 0;
  std::optional<double> cpu_seconds{};  ///< of all its threads and children
  int processes = 1;
  bool interrupted = false;
  std::vector<ProgramPart> parts{};  ///< the program, its regions, its kernels; those with the most time first
  std::vector<std::string> notes{};  ///< what was lost, refused or estimated
  std::vector<Regime> findings{};    ///< what takes the time, the best supported first (bench/program/findings.h)
};

}  // namespace gable::bench
