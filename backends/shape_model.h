// Predicted times of convolutions, by which `auto` compares devices: T = roof * inefficiency.
//
//   roof          what arithmetic and memory allow: max(multiply-adds / rate, bytes / bandwidth) + a call
//   inefficiency  exp(weights . features) of the layer's class of shape: a power law of its extents, fitted to measured
//                 layers and kept within what was seen there. bench/fit_choice.py fits and writes the tables.
//
// The rates are nominal, except for a host's arithmetic, which is measured: on a faster core, calls and memory take a
// larger share of a layer's time, and devices differ in these. All devices of a host share its rates.
#pragma once

#include <gable/ops.h>
#include <gable/problem.h>

#include <array>
#include <optional>
#include <span>

namespace gable {

/// Nominal rates of a device.
struct Rates {
  double multiply_adds = 1;  ///< a second, in the op's arithmetic
  double bytes = 1;          ///< a second, from and to memory
  double call = 0;           ///< seconds of a call that computes nothing
  int threads = 1;           ///< that share the work; 1 on a GPU
};

/// The arithmetic rate of a core of this CPU over that of the CPU on which the fits were made. 1 with AMX: the clock of
/// the CPU of those fits varies more than this within seconds, and the fits hardly depend on it.
double host_speed(bool amx);

/// How many times as long as when its fits were made a CPU with AMX takes for everything, by the measured rate of a
/// core: its clock and what shares its cores vary that much. It changes nothing between devices of the host, but
/// decides whether an op is worth a trip to a GPU. 1 without AMX, where host_speed() says it.
double host_slowness(bool amx);

/// Whether cores of this host_speed() are closer to those of HostFits::wide than to those of HostFits::vectors.
bool is_wide(double speed);

/// Rates of `threads` cores that are `speed` times as fast as those of the fits: AVX-512 rates, with `amx` AMX rates
/// for 16-bit types.
Rates host_rates(DType dtype, int threads, bool amx, double speed = 1);

/// `vectors`: weights times the channels of one pixel for each image, as at the end of networks.
enum class ShapeClass { depthwise, grouped, few_channels, pointwise, spatial, vectors };
inline constexpr int kShapeClasses = 6;
inline constexpr int kShapeFeatures = 31;

ShapeClass shape_class(const Conv2dProblem& problem);

/// The fitted power law of one class.
struct ShapeFit {
  std::array<double, kShapeFeatures> weights{};
  double least = 0, most = 0;  ///< of log(inefficiency), as measured
};

/// By ShapeClass.
using ClassFits = std::array<ShapeFit, kShapeClasses>;

/// The fits of one device, by load (one image on one thread, on two, on more threads, several images), layout (NHWC,
/// NCHW) and type (f32, bf16, f16).
using ShapeFits = std::array<std::array<std::array<ClassFits, 3>, 2>, 4>;

/// The fits of a CPU device, one for each kind of core.
struct HostFits {
  const ShapeFits& vectors;  ///< CPUs without matrix units
  const ShapeFits& wide;     ///< the same with cores that issue two full AVX-512 vectors a cycle
  const ShapeFits& amx;      ///< CPUs with AMX tiles for bf16
};

/// Seconds of a run of a convolution.
double modelled_seconds(const Conv2dProblem& problem, const Rates& rates, const ShapeFits& fits);

/// Seconds of an op on this machine's cores: modelled_seconds() for ops with weights, the time to move their bytes for
/// other ops.
double modelled_host_seconds(const Op& op, int threads, const HostFits& fits);

/// The same of one convolution.
double modelled_host_seconds(const Conv2dProblem& problem, int threads, const HostFits& fits);

/// The least time of an op.
double roof_seconds(const Op& op, const Rates& rates);

}  // namespace gable
