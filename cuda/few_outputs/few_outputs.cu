// See few_outputs.h. Shared memory of a block: bias, weights as [row of the window][column][channel], and for each warp
// the sums of a row of pixels as [column][pixel]. A column is tap × output channels + output channel. A step of a warp:
// 64 bytes of channels of 32 (or 16) pixels, whose loads were issued a step before, and 4 products for each row of
// the window and tile of columns.
#include "cuda/few_outputs/few_outputs.h"

#include <numeric>
#include <utility>

#include "cuda/common/async_copy.cuh"
#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/common/overlapped_launch.cuh"
#include "cuda/gemm/implicit.cuh"
#include "cuda/gemm/pixel_chunk.cuh"

namespace gable::cuda {
namespace {

constexpr int kThreads = 32 * kFewOutputsWarps;

template <typename T>
struct FewOutputsArguments {
  FewOutputsView view;
  int c, k, r, s;
  int pixels, output_pixels;  // of all images
  int chunks, pitch_bytes;    // of 64 bytes of channels; of a column of weights in shared memory
  int load_bytes;             // the widest access that divides a pixel's channels: 16, 8, 4 or 2
  int outputs, rows;          // of a strip
  int strips_across, bands;
  int parts;  // warps that share a strip
  bool bias;
  Activation activation;
  const T *x, *packed;
  const float* bias_values;
  T* y;
};

/// Where a strip begins.
struct Strip {
  int image, row, column;  // of the output; row of phase + phases × the strip's row
};

template <typename T>
__device__ __forceinline__ Strip strip_at(const FewOutputsArguments<T>& a, int index) {
  const int lines = index / a.strips_across, bands = a.bands * a.view.phases;
  const int image = lines / bands, band = lines - image * bands;
  const int of_phase = band / a.view.phases;
  return {.image = image,
          .row = of_phase * a.rows * a.view.phases + (band - of_phase * a.view.phases),
          .column = (index - lines * a.strips_across) * a.outputs};
}

/// 64 bytes of channels of a row of pixels: those of lane / 4 + 8 i.
template <int pixels>
struct RowChunk {
  uint4 rows[pixels / 8];
};

/// Loads the chunks of a part of the channels, row by row down the strip.
template <typename T, int pixels>
class StripLoader {
 public:
  static constexpr int kElements = 16 / static_cast<int>(sizeof(T));

  __device__ __forceinline__ StripLoader(const FewOutputsArguments<T>& a, const Strip& strip, int part)
      : a_(a), part_(part) {
    const FewOutputsView& v = a.view;
    row_ = strip.row * v.top_step - v.pad_top;
    image_ = strip.image;
    rows_left_ = strip.image < v.images ? (a.rows - 1) * v.every + a.r : 0;
    column_ = strip.column * (v.column_step == 1 ? v.across : v.column_step) - v.pad_left + lane() / 4 * v.column_step;
    begin_row();
  }

