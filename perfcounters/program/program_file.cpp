// See program_file.h.
#include "perfcounters/program/program_file.h"

#include <elf.h>
#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

namespace gable::perf {
namespace {

namespace fs = std::filesystem;

ProgramFile refused(int status, std::string reason) { return {.reason = std::move(reason), .status = status}; }

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

ProgramFile checked(const std::string& file) {
  if (is_folder(file)) return refused(kProgramNotExecutable, fmt::format("'{}' is a folder, not a program", file));
  if (access(file.c_str(), X_OK) != 0)
    return refused(kProgramNotExecutable,
                   fmt::format("'{}' can't be executed ({}); `chmod +x` it, or name its interpreter before it", file,
                               std::strerror(errno)));
  return {.file = file};
}

/// The interpreter in a script's first line; empty for anything else.
std::string interpreter_of(const std::string& file) {
  std::ifstream script(file, std::ios::binary);
  std::string line;
  if (!std::getline(script, line) || line.compare(0, 2, "#!") != 0) return "";
  std::istringstream words(line.substr(2));
  std::string interpreter;
  words >> interpreter;
  return interpreter;
}

/// The dynamic loader that a 64-bit ELF file names, empty if it names none; nothing for other files.
std::optional<std::string> loader_of(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  Elf64_Ehdr header{};
  if (!stream.read(reinterpret_cast<char*>(&header), sizeof(header))) return std::nullopt;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) return std::nullopt;
  if (header.e_phentsize != sizeof(Elf64_Phdr)) return std::nullopt;
  for (int i = 0; i < header.e_phnum; ++i) {
    stream.seekg(static_cast<std::streamoff>(header.e_phoff + static_cast<Elf64_Off>(i) * sizeof(Elf64_Phdr)));
    Elf64_Phdr segment{};
    if (!stream.read(reinterpret_cast<char*>(&segment), sizeof(segment))) return std::nullopt;
    if (segment.p_type != PT_INTERP) continue;
    std::string loader(std::min<std::size_t>(segment.p_filesz, PATH_MAX), '\0');
    stream.seekg(static_cast<std::streamoff>(segment.p_offset));
    if (!stream.read(loader.data(), static_cast<std::streamsize>(loader.size()))) return std::nullopt;
    return loader.substr(0, loader.find('\0'));
  }
  return "";
}

}  // namespace

ProgramFile find_program_file(const std::string& program) {
  if (program.empty()) return refused(kProgramNotFound, "the name of the program is empty");
  if (program.find('/') != std::string::npos) {
    if (exists(program)) return checked(program);
    return refused(kProgramNotFound, fmt::format("'{}': {}", program, std::strerror(errno)));
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/bin:/bin");
  ProgramFile other =
      refused(kProgramNotFound, fmt::format("'{0}' is in no folder of the PATH{1}", program,
                                            exists("./" + program) ? fmt::format("; ./{0} is here", program) : ""));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = (folder.empty() ? "." : folder) + "/" + program;
    if (!exists(file) || is_folder(file)) continue;
    ProgramFile found = checked(file);
    if (found.status == 0) return found;
    other = std::move(found);  // like a shell, goes on searching
  }
  return other;
}

ProgramFile explain_exec(const std::string& file, int error) {
  const std::string interpreter = interpreter_of(file);
  if (error == ENOENT && !interpreter.empty())
    return refused(kProgramNotFound, fmt::format("'{}': its interpreter '{}' does not exist", file, interpreter));
  if (error == ENOENT && exists(file))
    return refused(kProgramNotFound, fmt::format("'{}': the dynamic loader that it names does not exist here", file));
  if (error == ENOEXEC) return refused(kProgramNotExecutable, fmt::format("'{}' is no program of this machine", file));
  if (error == E2BIG)
    return refused(kProgramNotExecutable, fmt::format("'{}': its arguments and environment are too long", file));
  return refused(error == ENOENT ? kProgramNotFound : kProgramNotExecutable,
                 fmt::format("'{}': {}", file, std::strerror(error)));
}

bool is_elf(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::array<char, 4> magic{};
  stream.read(magic.data(), magic.size());
  return std::memcmp(magic.data(), "\177ELF", magic.size()) == 0;
}

bool is_static_program(const std::string& file) {
  const std::optional<std::string> loader = loader_of(file);
  return loader && loader->empty();
}

bool has_foreign_loader(const std::string& file) {
  if (!is_elf(file)) return false;
  const auto name = [](const std::string& loader) { return fs::path(loader).filename(); };
  const std::optional<std::string> loader = loader_of(file), own = loader_of("/proc/self/exe");
  return !loader || (own && !own->empty() && !loader->empty() && name(*loader) != name(*own));
}

}  // namespace gable::perf
