// What a device reaches at its best: the roofs that its plans are held against. A backend measures its own device with
// loops of its own, since only it can write them; one that has none says so with an empty list.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace gable {

/// One measured limit, with what its vendor's formula says beside it.
struct Ceiling {
  enum class Kind {
    compute,    ///< FLOP/s of `unit` on operands of `dtype`
    bandwidth,  ///< B/s of the memory level `level`
    rate,       ///< anything else, in `unit`
  };
  std::string name{};  ///< unique on its device: "wgmma f16", "dram copy", "launch and wait"
  Kind kind = Kind::rate;
  std::string unit{};             ///< compute: the arithmetic unit, "fma" or "wgmma"; rate: "B/s", "instruction/s", "s"
  std::string dtype{};            ///< compute: "f32", "tf32", "f16", "bf16"
  std::string level{};            ///< bandwidth: "dram", "l2" or "l1"; a GPU's shared memory is its l1
  std::size_t level_bytes = 0;    ///< bandwidth: how much fits the level; 0 where that is not known
  std::vector<double> samples{};  ///< in the order in which they were taken; not empty
  double theoretical = 0;         ///< the formula's value; 0 where it is not known
  std::string formula{};          ///< with its numbers, or why there is none
  std::string note{};             ///< what is counted, and what was peculiar
};

struct CeilingRequest {
  bool quick = false;                                   ///< fewer and shorter runs
  std::function<void(const std::string& next)> next{};  ///< called before each measurement, if set
};

}  // namespace gable