  /// The next chunk; zeros behind the strip's last row.
  __device__ __forceinline__ RowChunk<pixels> next() {
    RowChunk<pixels> chunk;
    const T* const from = a_.x + offset_;
    if (a_.load_bytes == 16) {
      load<16>(from, chunk);
    } else if (a_.load_bytes == 8) {
      load<8>(from, chunk);
    } else if (a_.load_bytes == 4) {
      load<4>(from, chunk);
    } else if constexpr (sizeof(T) == 2) {
      load<2>(from, chunk);
    }
    advance();
    return chunk;
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  template <int bytes>
  __device__ __forceinline__ void load(const T* from, RowChunk<pixels>& chunk) const {
    const int apart = 8 * a_.view.column_step * a_.c;
#pragma unroll
    for (int i = 0; i < pixels / 8; ++i) {
      chunk.rows[i] = load_pieces<bytes>(from + i * apart, (live_ >> i & 1) != 0 ? channels_left_ : 0);
    }
  }

  __device__ __forceinline__ void begin_row() {
    const FewOutputsView& v = a_.view;
    const int pixel = (image_ * v.h + row_) * v.w;
    const bool inside = rows_left_ > 0 && row_ >= 0 && row_ < v.h;
    const auto end = static_cast<unsigned>(inside ? min(v.w, a_.pixels - pixel) : 0);
    live_ = 0;
#pragma unroll
    for (int i = 0; i < pixels / 8; ++i) {
      live_ |= static_cast<unsigned>(column_ + 8 * i * v.column_step) < end ? 1u << i : 0u;
    }
    chunk_ = part_;
    const int channel = part_ * (kChunkBytes / static_cast<int>(sizeof(T))) + lane() % 4 * kElements;
    channels_left_ = a_.c - channel;
    offset_ = (pixel + column_) * a_.c + channel;
  }

  __device__ __forceinline__ void advance() {
    const int step = a_.parts * (kChunkBytes / static_cast<int>(sizeof(T)));
    chunk_ += a_.parts;
    channels_left_ -= step;
    offset_ += step;
    if (chunk_ < a_.chunks) return;
    row_ += a_.view.row_step;
    --rows_left_;
    begin_row();
  }

  const FewOutputsArguments<T>& a_;
  int image_, row_, rows_left_, column_, part_;  // column of the lane's first pixel
  int chunk_ = 0, channels_left_ = 0, offset_ = 0;
  unsigned live_ = 0;  // a bit for each of the lane's pixels: it lies in the image
};

/// Adds the products of a chunk of pixels and the weights of every row of the window. The rows of a window with fewer
/// rows than `window_rows` are the last ones.
template <typename T, int window_rows, int column_tiles, int row_tiles>
__device__ __forceinline__ void multiply(const RowChunk<16 * row_tiles>& x, const unsigned char* weights, int pitch,
                                         int r, float (&sums)[window_rows][row_tiles][column_tiles][4]) {
  unsigned a[row_tiles][2][4];
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) row_operands<T>(x.rows[2 * i], x.rows[2 * i + 1], a[i]);
#pragma unroll
  for (int row = 0; row < window_rows; ++row) {
    const int tap = row - (window_rows - r);
    if (tap < 0) continue;
#pragma unroll
    for (int j = 0; j < column_tiles; ++j) {
      const uint4 b = *reinterpret_cast<const uint4*>(weights + (tap * column_tiles + j) * 8 * pitch);
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) {
        multiply_add<T>(sums[row][i][j], a[i][0], b.x, b.y);
        multiply_add<T>(sums[row][i][j], a[i][1], b.z, b.w);
      }
    }
  }
}

/// A lane's sums to shared memory, as [column][pixel].
template <int column_tiles, int row_tiles>
__device__ __forceinline__ void share_sums(const float (&sums)[row_tiles][column_tiles][4], float* to) {
  constexpr int kPitch = few_outputs_sums_pitch(16 * row_tiles);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float* const mine = to + lane % 4 * 2 * kPitch + lane / 4;
#pragma unroll
  for (int j = 0; j < column_tiles; ++j) {
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) mine[(8 * j + e % 2) * kPitch + 16 * i + e / 2 * 8] = sums[i][j][e];
    }
  }
}

