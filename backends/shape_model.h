// Predicted times of convolutions, by which `auto` compares devices: T = roof * inefficiency.
//
//   roof          what arithmetic and memory allow: max(multiply-adds / rate, bytes / bandwidth) + a call
//   inefficiency  exp(weights . features) of the layer's class of shape: a power law of its extents, fitted to measured
//                 layers and kept within what was seen there. bench/fit_choice.py fits and writes the tables.
//
// The rates are nominal, but for a host's arithmetic, which is measured: layers that a faster core does in less time
// cost relatively more in calls and memory, and devices differ in that. On a host all devices share the rates.
#pragma once

#include <gable/ops.h>
#include <gable/problem.h>

#include <array>
#include <optional>
#include <span>

namespace gable {

/// What a device reaches, nominally.
struct Rates {
  double multiply_adds = 1;  ///< a second, in the arithmetic of the op
  double bytes = 1;          ///< a second, from and to memory
  double call = 0;           ///< seconds of a call that computes nothing
  int threads = 1;           ///< that share the work; on a GPU 1
};

/// Whether this CPU multiplies bf16 in AMX' tiles.
bool host_has_amx();

/// Arithmetic of this CPU's cores over that of the CPU that the fits come from. With AMX 1: those fits come from a CPU
/// whose clock changes by more within seconds, and they hardly depend on it.
double host_speed(bool amx);

/// Whether cores of this host_speed() are rather like those of HostFits::wide than those of HostFits::vectors.
bool is_wide(double speed);

/// Rates of `threads` cores that are `speed` times as fast as those of the fits: of AVX-512, and of AMX for 16-bit
/// types where `amx`.
Rates host_rates(DType dtype, int threads, bool amx, double speed = 1);

/// `vectors`: weights times the channels of one pixel for each image, as at the end of networks.
enum class ShapeClass { depthwise, grouped, few_channels, pointwise, spatial, vectors };
inline constexpr int kShapeClasses = 6;
inline constexpr int kShapeFeatures = 20;

ShapeClass shape_class(const Conv2dProblem& problem);

/// The fitted power law of one class.
struct ShapeFit {
  std::array<double, kShapeFeatures> weights{};
  double least = 0, most = 0;  ///< of log(inefficiency), as measured
};

/// By ShapeClass.
using ClassFits = std::array<ShapeFit, kShapeClasses>;

/// The fits of one device, by load (one image on one thread, one image on several threads, several images), layout
/// (NHWC, NCHW) and type (f32, bf16, f16).
using ShapeFits = std::array<std::array<std::array<ClassFits, 3>, 2>, 3>;

/// Those of a device on this machine's cores.
struct HostFits {
  const ShapeFits& vectors;  ///< of CPUs without matrix units
  const ShapeFits& wide;     ///< the same where cores do two full vectors of AVX-512 a cycle
  const ShapeFits& amx;      ///< with tiles of AMX for bf16
};

/// Seconds of a run of a convolution.
double modelled_seconds(const Conv2dProblem& problem, const Rates& rates, const ShapeFits& fits);

/// Seconds of an op on this machine's cores: modelled_seconds() of ops with weights, the time of their bytes for
/// others.
double modelled_host_seconds(const Op& op, int threads, const HostFits& fits);

/// The least time of an op.
double roof_seconds(const Op& op, const Rates& rates);

}  // namespace gable
