// The file of a program that is to be started: where it is, and why it can't be started, in a shell's exit codes.
#pragma once

#include <string>

namespace gable::perf {

constexpr int kProgramNotFound = 127;
constexpr int kProgramNotExecutable = 126;

/// A program that can be started, or the reason and the exit code of a shell.
struct ProgramFile {
  std::string file{};
  std::string reason{};
  int status = 0;
};

/// Searches the PATH as a shell does, if the name has no '/'.
ProgramFile find_program_file(const std::string& name);

/// Why execve() refused, with this errno, a file that find_program_file() found.
ProgramFile explain_exec(const std::string& file, int error);

bool is_elf(const std::string& file);

/// A 64-bit ELF file that names no dynamic loader.
bool is_static_program(const std::string& file);

/// The program has another dynamic loader than this process, such as musl's or that of 32-bit programs: libraries that
/// were built beside this process can't be loaded into it.
bool has_foreign_loader(const std::string& file);

}  // namespace gable::perf