/// Warps that share a strip are those of a block, or one.
__device__ __forceinline__ void wait_for_sharing(int parts) {
  if (parts == 1) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

/// A row of a strip's outputs: the first pixel of y, and how many there are.
struct OutputRow {
  int first, count;
};

template <typename T>
__device__ __forceinline__ OutputRow output_row(const FewOutputsArguments<T>& a, const Strip& strip, int row) {
  const FewOutputsView& v = a.view;
  if (strip.image >= v.images || row >= v.out_h) return {0, 0};
  const int first = (strip.image * v.out_h + row) * v.out_w + strip.column;
  return {first, min(min(a.outputs, v.out_w - strip.column), a.output_pixels - first)};
}

/// Bias, activation and stores of sums that are outputs as they are: one tap, at most eight output channels.
template <typename T, int row_tiles>
__device__ __forceinline__ void store_sums(const FewOutputsArguments<T>& a, const OutputRow& row, const float* bias,
                                           const float (&sums)[row_tiles][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, channel = lane % 4 * 2;
  if (channel >= a.k) return;
  const bool pair = channel + 1 < a.k;
  const float bias0 = bias[channel], bias1 = pair ? bias[channel + 1] : 0.0f;
#pragma unroll
  for (int i = 0; i < 2 * row_tiles; ++i) {
    const int pixel = 8 * i + lane / 4;
    if (pixel >= row.count) break;
    T* const to = a.y + static_cast<std::int64_t>(row.first + pixel) * a.k + channel;
    const float values[2] = {activate(sums[i / 2][i % 2 * 2] + bias0, a.activation),
                             activate(sums[i / 2][i % 2 * 2 + 1] + bias1, a.activation)};
    if (a.k % 2 == 0) {
      store_vector(to, values);
    } else {
      to[0] = from_f32<T>(values[0]);
      if (pair) to[1] = from_f32<T>(values[1]);
    }
  }
}

/// Stores up to four neighbouring channels of a pixel, `left` of them.
template <typename T>
__device__ __forceinline__ void store_channels(T* to, const float (&values)[4], int left, int all) {
  if (all % 4 == 0) {
    store_vector(to, values);
  } else if (all % 2 == 0) {
    store_vector(to, {values[0], values[1]});
    if (left > 2) store_vector(to + 2, {values[2], values[3]});
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < left) to[i] = from_f32<T>(values[i]);
    }
  }
}

/// Adds up the columns' sums of a row of pixels, a pixel a lane, four channels at a time, with bias and activation.
/// `sums` are those of the first of the warps that share the strip, `part_floats` apart.
template <typename T, int pixels>
__device__ __forceinline__ void add_columns(const FewOutputsArguments<T>& a, const OutputRow& row, int part,
                                            const float* bias, const float* sums, int part_floats) {
  constexpr int kPitch = few_outputs_sums_pitch(pixels);
  const int lane = static_cast<int>(threadIdx.x) % 32, from_tap_to_tap = a.k * kPitch + a.view.apart;
  if (lane >= row.count) return;
  T* const to = a.y + static_cast<std::int64_t>(row.first + lane) * a.k;
#pragma unroll 1
  for (int channel = 4 * part; channel < a.k; channel += 4 * a.parts) {
    const float4 biases = *reinterpret_cast<const float4*>(bias + channel);
    float values[4] = {biases.x, biases.y, biases.z, biases.w};
    const int left = a.k - channel;
    const float* from = sums + channel * kPitch + lane * a.view.across;
#pragma unroll 1
    for (int p = 0; p < a.parts; ++p, from += part_floats) {
      const float* tap = from;
#pragma unroll 1
      for (int i = 0; i < a.s; ++i, tap += from_tap_to_tap) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (e < left) values[e] += tap[e * kPitch];
        }
      }
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) values[e] = activate(values[e], a.activation);
    store_channels(to + channel, values, left, a.k);
  }
}

/// Packed weights lie as in shared memory.
template <typename T>
__device__ __forceinline__ void load_weights(const FewOutputsArguments<T>& a, int columns, float* bias,
                                             unsigned char* weights) {
  const int vectors = a.r * columns * a.pitch_bytes / 16;
  const auto* const from = reinterpret_cast<const uint4*>(a.packed);
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < vectors; i += kThreads)
    copy_async<16>(weights + i * 16, from + i, true);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < (a.k + 3) / 4 * 4; i += kThreads) {
    bias[i] = a.bias && i < a.k ? __ldg(a.bias_values + i) : 0.0f;
  }
  commit_copies();
  wait_copies<0>();
  __syncthreads();
}

