// See planes_geometry.h.
#include "cuda/wgmma/planes_geometry.h"

#include <algorithm>
#include <numeric>

namespace gable::cuda::wgmma::planes {

int access_bytes(const Conv2dProblem& p) { return static_cast<int>(2 * std::gcd(p.h * p.w, std::int64_t{8})); }

std::int64_t slices_of(const Conv2dProblem& p) { return round_up(ceil_div(p.k, kChannels), 2); }
std::int64_t steps_of(const Conv2dProblem& p) { return ceil_div(p.c, kChannels); }
std::int64_t chunks_of_image(const Conv2dProblem& p) { return ceil_div(p.h * p.w, kPixels); }

std::int64_t tiles_of(const Conv2dProblem& p, int slices, int chunks) {
  return ceil_div(p.k, slices * kChannels) * ceil_div(p.n * chunks_of_image(p), chunks);
}

int residents_of(const Conv2dProblem& p, int slices, int chunks, const cudaDeviceProp& device) {
  const bool many = tiles_of(p, slices, chunks) > device.multiProcessorCount;
  return many ? most_residents(slices, chunks, access_bytes(p)) : 1;
}

int stages_of(const Conv2dProblem& p, int slices, int chunks, const cudaDeviceProp& device) {
  // A consumer releases a stage in the step after, and CopyingLoader announces that one two steps late. Two hold the
  // outputs of a tile.
  const int least = access_bytes(p) == kTensor ? 2 : 4;
  const int bytes = residents_of(p, slices, chunks, device) == 1
                        ? static_cast<int>(device.sharedMemPerBlockOptin)
                        : static_cast<int>(device.sharedMemPerMultiprocessor / 2 - device.reservedSharedMemPerBlock);
  const int fit = (bytes - kAlignmentBytes - kWgmmaBarrierBytes) / stage_bytes(slices, chunks);
  return std::max(least, std::min({fit, kMaxStages, static_cast<int>(steps_of(p))}));
}

}  // namespace gable::cuda::wgmma::planes
