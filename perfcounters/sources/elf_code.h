// The machine code of an ELF file at an address in it, as objdump prints addresses: the segments that are loaded to be
// executed say where in the file it lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace gable::perf {

class ElfCode {
 public:
  /// Throws std::runtime_error, with the reason, for a file that can't be read or is no ELF file of x86-64.
  explicit ElfCode(const std::string& file);

  /// Up to `count` bytes from `address` on; fewer at the end of a segment, none outside of every segment.
  std::vector<std::uint8_t> bytes(std::uint64_t address, std::size_t count);

 private:
  struct Segment {
    std::uint64_t address = 0, offset = 0, size = 0;
  };
  std::ifstream stream_;
  std::vector<Segment> segments_;
};

}  // namespace gable::perf
