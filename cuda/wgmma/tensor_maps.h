// Tensor maps (descriptors of the copy engine) of the wgmma kernel's input and output.
#pragma once

#include <cuda.h>

#include <gable/problem.h>
#include "cuda/wgmma/geometry.h"

namespace gable::cuda {

/// Makes the device's context the thread's: tensor maps need one, and a thread has it only once it has used the device.
void bind_context();

/// The problem's channels are whole vectors of 16 bytes. Throws std::invalid_argument where the driver refuses the map.
CUtensorMap wgmma_input_map(const Conv2dProblem& problem, const WgmmaGeometry& geometry);
CUtensorMap wgmma_output_map(const Conv2dProblem& problem, const WgmmaGeometry& geometry);

/// A tensor in NCHW.
struct MapPlanes {
  std::int64_t n, channels, plane;
};
/// A box of an image.
struct PlanesBox {
  int pixels, channels;
};
/// Planes are whole 16 bytes. Coordinates are pixel, channel and image.
CUtensorMap planes_map(DType type, const MapPlanes& planes, const PlanesBox& box, const char* which);

/// Points a map at a tensor; `which` names the tensor in errors.
void set_map_address(CUtensorMap& map, const void* address, const char* which);

}  // namespace gable::cuda
