// See elf_code.h.
#include "perfcounters/sources/elf_code.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace gable::perf {
namespace {

template <class T>
bool read_at(std::ifstream& stream, std::uint64_t offset, T& value) {
  stream.clear();
  stream.seekg(static_cast<std::streamoff>(offset));
  stream.read(reinterpret_cast<char*>(&value), sizeof value);
  return stream.good();
}

}  // namespace

ElfCode::ElfCode(const std::string& file) : stream_(file, std::ios::binary) {
  if (!stream_) throw std::runtime_error(fmt::format("{}: {}", file, std::strerror(errno)));
  Elf64_Ehdr header{};
  if (!read_at(stream_, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    throw std::runtime_error(file + ": no ELF file");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64)
    throw std::runtime_error(file + ": machine code of another processor than x86-64");
  if (header.e_phentsize != sizeof(Elf64_Phdr))
    throw std::runtime_error(
        fmt::format("{}: program headers of {} bytes; ELF has {}", file, header.e_phentsize, sizeof(Elf64_Phdr)));
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!read_at(stream_, header.e_phoff + i * sizeof segment, segment))
      throw std::runtime_error(file + ": cut off within its program headers");
    if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0)
      segments_.push_back({.address = segment.p_vaddr, .offset = segment.p_offset, .size = segment.p_filesz});
  }
}

std::vector<std::uint8_t> ElfCode::bytes(std::uint64_t address, std::size_t count) {
  for (const Segment& segment : segments_) {
    if (address < segment.address || address - segment.address >= segment.size) continue;
    const std::uint64_t inside = address - segment.address;
    std::vector<std::uint8_t> code(std::min<std::uint64_t>(count, segment.size - inside));
    stream_.clear();
    stream_.seekg(static_cast<std::streamoff>(segment.offset + inside));
    stream_.read(reinterpret_cast<char*>(code.data()), static_cast<std::streamsize>(code.size()));
    code.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, stream_.gcount())));
    return code;
  }
  return {};
}

}  // namespace gable::perf
