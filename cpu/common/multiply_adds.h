// How fast this core multiplies and adds, measured.
#pragma once

namespace gable::cpu {

/// Fused multiply-adds of f32 a second from registers, in the widest vectors that the kernels use: the fastest of many
/// short runs in about `seconds`, on the core that runs the caller.
double measured_multiply_adds(double seconds);

}  // namespace gable::cpu