/// The sums of each row of outputs become those of the row above in the window; the lowest row begins with zeros.
template <int window_rows, int row_tiles, int column_tiles>
__device__ __forceinline__ void next_row(float (&sums)[window_rows][row_tiles][column_tiles][4]) {
#pragma unroll
  for (int row = window_rows - 1; row >= 0; --row) {
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
      for (int j = 0; j < column_tiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[row][i][j][e] = row > 0 ? sums[row > 0 ? row - 1 : 0][i][j][e] : 0.0f;
      }
    }
  }
}

template <typename T, int tile_index>
__global__ void __launch_bounds__(kThreads, kFewOutputsTiles[tile_index].resident())
    few_outputs_kernel(__grid_constant__ const FewOutputsArguments<T> a) {
  constexpr FewOutputsTile kTile = kFewOutputsTiles[tile_index];
  constexpr int kRows = kTile.window_rows, kColumnTiles = kTile.column_tiles, kPixels = kTile.pixels();
  constexpr int kRowTiles = kPixels / 16, kSums = 8 * kColumnTiles * few_outputs_sums_pitch(kPixels);
  extern __shared__ uint4 memory[];
  auto* const bias = reinterpret_cast<float*>(memory);
  auto* const weights = reinterpret_cast<unsigned char*>(bias + (a.k + 3) / 4 * 4);
  auto* const all_sums = reinterpret_cast<float*>(weights + a.r * 8 * kColumnTiles * a.pitch_bytes);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int part = warp % a.parts;
  const Strip strip = strip_at(a, static_cast<int>(blockIdx.x) * (kFewOutputsWarps / a.parts) + warp / a.parts);
  float* const sums_of_strip = all_sums + (warp - part) * kSums;
  wait_for_previous_kernel();
  StripLoader<T, kPixels> loader(a, strip, part);
  RowChunk<kPixels> ahead = loader.next();
  load_weights(a, 8 * kColumnTiles, bias, weights);

  const unsigned char* const mine = weights + lane / 4 * a.pitch_bytes + lane % 4 * 16;
  const bool outputs_as_they_are = kColumnTiles == 1 && a.s == 1 && a.parts == 1;
  float sums[kRows][kRowTiles][kColumnTiles][4] = {};
  int output = strip.row, until_output = a.r - 1;
#pragma unroll 1
  for (int outputs_left = a.rows; outputs_left > 0;) {
#pragma unroll 1
    for (int chunk = part; chunk < a.chunks; chunk += a.parts) {
      const RowChunk<kPixels> now = ahead;
      ahead = loader.next();
      multiply<T, kRows, kColumnTiles, kRowTiles>(now, mine + chunk * kChunkBytes, a.pitch_bytes, a.r, sums);
    }
    if (until_output == 0) {
      const OutputRow row = output_row(a, strip, output);
      if (outputs_as_they_are) {
        if constexpr (kColumnTiles == 1) {
          float done[kRowTiles][4];
#pragma unroll
          for (int i = 0; i < 4 * kRowTiles; ++i) done[i / 4][i % 4] = sums[kRows - 1][i / 4][0][i % 4];
          store_sums(a, row, bias, done);
        }
      } else {
        wait_for_sharing(a.parts);  // for the outputs before
        share_sums<kColumnTiles, kRowTiles>(sums[kRows - 1], sums_of_strip + part * kSums);
        wait_for_sharing(a.parts);
        add_columns<T, kPixels>(a, row, part, bias, sums_of_strip, kSums);
      }
      output += a.view.phases;
      --outputs_left;
      until_output = a.view.every;
    }
    --until_output;
    next_row(sums);
  }
}

int element_bytes(const Conv2dProblem& p) { return static_cast<int>(size_of(p.dtype)); }

