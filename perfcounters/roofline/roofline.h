// The roofline model: what a point (W, Q of each level, T) can attain under measured ceilings, what bounds it, and
// whether its numbers are possible. With several memory levels it is the cache-aware model: each level has a slanted
// roof, and the lowest roof at the point's intensities counts.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "perfcounters/ceilings/ceilings.h"

namespace gable::perf {

/// Bytes moved at each level, read plus written; empty where not known.
struct Traffic {
  std::optional<double> dram, l3, l2, l1;
};

struct RooflinePoint {
  double flop = 0;     ///< W; 0 for operations that only move data
  Traffic bytes;       ///< Q
  double seconds = 0;  ///< T
  std::string dtype = "f32";
  int threads = 0;   ///< 0: as many as the ceilings were measured with
  int products = 1;  ///< multiplications for one product: f32 or f16 as bf16 parts needs several
  /// W by the type of its arithmetic: "f64", "f32", "x87", ... Their sum is `flop`. Empty: all of it is `dtype`.
  std::map<std::string, double> flop_by_dtype{};
};

struct RooflineOptions {
  /// T below this, far from every roof, is the cost of a call rather than of its work: starting a team of threads and
  /// joining it costs 5 to 20 us. The caller may pass what it measured for an empty call instead.
  double overhead_seconds = 20e-6;
  double tolerance = 0.02;  ///< fraction by which a number may exceed its ceiling before it is flagged
  /// Why the work or the traffic may be less than `RooflinePoint` says; it is added to the flag of a row above its
  /// roof. Empty if it can't be less.
  std::string work_doubt{}, traffic_doubt{};
};

/// A roof as the least time that it allows the point.
struct Limit {
  std::string bound;  ///< as Verdict's
  std::string roof;   ///< the ceiling, by name
  double value = 0;   ///< of the roof: FLOP/s or B/s
  double least_seconds = 0;
};

struct Verdict {
  double flops = 0;            ///< W / T, FLOP/s
  double attainable = 0;       ///< FLOP/s under the lowest roof at this point's intensities; 0 when W is 0
  double least_seconds = 0;    ///< the time that the lowest roof allows
  double percent_of_roof = 0;  ///< 100 x least_seconds / T
  std::string bound;  ///< "compute", "memory:dram", "memory:l3", "memory:l2", "memory:l1", "overhead"; "" unknown
  std::string roof;   ///< the ceiling that bounds it, by name
  std::vector<Limit> limits;       ///< all roofs, the lowest first: that one bounds it
  std::vector<std::string> flags;  ///< each a violated consistency rule, in words with its numbers
};

/// One roof: the value and the ceiling that gave it; value 0 when there is no such ceiling.
struct Roof {
  double value = 0;
  std::string name;
  std::string doubt{};  ///< why the ceiling may be too low; empty: nothing says so
};

/// The best arithmetic ceiling for operands of `dtype`: its own units or f32's, whichever is higher, since every half
/// precision value can be computed on as f32. f64 without a ceiling of its own has half of f32's, and "x87" has that
/// of scalar f64 without FMA, since it computes one number at a time. Between one thread and all, one thread's value
/// scales up to that of all.
Roof compute_roof(const std::vector<Ceiling>& ceilings, const std::string& dtype, int threads);

/// The best bandwidth of `level` ("l1", "l2", "l3", "dram") over all mixes of reads and stores.
Roof bandwidth_roof(const std::vector<Ceiling>& ceilings, const std::string& level, int threads);

/// Judges one point. Throws std::invalid_argument when seconds <= 0, or flop or a byte count is negative.
Verdict judge(const std::vector<Ceiling>& ceilings, const RooflinePoint& point, const RooflineOptions& options = {});

}  // namespace gable::perf
