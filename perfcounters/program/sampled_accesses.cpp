// See sampled_accesses.h. The thread that starts the program traces all of its threads and processes. A stop lets a
// thread run kSteps instructions, since the first one after an interrupt is rarely the one that took the time.
#include "perfcounters/program/sampled_accesses.h"

#if GABLE_HAS_ZYDIS && defined(__x86_64__)
#include <Zydis/Zydis.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <set>
#include <thread>
#include <unordered_map>

#include "perfcounters/interrupt.h"
#include "perfcounters/program/standard_input.h"

namespace gable::perf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kBetweenStops = std::chrono::milliseconds(1);
constexpr auto kLongestRest = std::chrono::seconds(1);  // of descendants after the program's end
constexpr int kSteps = 64;
constexpr int kMaxStops = 500;
constexpr std::uint64_t kLine = 64;
constexpr int kMinBytes = 2;

/// The operands in memory of an instruction.
struct Operands {
  ZyanU8 length = 0;
  bool is_system_call = false;
  std::vector<std::pair<ZydisDecodedOperandMem, std::uint64_t>> memory{};  // with their bytes
};

/// Nothing for registers that hold no address, as those of gathers.
std::optional<std::uint64_t> value_of(ZydisRegister name, const user_regs_struct& registers, std::uint64_t next) {
  if (name == ZYDIS_REGISTER_NONE) return 0;
  if (name == ZYDIS_REGISTER_RIP) return next;
  const ZydisRegisterClass kind = ZydisRegisterGetClass(name);
  if (kind != ZYDIS_REGCLASS_GPR64 && kind != ZYDIS_REGCLASS_GPR32) return std::nullopt;
  const std::array values{registers.rax, registers.rcx, registers.rdx, registers.rbx, registers.rsp, registers.rbp,
                          registers.rsi, registers.rdi, registers.r8,  registers.r9,  registers.r10, registers.r11,
                          registers.r12, registers.r13, registers.r14, registers.r15};
  const std::uint64_t value = values.at(static_cast<std::size_t>(ZydisRegisterGetId(name)));
  return kind == ZYDIS_REGCLASS_GPR32 ? value & 0xffffffff : value;
}

std::optional<std::uint64_t> address_of(const ZydisDecodedOperandMem& memory, const user_regs_struct& registers,
                                        std::uint64_t next) {
  const auto base = value_of(memory.base, registers, next), index = value_of(memory.index, registers, next);
  if (!base || !index) return std::nullopt;
  std::uint64_t address = *base + *index * memory.scale + static_cast<std::uint64_t>(memory.disp.value);
  if (memory.segment == ZYDIS_REGISTER_FS) address += registers.fs_base;
  if (memory.segment == ZYDIS_REGISTER_GS) address += registers.gs_base;
  return address;
}

class Code {
 public:
  Code() { ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64); }

  const Operands& at(pid_t task, std::uint64_t address) {
    const auto [found, is_new] = known_.try_emplace(address);
    if (is_new) found->second = read(task, address);
    return found->second;
  }

 private:
  Operands read(pid_t task, std::uint64_t address) const {
    std::array<std::uint8_t, ZYDIS_MAX_INSTRUCTION_LENGTH> bytes{};
    iovec here{bytes.data(), bytes.size()}, there{reinterpret_cast<void*>(address), bytes.size()};
    const ssize_t count = process_vm_readv(task, &here, 1, &there, 1, 0);
    ZydisDecodedInstruction instruction;
    std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;
    Operands found;
    if (count <= 0 || !ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder_, bytes.data(), static_cast<ZyanUSize>(count),
                                                           &instruction, operands.data())))
      return found;
    found.length = instruction.length;
    found.is_system_call = instruction.meta.category == ZYDIS_CATEGORY_SYSCALL;
    for (std::size_t i = 0; i < instruction.operand_count; ++i) {
      const ZydisDecodedOperand& one = operands[i];
      if (one.type == ZYDIS_OPERAND_TYPE_MEMORY && one.mem.type == ZYDIS_MEMOP_TYPE_MEM)
        found.memory.emplace_back(one.mem, one.size / 8);
    }
    return found;
  }

  ZydisDecoder decoder_;
  std::unordered_map<std::uint64_t, Operands> known_;
};