/// Weights as [row of the window][column][channel], zeros past the last column and channel. f32 is rounded to tf32.
template <typename T>
__global__ void pack_kernel(Conv2dProblem p, int columns, int pitch, const T* weights, WeightStrides strides,
                            T* packed) {
  const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (index >= p.r * columns * pitch) return;
  const int line = index / pitch, channel = index - line * pitch, row = line / columns, column = line - row * columns;
  const int tap = column / static_cast<int>(p.k), out = column - tap * static_cast<int>(p.k);
  T value = from_f32<T>(0.0f);
  if (tap < p.s && channel < p.c) {
    value = weights[out * strides.out + channel * strides.in + row * strides.row + tap * strides.column];
  }
  if constexpr (sizeof(T) == 4) value = round_to_tf32(value);
  packed[index] = value;
}

template <typename T, std::size_t... tiles>
auto kernel_of(int tile, std::index_sequence<tiles...>) -> void (*)(FewOutputsArguments<T>) {
  constexpr void (*kKernels[])(FewOutputsArguments<T>) = {few_outputs_kernel<T, static_cast<int>(tiles)>...};
  return kKernels[tile];
}

template <typename T>
auto kernel_of(int tile) {
  return kernel_of<T>(tile, std::make_index_sequence<kFewOutputsTiles.size()>{});
}

class FewOutputsPlan final : public Conv2dPlan {
 public:
  FewOutputsPlan(const Conv2dProblem& problem, const cudaDeviceProp& device, const FewOutputsOverrides& forced);

  Conv2dDescription description() const override;
  Packing packing() const override;
  std::size_t packed_bytes() const override;
  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const override;
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override;

 private:
  void note_paths() const;
  template <typename T>
  FewOutputsArguments<T> arguments(const void* x, const void* packed, const float* bias, void* y) const;

  const FewOutputsTile& tile() const { return kFewOutputsTiles[static_cast<std::size_t>(cut_.tile)]; }
  int columns() const { return 8 * tile().column_tiles; }

  Conv2dProblem problem_;
  FewOutputsView view_;
  FewOutputsCut cut_;
  int load_bytes_;
  LaunchShape shape_;
};

FewOutputsPlan::FewOutputsPlan(const Conv2dProblem& problem, const cudaDeviceProp& device,
                               const FewOutputsOverrides& forced)
    : problem_(problem),
      view_(few_outputs_view(problem)),
      cut_(choose_few_outputs(problem, device, forced)),
      load_bytes_(static_cast<int>(std::gcd(problem.c * element_bytes(problem), std::int64_t{16}))) {
  with_type(problem.dtype, [&](auto zero) {
    GABLE_CUDA_CHECK(cudaFuncSetAttribute(kernel_of<decltype(zero)>(cut_.tile),
                                          cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(device.sharedMemPerBlockOptin)));
  });
  const std::int64_t blocks = ceil_div(cut_.strips, kFewOutputsWarps / cut_.parts);
  shape_ = {.grid = dim3(static_cast<unsigned>(blocks)),
            .threads = kThreads,
            .shared_bytes = cut_.shared_bytes,
            .overlaps = pays_to_overlap(blocks, cut_.seconds, device)};
}

Conv2dDescription FewOutputsPlan::description() const {
  std::string tile_text = "strips of " + std::to_string(cut_.outputs) + " x " + std::to_string(cut_.rows) + " pixels";
  tile_text += cut_.parts == 1 ? " a warp" : " of " + std::to_string(cut_.parts) + " warps";
  return {.kernel = "few_outputs",
          .tile = tile_text + ", " + std::to_string(columns()) + " columns",
          .staging = "pixels from memory to registers in loads of " + std::to_string(load_bytes_) +
                     " bytes, weights in shared memory",
          .fusion = "bias and activation as columns are added up"};
}

Packing FewOutputsPlan::packing() const {
  return packing_of(problem_, "few_outputs", {columns(), problem_.math == Math::tf32 ? 1 : 0});
}

