// A block computes a slab of groups: about 32 input channels, lines of 128 bytes, or one wider group. It loads the
// slab's weights and a tile of input with its halo into shared memory once, [image][row][column][channel], each group
// padded to whole vectors of four. A thread has 8 neighbouring pixels of a row and 4 or 8 output channels of one group:
// 32 or 64 accumulators. One step is a tap and four input channels: 8 vectors of input and 4 or 8 of weights for 128 or
// 256 FMA. Filters three wide with unit steps read a row of 10 vectors for three taps. Neighbouring threads have
// neighbouring channels, then rows, whose pitch keeps their vectors in different banks. Several blocks of a
// multiprocessor overlap loads, products and stores.
#include "cuda/grouped/grouped.h"

#include <algorithm>
#include <stdexcept>

#include "cuda/common/async_copy.cuh"
#include "cuda/common/check.h"
#include "cuda/common/conv_dims.h"
#include "cuda/common/coverage.h"
#include "cuda/common/overlapped_launch.cuh"
#include "cuda/common/packed_weights.h"
#include "cuda/common/vector_access.cuh"
#include "cuda/grouped/grouped_tile.h"

namespace gable::cuda {
namespace {

constexpr int kPixels = kGroupedPixels, kVector = 4;

struct GroupedArguments {
  ConvDims d;
  GroupedSlab slab;
  GroupedTile tile;
  int groups, weight_floats;
  Activation activation;
};

/// Where a block's tile lies, in output pixels, and its channels.
struct GroupedPlace {
  int image, row, column;
  int group, part;  // first group; the part of each group's output channels
};

__device__ __forceinline__ GroupedPlace place_of(const GroupedArguments& a) {
  int tile = static_cast<int>(blockIdx.x);
  GroupedPlace p;
  p.column = tile % a.tile.tiles_x * a.tile.strips * kPixels;
  tile /= a.tile.tiles_x;
  p.row = tile % a.tile.tiles_y * a.tile.rows;
  p.image = tile / a.tile.tiles_y * a.tile.images;
  const int slab = static_cast<int>(blockIdx.y);
  p.part = slab % a.slab.parts;
  p.group = slab / a.slab.parts * a.slab.groups;
  return p;
}

/// Weights as [tap][input channel][the slab's output channels]. Groups past the last one get zeros.
__device__ __forceinline__ void load_weights(const GroupedArguments& a, const GroupedPlace& p, const float* packed,
                                             float* to) {
  const GroupedSlab& s = a.slab;
  const int lane_outputs = s.group_lanes * s.out, outputs = s.lanes() * s.out, vectors = outputs / kVector;
  const int rows = a.d.r * a.d.s * s.padded_c;
  for (int at = static_cast<int>(threadIdx.x); at < rows * vectors; at += static_cast<int>(blockDim.x)) {
    const int row = at / vectors, output = at % vectors * kVector;
    const int group = output / lane_outputs, k = p.part * lane_outputs + output % lane_outputs;
    const bool valid = p.group + group < a.groups && k < s.padded_k;
    const float* const from = packed + (static_cast<std::int64_t>(p.group + group) * rows + row) * s.padded_k + k;
    copy_async<16>(to + row * outputs + output, valid ? from : packed, valid);
  }
}

/// A walk over a tile's input pixels by the threads that load the same channels.
struct PixelWalk {
  int line, column;  // line: row of an image, images one after the other

