// A description of a convolution's plan: the text of explain().
#pragma once

#include <cstdint>
#include <string>

namespace gable::cpu {

/// A number in a description or a refusal.
inline std::string text(std::int64_t value) { return std::to_string(value); }

struct Conv2dDescription {
  std::string kernel;    // "direct", "depthwise_staged", ...
  std::string target;    // "avx512", ...
  std::string tile;      // register tile: rows × pixels × lanes
  std::string blocking;  // out tile, in tile, chunk, unit of work
  std::string fusion;    // where pool, bias and activation happen, and whether the input is staged
  int threads;
};

}  // namespace gable::cpu