std::size_t FewOutputsPlan::packed_bytes() const {
  return static_cast<std::size_t>(problem_.r) * static_cast<std::size_t>(columns() * chunk_pitch(cut_.chunks));
}

void FewOutputsPlan::pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const {
  constexpr int kPackThreads = 256;
  const int element = element_bytes(problem_);
  const auto blocks =
      static_cast<unsigned>(ceil_div(static_cast<std::int64_t>(packed_bytes()) / element, std::int64_t{kPackThreads}));
  with_type(problem_.dtype, [&](auto zero) {
    using T = decltype(zero);
    pack_kernel<T><<<blocks, kPackThreads, 0, stream>>>(problem_, columns(), chunk_pitch(cut_.chunks) / element,
                                                        static_cast<const T*>(weights), strides,
                                                        static_cast<T*>(packed));
  });
  check_launch("few_outputs: pack");
}

void FewOutputsPlan::note_paths() const {
  note_path(tile().window_rows == 1   ? Path::few_outputs_1_row
            : tile().window_rows == 3 ? Path::few_outputs_3_rows
            : tile().window_rows == 5 ? Path::few_outputs_5_rows
                                      : Path::few_outputs_7_rows);
  note_path(tile().pixels() == 32 ? Path::few_outputs_32_pixels : Path::few_outputs_16_pixels);
  note_path(load_bytes_ == 16  ? Path::few_outputs_vectors
            : load_bytes_ == 8 ? Path::few_outputs_pieces_8
            : load_bytes_ == 4 ? Path::few_outputs_pieces_4
                               : Path::few_outputs_pieces_2);
  if (cut_.parts > 1) note_path(Path::few_outputs_parts);
}

template <typename T>
FewOutputsArguments<T> FewOutputsPlan::arguments(const void* x, const void* packed, const float* bias, void* y) const {
  const Conv2dProblem& p = problem_;
  const auto i = [](std::int64_t value) { return static_cast<int>(value); };
  return {.view = view_,
          .c = i(p.c),
          .k = i(p.k),
          .r = i(p.r),
          .s = i(p.s),
          .pixels = i(p.n * p.h * p.w),
          .output_pixels = i(p.n * p.ho * p.wo),
          .chunks = cut_.chunks,
          .pitch_bytes = chunk_pitch(cut_.chunks),
          .load_bytes = load_bytes_,
          .outputs = cut_.outputs,
          .rows = cut_.rows,
          .strips_across = cut_.strips_across,
          .bands = cut_.bands,
          .parts = cut_.parts,
          .bias = p.bias,
          .activation = p.activation,
          .x = static_cast<const T*>(x),
          .packed = static_cast<const T*>(packed),
          .bias_values = bias,
          .y = static_cast<T*>(y)};
}

void FewOutputsPlan::run(const void* x, const void* packed, const float* bias, void* y, void*,
                         cudaStream_t stream) const {
  with_type(problem_.dtype, [&](auto zero) {
    using T = decltype(zero);
    cuda::launch(kernel_of<T>(cut_.tile), shape_, stream, arguments<T>(x, packed, bias, y));
  });
  note_paths();
}

}  // namespace

std::string FewOutputs::missing(const cudaDeviceProp& device) { return mma_missing(device); }

std::string FewOutputs::refusal(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return few_outputs_refusal(problem, device);
}

double FewOutputs::seconds(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return choose_few_outputs(problem, device).seconds;
}

std::unique_ptr<Conv2dPlan> FewOutputs::make(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return std::make_unique<FewOutputsPlan>(problem, device, FewOutputsOverrides{});
}

std::unique_ptr<Conv2dPlan> FewOutputs::make(const Conv2dProblem& problem, const cudaDeviceProp& device,
                                             const FewOutputsOverrides& forced) {
  return std::make_unique<FewOutputsPlan>(problem, device, forced);
}

}  // namespace gable::cuda
