// See conv2d.h. The plan chooses tile and kernel once; a run sets the tensors' addresses and launches.
#include "cuda/wgmma/conv2d.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "cuda/common/check.h"
#include "cuda/common/coverage.h"
#include "cuda/common/padded_nhwc.h"
#include "cuda/wgmma/arguments.h"
#include "cuda/wgmma/bf16_parts.h"
#include "cuda/wgmma/launch.h"
#include "cuda/wgmma/pack.h"
#include "cuda/wgmma/tensor_maps.h"

namespace gable::cuda {
namespace {

const void* item_kernel_of(DType type, int pixels, int consumers) {
  switch (type) {
    case DType::f16:
      return wgmma_item_kernel_f16(pixels, consumers);
    case DType::bf16:
      return wgmma_item_kernel_bf16(pixels, consumers);
    default:
      return wgmma_item_kernel_tf32(pixels, consumers);
  }
}

const void* kernel_of(DType type, const WgmmaGeometry& g) {
  const int pixels = g.tile.pixels;
  if (g.schedule == WgmmaSchedule::promoted) return wgmma_kernel_promoted(pixels);
  if (g.steps.parts > 1) return wgmma_kernel_parts(pixels);
  if (g.grid.one_item) return item_kernel_of(type, pixels, wgmma_consumers(g));
  switch (type) {
    case DType::f16:
      return wgmma_kernel_f16(pixels, g.stages.common);
    case DType::bf16:
      return wgmma_kernel_bf16(pixels, g.stages.common);
    default:
      return wgmma_kernel_tf32(pixels, g.stages.common);
  }
}

void note_paths(DType type, const WgmmaGeometry& g) {
  note_path(g.schedule == WgmmaSchedule::promoted ? Path::wgmma_promoted
            : g.steps.parts > 1                   ? Path::wgmma_parts
            : type == DType::f16                  ? Path::wgmma_f16
            : type == DType::bf16                 ? Path::wgmma_bf16
                                                  : Path::wgmma_tf32);
  note_path(g.tile.pixels == 256   ? Path::wgmma_256_pixels
            : g.tile.pixels == 224 ? Path::wgmma_224_pixels
            : g.tile.pixels == 192 ? Path::wgmma_192_pixels
            : g.tile.pixels == 160 ? Path::wgmma_160_pixels
            : g.tile.pixels == 128 ? Path::wgmma_128_pixels
            : g.tile.pixels == 112 ? Path::wgmma_112_pixels
            : g.tile.pixels == 96  ? Path::wgmma_96_pixels
                                   : Path::wgmma_64_pixels);
  note_path(g.tile.by_tap ? Path::wgmma_gathered : g.tile.flat ? Path::wgmma_flat : Path::wgmma_halo);
  if (g.tile.flat && g.box.width < g.tile.pixels) note_path(Path::wgmma_short_boxes);
  if (g.schedule == WgmmaSchedule::own_tiles) note_path(Path::wgmma_own_tiles);
  if (g.schedule == WgmmaSchedule::one_tile) note_path(Path::wgmma_one_tile);
  if (g.stages.resident_weights) note_path(Path::wgmma_resident_weights);
  if (g.stages.common) note_path(Path::wgmma_common_stages);
  if (g.grid.one_item) note_path(Path::wgmma_one_item);
  if (g.steps.split > 1) note_path(Path::wgmma_split);
  if (g.slices.group_k > 0) note_path(g.slices.windows ? Path::wgmma_group_windows : Path::wgmma_groups);
}

int shared_bytes_of(const cudaDeviceProp& device) { return static_cast<int>(device.sharedMemPerBlockOptin); }

/// Channels in whole vectors of 16 bytes, as tensor copies need them.
Conv2dProblem with_whole_vectors(const Conv2dProblem& p) {
  const std::int64_t vector = 16 / static_cast<std::int64_t>(size_of(p.dtype));
  Conv2dProblem padded = p;
  padded.c = round_up(p.c, vector);
  padded.k = round_up(p.k, vector);
  return padded;
}

/// Which tensors the kernel reads or writes as copies with padded channels, and where those lie in the workspace.
struct Copies {
  bool input = false, output = false;
  std::size_t output_at = 0, bytes = 0;  // the input lies first
};

/// Threads store outputs of any number of channels where a block has one item, so that these need no copy.
bool stores_words(const Conv2dProblem& p, const Conv2dProblem& padded, const WgmmaGeometry& g) {
  return padded.k != p.k && g.grid.one_item;
}

Copies copies_of(const Conv2dProblem& p, const Conv2dProblem& padded, const WgmmaGeometry& g) {
  const auto bytes = [&p](std::int64_t elements) {
    return static_cast<std::size_t>(round_up(elements * static_cast<std::int64_t>(size_of(p.dtype)), 256));
  };
  Copies c;
  c.input = g.steps.parts > 1 || padded.c != p.c;
  c.output = padded.k != p.k && !stores_words(p, padded, g);
  c.output_at = g.steps.parts > 1 ? cut_bytes(p.n * p.h * p.w, p.c, g.steps.parts)
                : c.input         ? bytes(padded.x_elements())
                                  : 0;
  c.bytes = c.output_at + (c.output ? bytes(padded.y_elements()) : 0);
  return c;
}

WgmmaGeometry geometry_of(const Conv2dProblem& padded, const cudaDeviceProp& device, const WgmmaOverrides& overrides) {
  auto geometry = find_wgmma_geometry(padded, device.multiProcessorCount, shared_bytes_of(device), overrides);
  if (!geometry) throw std::invalid_argument("no tile of the wgmma kernel fits the problem");
  return *std::move(geometry);
}

/// Estimated time of a padded copy of `rows` of `count` channels, or back. The launch is fitted to 45 layers of f16,
/// bf16 and tf32 on an H200, the rates to 12 layers of odd channels there: up to 33 MB, read and written, stay in L2.
double copy_seconds(std::int64_t rows, std::int64_t count, std::int64_t padded, DType type) {
  constexpr double kLaunch = 1.42e-6, kInL2 = 6e12, kBeyond = 3.5e12;  // bytes a second
  constexpr double kKept = 34e6, kNothingKept = 48e6;
  const double bytes = static_cast<double>(rows * (count + padded)) * static_cast<double>(size_of(type));
  const double beyond = std::clamp((bytes - kKept) / (kNothingKept - kKept), 0.0, 1.0);
  return kLaunch + bytes * ((1 - beyond) / kInL2 + beyond / kBeyond);
}

/// Estimated time of outputs that threads store one by one, beyond that of tensor copies: cycles of a chunk, and of a
/// thread's word. By 1117 tiles of odd channels.
double word_seconds(const Conv2dProblem& p, const WgmmaGeometry& g) {
  constexpr double kHertz = 1.76e9, kChunk = 60, kWord = 66;
  const std::int64_t outputs = kWgmmaChunk * std::min<std::int64_t>(kWgmmaChannels, p.k);
  const auto words = static_cast<double>(ceil_div(outputs, std::int64_t{wgmma::kWarpgroup}));
  return static_cast<double>(ceil_div(g.tile.pixels, kWgmmaChunk)) * (kChunk + kWord * words) / kHertz;
}

/// Estimated, with the copies that it needs.
double seconds_with(const Conv2dProblem& problem, const Conv2dProblem& padded, const WgmmaGeometry& geometry,
                    const Copies& copies) {
  // With the constants of estimate.cpp, fitted to an H200 in graphs: every kind of tile, f16, bf16 and tf32, batch 1 to
  // 256.
  constexpr double kLaunch = 0.99e-6, kHertz = 1.76e9;
  const auto element = static_cast<double>(size_of(problem.dtype));
  double seconds = kLaunch + geometry.cycles / kHertz;
  if (geometry.steps.parts > 1) {
    // Fitted to half of 247 layers, beside register_tile's times; on the other half the kernel that is picked takes
    // 1.007 of the faster one.
    const auto [cut, share] = geometry.steps.parts == 2 ? std::pair{2.5e-6, 0.91} : std::pair{1e-6, 1.1};
    constexpr double kCutBytesPerSecond = 4e12, kPartBytes = 2;
    const double parts = kPartBytes * geometry.steps.parts * static_cast<double>(round_up(problem.c, kPartChannels));
    const auto pixels = static_cast<double>(problem.n * problem.h * problem.w);
    seconds = share * seconds + cut + pixels * (element * static_cast<double>(problem.c) + parts) / kCutBytesPerSecond;
  } else if (copies.input) {
    seconds += copy_seconds(problem.n * problem.h * problem.w, problem.c, padded.c, problem.dtype);
  }
  if (copies.output) {
    seconds += copy_seconds(problem.n * problem.out_h() * problem.out_w(), problem.k, padded.k, problem.dtype);
  }
  if (stores_words(problem, padded, geometry)) seconds += word_seconds(problem, geometry);
  constexpr double kWithGroups = 1.15;  // measured over estimated, of 21 layers with groups
  return problem.groups > 1 ? kWithGroups * seconds : seconds;
}

/// As geometry_of(), with the copies in view that only some tiles need.
WgmmaGeometry geometry_beside_copies(const Conv2dProblem& problem, const Conv2dProblem& padded,
                                     const cudaDeviceProp& device, WgmmaOverrides overrides) {
  WgmmaGeometry best = geometry_of(padded, device, overrides);
  if (padded.k == problem.k || best.grid.one_item || overrides.one_item == 0) return best;
  overrides.one_item = 1;
  const auto lone = find_wgmma_geometry(padded, device.multiProcessorCount, shared_bytes_of(device), overrides);
  const auto seconds = [&](const WgmmaGeometry& g) {
    return seconds_with(problem, padded, g, copies_of(problem, padded, g));
  };
  return lone && seconds(*lone) < seconds(best) ? *lone : best;
}

/// What split maths add to the description.
std::string parts_text(const Conv2dProblem& p, const WgmmaGeometry& g) {
  const std::size_t moved =
      static_cast<std::size_t>(p.x_elements()) * sizeof(float) + cut_bytes(p.n * p.h * p.w, p.c, g.steps.parts);
  return "; x cut into " + std::to_string(g.steps.parts) + " bf16 parts in the workspace (" +
         std::to_string((moved + 500000) / 1000000) + " MB moved), " +
         std::to_string(g.steps.parts * (g.steps.parts + 1) / 2) + " products a term" +
         (g.schedule == WgmmaSchedule::promoted ? ", summed by the matrix unit in short chunks" : "");
}

class WgmmaPlan final : public Conv2dPlan {
 public:
  /// `padded`: x and y have whole vectors of channels.
  WgmmaPlan(const Conv2dProblem& problem, const cudaDeviceProp& device, const WgmmaOverrides& overrides, bool padded);