  __device__ PixelWalk(const GroupedTile& t, int first) : line(first / t.in_columns), column(first % t.in_columns) {}
  __device__ void advance(const GroupedTile& t, int step) {
    column += step;
    while (column >= t.in_columns) {
      column -= t.in_columns;
      ++line;
    }
  }
};

/// The input of the slab's groups, `count` (1 or 4) channels a copy. Zeros for padding and groups past the last one.
template <int count>
__device__ __forceinline__ void load_input(const GroupedArguments& a, const GroupedPlace& p, const float* x,
                                           float* to) {
  const ConvDims& d = a.d;
  const GroupedTile& t = a.tile;
  const int slab_c = a.slab.groups * a.slab.padded_c;
  const int copies = a.slab.groups * d.group_c / count;  // of a pixel
  const int mine = static_cast<int>(threadIdx.x) % copies * count;
  const int step = static_cast<int>(blockDim.x) / copies;
  const int first = static_cast<int>(threadIdx.x) / copies;
  if (first >= step) return;
  const int group = mine / d.group_c;
  const bool exists = p.group + group < a.groups;
  float* const channel_to = to + group * a.slab.padded_c + mine % d.group_c;
  const float* const from = x + p.group * d.group_c + mine;
  const int row = p.row * d.stride_h - d.pad_top, column = p.column * d.stride_w - d.pad_left;
  for (PixelWalk at(t, first); at.line < t.images * t.in_rows; at.advance(t, step)) {
    const int image = t.images == 1 ? 0 : at.line / t.in_rows;
    const int h = row + at.line - image * t.in_rows, w = column + at.column, n = p.image + image;
    const bool inside = exists && n < d.n && h >= 0 && h < d.h && w >= 0 && w < d.w;
    const float* const pixel = from + (static_cast<std::int64_t>(n * d.h + h) * d.w + w) * d.c;
    copy_async<4 * count>(channel_to + at.line * t.pitch + at.column * slab_c, inside ? pixel : x, inside);
  }
}

__device__ __forceinline__ float element(const float4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/// Products of four input channels of one tap: `pixels[stride * i]` is what output pixel i reads.
template <int out>
__device__ __forceinline__ void multiply(const float4* pixels, const float* weights, int pitch,
                                         float (&sums)[kPixels][out]) {
#pragma unroll
  for (int c = 0; c < kVector; ++c) {
    float w[out];
#pragma unroll
    for (int k = 0; k < out; k += kVector) {
      const float4 v = *reinterpret_cast<const float4*>(weights + c * pitch + k);
      w[k] = v.x, w[k + 1] = v.y, w[k + 2] = v.z, w[k + 3] = v.w;
    }
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
#pragma unroll
      for (int k = 0; k < out; ++k) sums[i][k] = fmaf(element(pixels[i], c), w[k], sums[i][k]);
    }
  }
}

/// All products of a thread. `input`: its group's first channel under the first tap of its first pixel.
template <int out, bool three_wide>
__device__ __forceinline__ void multiply_taps(const GroupedArguments& a, const float* input, const float* weights,
                                              float (&sums)[kPixels][out]) {
  const ConvDims& d = a.d;
  const int slab_c = a.slab.groups * a.slab.padded_c, outputs = a.slab.lanes() * out;
  const int tap_floats = a.slab.padded_c * outputs;
  for (int r = 0; r < d.r; ++r) {
    const float* const row = input + r * d.dilation_h * a.tile.pitch;
    if constexpr (three_wide) {
      constexpr int kWide = 3;
#pragma unroll 1
      for (int c = 0; c < a.slab.padded_c; c += kVector) {
        float4 pixels[kPixels + kWide - 1];
#pragma unroll
        for (int i = 0; i < kPixels + kWide - 1; ++i) {
          pixels[i] = *reinterpret_cast<const float4*>(row + i * slab_c + c);
        }
#pragma unroll
        for (int s = 0; s < kWide; ++s) {
          multiply<out>(pixels + s, weights + (r * kWide + s) * tap_floats + c * outputs, outputs, sums);
        }
      }
    } else {
      for (int s = 0; s < d.s; ++s) {
        const float* const first = row + s * d.dilation_w * slab_c;
        const float* const tap = weights + (r * d.s + s) * tap_floats;
#pragma unroll 1
        for (int c = 0; c < a.slab.padded_c; c += kVector) {
          float4 pixels[kPixels];
#pragma unroll
          for (int i = 0; i < kPixels; ++i) {
            pixels[i] = *reinterpret_cast<const float4*>(first + i * d.stride_w * slab_c + c);
          }
          multiply<out>(pixels, tap + c * outputs, outputs, sums);
        }
      }
    }
  }
}

template <int out>
__device__ __forceinline__ void store_pixels(const GroupedArguments& a, const float* bias, float* to, int k,
                                             int columns, float (&sums)[kPixels][out], int channel) {
  float added[out];
  const bool vectors = a.d.group_k % kVector == 0;
#pragma unroll
  for (int i = 0; i < out; ++i) added[i] = bias != nullptr && k + i < a.d.group_k ? __ldg(bias + channel + i) : 0.0f;
#pragma unroll
  for (int i = 0; i < kPixels; ++i) {
    if (i >= columns) return;
    finish_all(sums[i], added, a.activation);
    float* const pixel = to + static_cast<std::int64_t>(i) * a.d.k;
#pragma unroll
    for (int j = 0; j < out; j += kVector) {
      if (vectors) {
        if (k + j < a.d.group_k) {
          *reinterpret_cast<float4*>(pixel + j) =
              make_float4(sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]);
        }
        continue;
      }
#pragma unroll
      for (int e = j; e < j + kVector; ++e) {
        if (k + e < a.d.group_k) pixel[e] = sums[i][e];
      }
    }
  }
}

/// Grid: x the tiles of pixels, y the slabs and their parts.
template <int out, bool three_wide>
__global__ void __launch_bounds__(kGroupedMostThreads, 2)
    grouped_kernel(const __grid_constant__ GroupedArguments a, const float* __restrict__ x,
                   const float* __restrict__ packed, const float* __restrict__ bias, float* __restrict__ y) {
  extern __shared__ float4 memory[];
  float* const weights = reinterpret_cast<float*>(memory);
  float* const input = weights + a.weight_floats;
  const GroupedPlace place = place_of(a);
  const GroupedTile& t = a.tile;
  const GroupedSlab& s = a.slab;
  if (s.padded_c != a.d.group_c) {  // zeros beside each group's channels: what lies there is multiplied by zero weights
    for (int at = static_cast<int>(threadIdx.x); at < t.images * t.in_rows * t.pitch;
         at += static_cast<int>(blockDim.x))
      input[at] = 0.0f;
    __syncthreads();
  }
  wait_for_previous_kernel();
  load_weights(a, place, packed, weights);
  if (a.d.group_c % kVector == 0) {
    load_input<kVector>(a, place, x, input);
  } else {
    load_input<1>(a, place, x, input);
  }
  commit_copies();
  wait_copies<0>();
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % s.lanes(), at = static_cast<int>(threadIdx.x) / s.lanes();
  const int lines = t.images * t.rows, strip = at / lines, line = at % lines;
  const int image = line / t.rows, row = line % t.rows, group = lane / s.group_lanes;
  const int column = place.column + strip * kPixels;
  const int k = (place.part * s.group_lanes + lane % s.group_lanes) * out;
  if (strip >= t.strips || column >= a.d.out_w || place.row + row >= a.d.out_h || place.image + image >= a.d.n ||
      place.group + group >= a.groups || k >= a.d.group_k) {
    return;
  }
  const float* const mine = input + (image * t.in_rows + row * a.d.stride_h) * t.pitch +
                            (strip * kPixels * a.d.stride_w * s.groups + group) * s.padded_c;
  float sums[kPixels][out] = {};
  multiply_taps<out, three_wide>(a, mine, weights + lane * out, sums);
  const int channel = (place.group + group) * a.d.group_k + k;
  const std::int64_t pixel =
      (static_cast<std::int64_t>(place.image + image) * a.d.out_h + place.row + row) * a.d.out_w + column;
  store_pixels<out>(a, bias, y + pixel * a.d.k + channel, k, a.d.out_w - column, sums, channel);
}

using Kernel = void (*)(GroupedArguments, const float*, const float*, const float*, float*);

bool is_three_wide(const Conv2dProblem& p) { return p.s == 3 && p.stride_w == 1 && p.dilation_w == 1; }

Kernel kernel_of(const Conv2dProblem& p, const GroupedSlab& slab) {
  if (slab.out == 8) return is_three_wide(p) ? grouped_kernel<8, true> : grouped_kernel<8, false>;
  return is_three_wide(p) ? grouped_kernel<4, true> : grouped_kernel<4, false>;
}

std::optional<GroupedCut> cut_of(const Conv2dProblem& p, const cudaDeviceProp& device) {
  return find_grouped_cut(p, device.multiProcessorCount, static_cast<int>(device.sharedMemPerBlockOptin));
}

GroupedCut checked_cut_of(const Conv2dProblem& p, const cudaDeviceProp& device) {
  const std::optional<GroupedCut> cut = cut_of(p, device);
  if (!cut) throw std::invalid_argument("no tile of the grouped kernel fits the problem");
  return *cut;
}

double seconds_of(const GroupedCut& cut) {
  constexpr double kClock = 1.7e9;  // of an H200 under load
  return cut.cycles / kClock;
}

class GroupedPlan final : public PackedOrderPlan {
 public:
  GroupedPlan(const Conv2dProblem& p, const GroupedCut& cut, const cudaDeviceProp& device)
      : PackedOrderPlan(p, packed_order(p, kVector, cut.slab.out)),
        cut_(cut),
        kernel_(kernel_of(p, cut.slab)),
        overlaps_(pays_to_overlap(cut.blocks, seconds_of(cut), device)) {
    // All plans of a kernel share this attribute: the most that any of them may take.
    GABLE_CUDA_CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel_),
                                          cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(device.sharedMemPerBlockOptin)));
  }

  Conv2dDescription description() const override;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override;

 private:
  GroupedCut cut_;
  Kernel kernel_;
  bool overlaps_;
};