bool is_running(pid_t task) {
  std::ifstream file("/proc/" + std::to_string(task) + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t end = line.rfind(')');
  return end != std::string::npos && end + 2 < line.size() && line[end + 2] == 'R';
}

/// All threads and processes of a program.
class Tracer {
 public:
  explicit Tracer(pid_t program) : program_(program), tasks_{program} {}

  /// Until the program's end; false where it did not come in time.
  bool run(double seconds_limit) {
    const auto limit = Clock::now() + std::chrono::duration<double>(seconds_limit);
    std::optional<Clock::time_point> end;
    while (take_events()) {
      if (Clock::now() > limit || interrupting_signal() != 0) return kill_all();
      if (status_ && !end) end = Clock::now();
      if (end && Clock::now() > *end + kLongestRest) kill_all();
      std::this_thread::sleep_for(kBetweenStops);
      if (interrupted_ == 0 && found_.stops < kMaxStops) interrupt_next();
    }
    return status_.has_value();
  }

  int status() const { return *status_; }
  const SampledAccesses& found() const { return found_; }

 private:
  /// Handles all tasks that have stopped or ended; false when no task is left.
  bool take_events() {
    int status = 0;
    pid_t task = 0;
    while ((task = waitpid(-1, &status, __WALL | WNOHANG)) > 0) handle(task, status);
    return task == 0;
  }

  /// Handles a stop, then lets the task go on.
  void handle(pid_t task, int status) {
    const bool was_interrupted = task == interrupted_;
    if (was_interrupted) interrupted_ = 0;  // any stop ends the interrupt
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      tasks_.erase(task);
      if (task == program_) status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      return;
    }
    tasks_.insert(task);
    const int event = status >> 16, signal = WSTOPSIG(status);
    if (event == PTRACE_EVENT_STOP && was_interrupted && signal == SIGTRAP && !step(task)) return;
    if (event == PTRACE_EVENT_STOP && signal != SIGTRAP) {
      ptrace(PTRACE_LISTEN, task, 0, 0);  // stopped by job control, and stays so
    } else {
      ptrace(PTRACE_CONT, task, 0, event == 0 ? signal : 0);
    }
  }

  /// Interrupts one running thread, each in turn.
  void interrupt_next() {
    auto next = tasks_.upper_bound(last_);
    for (std::size_t i = 0; i < tasks_.size(); ++i, ++next) {
      if (next == tasks_.end()) next = tasks_.begin();
      if (!is_running(*next)) continue;
      last_ = *next;
      if (ptrace(PTRACE_INTERRUPT, last_, 0, 0) == 0) interrupted_ = last_;
      return;
    }
  }

  /// False where a step ended in something else, which is handled. The steps end before a system call: it may wait for
  /// another thread, which may itself wait for this tracer, whose only concern is this thread meanwhile.
  bool step(pid_t task) {
    ++found_.stops;
    for (int i = 0; i < kSteps; ++i) {
      user_regs_struct registers{};
      if (ptrace(PTRACE_GETREGS, task, 0, &registers) != 0) return true;
      if (begins_system_call(task, registers)) return true;
      note(task, registers);
      if (ptrace(PTRACE_SINGLESTEP, task, 0, 0) != 0) return true;
      int status = 0;
      if (waitpid(task, &status, __WALL) != task) return false;
      if (WIFSTOPPED(status) && status >> 16 == 0 && WSTOPSIG(status) == SIGTRAP) continue;
      handle(task, status);
      return false;
    }
    return true;
  }

  /// Also where the interrupt came during one, which then begins again.
  bool begins_system_call(pid_t task, const user_regs_struct& registers) {
    constexpr long kFirst = -516, kLast = -512;  // the kernel's ERESTARTSYS, ..., which programs never see
    const auto result = static_cast<long>(registers.rax);
    const bool interrupted = static_cast<long>(registers.orig_rax) >= 0 && result >= kFirst && result <= kLast;
    return interrupted || code_.at(task, registers.rip).is_system_call;
  }

  void note(pid_t task, const user_regs_struct& registers) {
    const Operands& operands = code_.at(task, registers.rip);
    ++found_.instructions;
    for (const auto& [memory, bytes] : operands.memory) {
      const auto address = address_of(memory, registers, registers.rip + operands.length);
      if (!address || bytes < kMinBytes) continue;
      ++found_.accesses;
      if (*address / kLine != (*address + bytes - 1) / kLine) ++found_.across_lines;
    }
  }

  bool kill_all() {
    for (const pid_t task : tasks_) kill(task, SIGKILL);
    while (waitpid(-1, nullptr, __WALL) > 0) {
    }
    return false;
  }

  pid_t program_;
  std::set<pid_t> tasks_;
  pid_t last_ = 0, interrupted_ = 0;
  std::optional<int> status_;
  SampledAccesses found_;
  Code code_;
};

/// Between fork and exec only async-signal-safe calls are made, since this process may have threads.
[[noreturn]] void become(char* const* argv, int input, int seized) {
  char byte = 0;
  const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(input, STDIN_FILENO);
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) dup2(null, stream);
  if (read(seized, &byte, 1) == 1) execvp(argv[0], argv);
  _exit(127);
}

/// A process that waits to become the program until it is traced; -1 where it can't be.
pid_t start_traced(const std::vector<std::string>& argv) {
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const int input = open_input_again();
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    close(input);
    return -1;
  }
  const pid_t program = fork();
  if (program == 0) {
    close(ends[1]);
    become(words.data(), input, ends[0]);
  }
  close(input);
  constexpr long kOptions = PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_EXITKILL;
  const bool is_traced = program > 0 && ptrace(PTRACE_SEIZE, program, 0, kOptions) == 0;
  if (is_traced) static_cast<void>(!write(ends[1], "", 1));
  close(ends[0]);
  close(ends[1]);
  if (is_traced) return program;
  if (program > 0) waitpid(program, nullptr, 0);  // the closed pipe ends it
  return -1;
}

}  // namespace

std::optional<SampledAccesses> sample_accesses(const std::vector<std::string>& argv, double seconds_limit, int status) {
  const pid_t program = start_traced(argv);
  if (program < 0) return std::nullopt;
  Tracer tracer(program);
  if (!tracer.run(seconds_limit) || tracer.status() != status) return std::nullopt;
  return tracer.found();
}

}  // namespace gable::perf

#else

namespace gable::perf {

std::optional<SampledAccesses> sample_accesses(const std::vector<std::string>&, double, int) { return std::nullopt; }

}  // namespace gable::perf

#endif