  Conv2dDescription description() const override;
  Packing packing() const override {
    const WgmmaSlices& s = geometry_.slices;
    const bool grouped = problem_.groups > 1;  // else slices lie in a row, whatever their number in a tile
    return packing_of(problem_, "wgmma",
                      {wgmma_channel_slices(geometry_), geometry_.steps.parts, wgmma_tap_order(geometry_),
                       grouped ? wgmma_slices_of_tile(geometry_) : 0, grouped ? geometry_.steps.channel_blocks : 0,
                       grouped ? s.width * std::int64_t{1 << 16} + s.parts : 0});
  }
  std::size_t packed_bytes() const override { return wgmma_packed_bytes(geometry_); }
  std::size_t workspace_bytes() const override { return copies_.bytes; }
  void pack(const void* weights, const WeightStrides& strides, void* packed, cudaStream_t stream) const override {
    pack_wgmma_weights(problem_, geometry_, weights, strides, packed, stream);
  }
  void run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
           cudaStream_t stream) const override;

 private:
  /// `x` itself, or its copy in the workspace.
  const void* copied_input(const void* x, unsigned char* workspace, cudaStream_t stream) const;
  void launch(WgmmaArguments& arguments, cudaStream_t stream) const;

  Conv2dProblem problem_;  // the caller's
  Conv2dProblem padded_;   // the kernel's
  WgmmaGeometry geometry_;
  Copies copies_;
  bool stores_words_;
  WgmmaArguments arguments_;
  const void* kernel_;
};

WgmmaPlan::WgmmaPlan(const Conv2dProblem& problem, const cudaDeviceProp& device, const WgmmaOverrides& overrides,
                     bool padded)
    : problem_(problem),
      padded_(with_whole_vectors(problem)),
      geometry_(padded ? geometry_of(padded_, device, overrides)
                       : geometry_beside_copies(problem, padded_, device, overrides)),
      copies_(padded ? Copies{} : copies_of(problem, padded_, geometry_)),
      stores_words_(!padded && stores_words(problem, padded_, geometry_)),
      kernel_(kernel_of(problem.dtype, geometry_)) {
  bind_context();
  arguments_ = wgmma_arguments(padded_, geometry_);
  arguments_.output.channels = static_cast<int>(problem.k);  // channels of the padding have no bias
  GABLE_CUDA_CHECK(cudaFuncSetAttribute(kernel_, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes_of(device)));
}

Conv2dDescription WgmmaPlan::description() const {
  const WgmmaGeometry& g = geometry_;
  const std::string input = g.steps.parts > 1 ? parts_text(problem_, g)
                            : copies_.input   ? "; channels of x padded in a copy"
                                              : "";
  const std::string output = copies_.output  ? "; channels of y padded in a copy"
                             : stores_words_ ? "; y stored element by element"
                                             : "";
  return {.kernel = "wgmma",
          .tile = g.tile_description(),
          .staging = g.staging_description() + input + output,
          .fusion = std::string("bias, activation and max-pool on the sums in registers") +
                    (g.schedule == WgmmaSchedule::promoted ? "" : ", while the other consumer multiplies"),
          .fused = true};
}

const void* WgmmaPlan::copied_input(const void* x, unsigned char* workspace, cudaStream_t stream) const {
  if (!copies_.input) return x;
  const Conv2dProblem& p = problem_;
  const std::int64_t pixels = p.n * p.h * p.w;
  if (geometry_.steps.parts > 1) {
    cut_rows(static_cast<const float*>(x), workspace, pixels, p.c, geometry_.steps.parts, stream);
  } else {
    note_path(Path::wgmma_padded_input);
    copy_rows(x, workspace, pixels, p.c, p.c, padded_.c, static_cast<int>(size_of(p.dtype)), stream);
  }
  return workspace;
}

void WgmmaPlan::launch(WgmmaArguments& arguments, cudaStream_t stream) const {
  // The previous kernel may still be running while this one sets up its barriers; this one waits before it reads.
  std::array<cudaLaunchAttribute, 2> attributes{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(geometry_.steps.split), 1, 1};
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(static_cast<unsigned>(geometry_.grid.ctas));
  launch.blockDim = dim3(static_cast<unsigned>(geometry_.grid.one_item ? wgmma::item_threads(wgmma_consumers(geometry_))
                                                                       : wgmma::kThreads));
  launch.dynamicSmemBytes = static_cast<std::size_t>(wgmma_shared_bytes(geometry_));
  launch.stream = stream;
  launch.attrs = attributes.data();
  launch.numAttrs = geometry_.steps.split > 1 ? 2 : 1;
  void* parameters[] = {&arguments};
  GABLE_CUDA_CHECK(cudaLaunchKernelExC(&launch, kernel_, parameters));
  note_paths(problem_.dtype, geometry_);
}

void WgmmaPlan::run(const void* x, const void* packed, const float* bias, void* y, void* workspace,
                    cudaStream_t stream) const {
  auto* const scratch = static_cast<unsigned char*>(workspace);
  const void* const input = copied_input(x, scratch, stream);
  void* const output = copies_.output ? scratch + copies_.output_at : y;
  WgmmaArguments a = arguments_;
  set_map_address(a.x, input, "the input");
  set_map_address(a.y, output, "the output");
  if (stores_words_) a.output.words = {y, static_cast<int>(problem_.n * problem_.ho * problem_.wo)};
  a.weights = static_cast<const unsigned char*>(packed);
  a.bias = bias;
  launch(a, stream);
  if (!copies_.output) return;
  const Conv2dProblem& p = problem_;
  note_path(Path::wgmma_padded_output);
  copy_rows(output, y, p.n * p.out_h() * p.out_w(), p.k, padded_.k, p.k, static_cast<int>(size_of(p.dtype)), stream);
}

}  // namespace