Conv2dDescription GroupedPlan::description() const {
  const GroupedSlab& s = cut_.slab;
  const GroupedTile& t = cut_.tile;
  return {.kernel = "grouped",
          .tile = "tiles of " + std::to_string(t.rows) + "x" + std::to_string(t.strips * kPixels) + " pixels" +
                  (t.images > 1 ? " of " + std::to_string(t.images) + " images" : "") + " x " +
                  std::to_string(s.groups) + " groups, 8 pixels x " + std::to_string(s.out) + " channels a thread",
          .staging = "input and weights in " + std::to_string(cut_.shared_bytes()) + " bytes of shared memory",
          .fusion = "bias and activation in registers"};
}

void GroupedPlan::run(const void* x, const void* packed, const float* bias, void* y, void*, cudaStream_t stream) const {
  const GroupedArguments a{.d = conv_dims(problem()),
                           .slab = cut_.slab,
                           .tile = cut_.tile,
                           .groups = static_cast<int>(problem().groups),
                           .weight_floats = cut_.weight_floats,
                           .activation = problem().activation};
  const int slabs = a.slab.slabs * a.slab.parts;
  const dim3 grid(static_cast<unsigned>(cut_.blocks / slabs), static_cast<unsigned>(slabs));
  launch(kernel_, {grid, cut_.threads, cut_.shared_bytes(), overlaps_}, stream, a, static_cast<const float*>(x),
         static_cast<const float*>(packed), bias, static_cast<float*>(y));
  note_path(a.slab.out == 8 ? Path::grouped_8_channels : Path::grouped_4_channels);
  note_path(is_three_wide(problem()) ? Path::grouped_three_wide : Path::grouped_taps);
  note_path(a.d.group_c % kVector == 0 ? Path::grouped_vectors : Path::grouped_elements);
}

}  // namespace

