// Names of regions as they are written into files: sanitised by libgable_listen.so, and again by the reader of the
// files, since anyone may have written them.
#pragma once

#include <cstddef>

namespace gable::listen {

/// Bytes of the UTF-8 character that `text` starts with; 0 if it is none. It reads no further than a zero.
inline std::size_t utf8_bytes(const char* text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t bytes = byte(0) < 0x80 ? 1 : byte(0) < 0xc2 ? 0 : byte(0) < 0xe0 ? 2 : byte(0) < 0xf0 ? 3 : 4;
  if (byte(0) > 0xf4) return 0;
  for (std::size_t i = 1; i < bytes; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  if (byte(0) == 0xe0 && byte(1) < 0xa0) return 0;  // longer than needed
  if (byte(0) == 0xed && byte(1) > 0x9f) return 0;  // a surrogate
  if (byte(0) == 0xf0 && byte(1) < 0x90) return 0;
  if (byte(0) == 0xf4 && byte(1) > 0x8f) return 0;
  return bytes;
}

/// Copies at most `most` bytes of `name`, whole characters, and a zero into `to`: '/' becomes '|', a control character
/// a blank, a byte that is no UTF-8 a '?'. True if the whole name fitted.
inline bool copy_name(const char* name, char* to, std::size_t most) {
  std::size_t at = 0;
  while (*name != '\0') {
    const std::size_t bytes = utf8_bytes(name);
    const std::size_t taken = bytes == 0 ? 1 : bytes;
    if (at + taken > most) break;
    if (bytes > 1) {
      for (std::size_t i = 0; i < bytes; ++i) to[at + i] = name[i];
    } else {
      const auto c = static_cast<unsigned char>(*name);
      to[at] = bytes == 0 ? '?' : c == '/' ? '|' : c < 0x20 || c == 0x7f ? ' ' : *name;
    }
    at += taken;
    name += taken;
  }
  to[at] = '\0';
  return *name == '\0';
}

}  // namespace gable::listen
