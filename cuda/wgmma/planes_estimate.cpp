// See planes_estimate.h.
#include "cuda/wgmma/planes_estimate.h"

#include <algorithm>
#include <cmath>

#include "cuda/wgmma/planes_geometry.h"

namespace gable::cuda::wgmma::planes {

namespace {

/// Cycles of accesses that are no tensor copies: latency of a step, and of each that a thread loads and stores.
struct PieceCosts {
  double step, load, store;
};
constexpr PieceCosts kCopiedPieces{.step = 169, .load = 23.6, .store = 16.9};
/// Single pixels. Fitted to every tile of 90 layers: picks take 1.046 of the best; to one half of them, 1.047 and 1.044
/// on the other.
constexpr PieceCosts kSinglePieces{.step = 550, .load = 19.3, .store = 23.7};

}  // namespace

/// Launch, then memory beside the busiest multiprocessor. A step of its blocks takes as long as the latency of one
/// block's, or as what all load, copy and multiply; then they store. A wave that is not full takes as long as a full
/// one. Cycles where nothing else is said. Fitted to every tile of 203 layers on an H200: the tile or the other kernel
/// that is picked takes 1.032 of the best one's time; fitted to one half of them, 1.043 and 1.028 on the other.
double seconds_of(const Conv2dProblem& p, int slices, int chunks, const cudaDeviceProp& device) {
  constexpr double kHertz = 1.755e9, kLaunch = 1.04e-6;
  constexpr double kL2Bytes = 8e12, kDeviceBytes = 3.3e12, kKept = 50e6;  // a second; of tensors that stay in L2
  constexpr double kLoadBytes = 119;                                      // from L2 to a multiprocessor, in a cycle
  constexpr double kStep = 129;                                           // latency of a step by tensor copies
  constexpr double kProducts = 115;                                       // of a slice and chunk in a step
  constexpr double kFirst = 196, kEpilogue = 496, kEpilogueOfChunk = 307;
  constexpr double kTensorStore = 60;  // of a slice and chunk, of all blocks
  constexpr double kOverlap = 1.2;     // of computing and moving: 1 would be their sum, infinity the longer one
  const std::int64_t share = ceil_div(tiles_of(p, slices, chunks), std::int64_t{device.multiProcessorCount});
  const auto residents = static_cast<std::int64_t>(residents_of(p, slices, chunks, device));
  const auto waves = static_cast<double>(ceil_div(share, residents));
  const double at_once = static_cast<double>(share) / waves;
  const int bytes = access_bytes(p);
  const PieceCosts pieces = bytes == 2 ? kSinglePieces : kCopiedPieces;
  const double pieces_of_chunk = bytes == kTensor ? 0 : static_cast<double>(kChunkBytes) / bytes / kWarpgroup;
  const double copies = pieces.load * pieces_of_chunk * chunks;
  const double latency = (bytes == kTensor ? kStep : pieces.step) + copies;
  const double busy = std::max(kProducts * slices * chunks, stage_bytes(slices, chunks) / kLoadBytes) + copies;
  const double stores = slices * chunks * (bytes == kTensor ? kTensorStore : pieces.store * pieces_of_chunk);
  const double steps = static_cast<double>(steps_of(p)) * std::max(latency, at_once * busy);
  const double cycles = waves * (kFirst + steps + kEpilogue + kEpilogueOfChunk * chunks + at_once * stores);
  const auto elements = static_cast<double>(p.n * p.h * p.w * (p.c + p.k) + p.c * p.k);
  const double moved = elements * static_cast<double>(size_of(p.dtype));
  const double computing = cycles / kHertz, moving = moved / kL2Bytes + std::max(0.0, moved - kKept) / kDeviceBytes;
  return kLaunch + std::pow(std::pow(computing, kOverlap) + std::pow(moving, kOverlap), 1 / kOverlap);
}

}  // namespace gable::cuda::wgmma::planes