std::string Grouped::refusal(const Conv2dProblem& p, const cudaDeviceProp& device) {
  if (p.dtype != DType::f32 || p.math == Math::tf32) {
    return std::string(name_of(p.dtype)) + (p.math == Math::tf32 ? " as tf32" : "") +
           ": it computes f32 on the f32 units";
  }
  if (p.groups == 1 || p.group_c() == 1) {
    return std::to_string(p.group_c()) + " input channels in " + (p.groups == 1 ? "one group" : "each group") +
           "; it takes several groups of several channels";
  }
  if (!p.pool.none()) return "max-pool 2x2; it takes none";
  constexpr std::int64_t kMaxSlabs = 65535;
  if (p.groups > kMaxSlabs) return std::to_string(p.groups) + " groups; it takes at most " + std::to_string(kMaxSlabs);
  if (cut_of(p, device)) return "";
  return "groups of " + std::to_string(p.group_c()) + " channels with a filter of " + std::to_string(p.r) + "x" +
         std::to_string(p.s) + " do not fit shared memory";
}

std::unique_ptr<Conv2dPlan> Grouped::make(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return std::make_unique<GroupedPlan>(problem, checked_cut_of(problem, device), device);
}

double Grouped::seconds(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return seconds_of(checked_cut_of(problem, device));
}

}  // namespace gable::cuda
