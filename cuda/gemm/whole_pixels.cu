// Where output pixels are the input's, a tile's pixels are one run of bytes. Copied in pieces, pixels of 34 or 76 bytes
// take most of implicit_gemm's instructions. Here the run is copied as it lies, in whole 16 bytes, with all of its
// depth at once, and lanes read A's operands as single words, or as halves of words where channels are odd. B comes by
// ldmatrix; the epilogue is implicit_gemm's.
//
// Shared memory: the bias, the run, and weights of all columns, an odd number of 16 bytes from column to column, which
// keeps ldmatrix free of bank conflicts.
#include "cuda/gemm/whole_pixels.cuh"

#include "cuda/common/overlapped_launch.cuh"
#include "cuda/gemm/mma_epilogue.cuh"

namespace gable::cuda {
namespace {

template <typename T>
constexpr int kBytes = static_cast<int>(sizeof(T));

/// Copies `count` elements from a multiple of 16 bytes on.
template <typename T, int threads>
__device__ __forceinline__ void copy_run(const T* from, int count, T* to) {
  constexpr int kElements = 16 / static_cast<int>(sizeof(T));
  const int whole = count / kElements;
  for (int i = static_cast<int>(threadIdx.x); i < whole; i += threads) {
    copy_async<16>(to + i * kElements, from + i * kElements, true);
  }
  const int rest = whole * kElements + static_cast<int>(threadIdx.x);
  if (rest < count) to[rest] = from[rest];
}

/// Weights of the tile's columns, with zeros past the last column and the last channel.
template <typename T, typename Tile>
__device__ __forceinline__ void copy_columns(const MmaArguments<T>& a, int first, unsigned char* to) {
  constexpr int kElements = 16 / static_cast<int>(sizeof(T));
  const ImplicitGemm& g = a.gemm;
  const int pitch = column_pitch_bytes(g.padded_c, kBytes<T>), across = pitch / 16 - 1;
  for (int i = static_cast<int>(threadIdx.x); i < Tile::kColumns * across; i += Tile::kThreads) {
    const int column = i / across, chunk = i - column * across;
    const bool valid = first + column < g.columns && chunk * kElements < g.padded_c;
    const T* const from = a.packed + static_cast<std::int64_t>(first + column) * g.padded_c + chunk * kElements;
    copy_async<16>(to + column * pitch + chunk * 16, valid ? from : a.packed, valid);
  }
}

/// How lanes read A: single f32, words of two channels, or two halves, where a pixel may begin within a word.
enum class PixelWords { singles, pairs, halves };

__host__ __device__ constexpr PixelWords pixel_words(int element, std::int64_t channels) {
  return element == 4 ? PixelWords::singles : channels % 2 == 0 ? PixelWords::pairs : PixelWords::halves;
}

/// A's operand of a product at the lane's row and depth; zeros from `channels` on, which may lie in the next pixel.
template <PixelWords words, typename T>
__device__ __forceinline__ unsigned load_operand(const T* pixel, int depth, int channels) {
  if constexpr (words == PixelWords::singles) {
    return depth < channels ? __float_as_uint(round_to_tf32(to_f32(pixel[depth]))) : 0;
  } else if constexpr (words == PixelWords::pairs) {
    return depth < channels ? *reinterpret_cast<const unsigned*>(pixel + depth) : 0;
  } else {
    const auto* const from = reinterpret_cast<const unsigned short*>(pixel) + depth;
    const unsigned low = depth < channels ? from[0] : 0, high = depth + 1 < channels ? from[1] : 0;
    return low | high << 16;
  }
}

template <PixelWords words, typename T, typename Tile>
__device__ __forceinline__ void multiply_run(const ImplicitGemm& g, const T* run, std::uint32_t b_at,
                                             float (&sums)[Tile::kRowTiles][Tile::kColumnTiles][4]) {
  constexpr int kDepth = 32 / static_cast<int>(sizeof(T));  // of a product
  constexpr int kOfLane = sizeof(T) == 4 ? 1 : 2;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int pitch = column_pitch_bytes(g.padded_c, kBytes<T>);
  const T* const pixel = run + (warp / Tile::kWarpsAcross * Tile::kWarpRows + lane / 4) * g.c;
  for (int k = 0; k < g.c; k += kDepth) {
    unsigned a[Tile::kRowTiles][4], b[Tile::kColumnTiles / 2][4];
    const int depth = k + lane % 4 * kOfLane;
#pragma unroll
    for (int i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {  // 8 rows below, then half of the product's depth
        a[i][j] = load_operand<words>(pixel + (16 * i + j % 2 * 8) * g.c, depth + j / 2 * (kDepth / 2), g.c);
      }
    }
#pragma unroll
    for (int j = 0; j < Tile::kColumnTiles / 2; ++j) {
      load_matrices(b[j], b_at + static_cast<unsigned>(j * 16 * pitch + k * static_cast<int>(sizeof(T))));
    }
#pragma unroll
    for (int i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::kColumnTiles; ++j) {
        multiply_add<T>(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
}

template <typename T, typename Tile, int kResident>
__global__ void __launch_bounds__(Tile::kThreads, kResident)
    whole_pixels_kernel_of(__grid_constant__ const MmaArguments<T> a) {
  extern __shared__ uint4 memory[];
  const ImplicitGemm& g = a.gemm;
  auto* const bias = reinterpret_cast<float*>(memory);
  auto* const run = reinterpret_cast<T*>(bias + Tile::kColumns);
  auto* const weights = reinterpret_cast<unsigned char*>(run) + pixel_run_bytes(Tile::kRows, g.c, kBytes<T>);
  const int across = (g.columns + Tile::kColumns - 1) / Tile::kColumns, tile = static_cast<int>(blockIdx.x);
  const int row = across == 1 ? tile : tile / across;
  const BlockPlace place{.row = row * Tile::kRows, .column = (tile - row * across) * Tile::kColumns};
  wait_for_previous_kernel();
  copy_run<T, Tile::kThreads>(a.x + static_cast<std::int64_t>(place.row) * g.c,
                              min(Tile::kRows, g.rows - place.row) * g.c, run);
  copy_columns<T, Tile>(a, place.column, weights);
  if (threadIdx.x < Tile::kColumns) {
    const int column = place.column + static_cast<int>(threadIdx.x);
    bias[threadIdx.x] = g.bias && column < g.columns ? __ldg(a.bias + column) : 0.0f;
  }
  commit_copies();
  wait_copies<0>();
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int column = warp % Tile::kWarpsAcross * Tile::kWarpColumns + lane % 8 + lane / 16 * 8;
  const std::uint32_t b_at =
      shared_address(weights) +
      static_cast<unsigned>(column * column_pitch_bytes(g.padded_c, kBytes<T>) + lane / 8 % 2 * 16);
  float sums[Tile::kRowTiles][Tile::kColumnTiles][4] = {};
  if constexpr (sizeof(T) == 4) {
    multiply_run<PixelWords::singles, T, Tile>(g, run, b_at, sums);
  } else if (pixel_words(kBytes<T>, g.c) == PixelWords::pairs) {
    multiply_run<PixelWords::pairs, T, Tile>(g, run, b_at, sums);
  } else {
    multiply_run<PixelWords::halves, T, Tile>(g, run, b_at, sums);
  }
  __syncthreads();  // the epilogue's tile takes the place of the run
  store_tile<T, Tile>(a, place, bias, sums, run);
}

template <typename T, typename Tile, int kResident>
WholePixelsKernel<T> compiled() {
  return {whole_pixels_kernel_of<T, Tile, kResident>, Tile::kThreads, Tile::kColumns, mma_epilogue_bytes<T, Tile>(1),
          Tile::kRows};
}

template <typename T, std::size_t... candidates>
WholePixelsKernel<T> kernel_of(const MmaChoice& choice, std::index_sequence<candidates...>) {
  constexpr WholePixelsKernel<T> (*kCompiled[])() = {
      compiled<T, MmaTileOf<candidates, 1>, kMmaCandidates[candidates].residents>...};
  return kCompiled[choice.candidate]();
}

}  // namespace

template <typename T>
int WholePixelsKernel<T>::shared_bytes(const ImplicitGemm& gemm) const {
  const int operands =
      pixel_run_bytes(rows, gemm.c, kBytes<T>) + columns * column_pitch_bytes(gemm.padded_c, kBytes<T>);
  return columns * static_cast<int>(sizeof(float)) + std::max(operands, epilogue_bytes);
}

template <typename T>
WholePixelsKernel<T> whole_pixels_kernel(const MmaChoice& choice) {
  return kernel_of<T>(choice, kEachMmaCandidate);
}

Path whole_pixels_path(const Conv2dProblem& p) {
  switch (pixel_words(p.dtype == DType::f32 ? 4 : 2, p.c)) {
    case PixelWords::singles:
      return Path::implicit_gemm_pixels_of_singles;
    case PixelWords::pairs:
      return Path::implicit_gemm_pixels_of_pairs;
    default:
      return Path::implicit_gemm_pixels_of_halves;
  }
}

template WholePixelsKernel<__half> whole_pixels_kernel(const MmaChoice&);
template WholePixelsKernel<__nv_bfloat16> whole_pixels_kernel(const MmaChoice&);
template WholePixelsKernel<float> whole_pixels_kernel(const MmaChoice&);
template struct WholePixelsKernel<__half>;
template struct WholePixelsKernel<__nv_bfloat16>;
template struct WholePixelsKernel<float>;

}  // namespace gable::cuda