std::string Wgmma::missing(const cudaDeviceProp& device) {
  if (device.major == 9 && device.minor == 0) return {};
  return "compute capability " + std::to_string(device.major) + "." + std::to_string(device.minor) +
         "; the warpgroup matrix product exists on 9.0 alone";
}

std::string Wgmma::refusal(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  const std::string reason = wgmma_refusal(problem);
  if (!reason.empty()) return reason;
  const Conv2dProblem padded = with_whole_vectors(problem);
  if (has_wgmma_geometry(padded, device.multiProcessorCount, shared_bytes_of(device))) return {};
  return "filter " + std::to_string(problem.r) + "x" + std::to_string(problem.s) +
         ": the input that a tile's taps read does not fit shared memory";
}

double Wgmma::seconds(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  const Conv2dProblem padded = with_whole_vectors(problem);
  const WgmmaGeometry geometry = geometry_beside_copies(problem, padded, device, {});
  return seconds_with(problem, padded, geometry, copies_of(problem, padded, geometry));
}

std::unique_ptr<Conv2dPlan> Wgmma::make(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return make(problem, device, {});
}

std::unique_ptr<Conv2dPlan> Wgmma::make(const Conv2dProblem& problem, const cudaDeviceProp& device,
                                        const WgmmaOverrides& overrides) {
  return std::make_unique<WgmmaPlan>(problem, device, overrides, false);
}

bool Wgmma::takes_padded(const Conv2dProblem& p) {
  const bool in_parts = p.dtype == DType::f32 && p.math != Math::tf32;  // x is cut in a pass anyway
  const Conv2dProblem padded = with_whole_vectors(p);
  return !p.nhwc && !in_parts && (p.pool.none() || p.pool.is_2x2()) && (padded.c != p.c || padded.k != p.k);
}

PixelPitches Wgmma::padded_pitches(const Conv2dProblem& p) {
  const Conv2dProblem padded = with_whole_vectors(p);
  return {.x = padded.c, .y = padded.k};
}

double Wgmma::seconds_padded(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  const Conv2dProblem padded = with_whole_vectors(problem);
  return seconds_with(problem, padded, geometry_of(padded, device, {}), {});
}

std::unique_ptr<Conv2dPlan> Wgmma::make_padded(const Conv2dProblem& problem, const cudaDeviceProp& device) {
  return std::make_unique<WgmmaPlan>(problem, device, WgmmaOverrides{}, true);
}

}  // namespace gable::cuda
