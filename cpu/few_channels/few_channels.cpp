// Which problems the few-channel kernels take, how they are cut, and the loop over units (image, block of rows).
// A unit's strip and results stay in L1 for small images (wide: 40 KB), in L2 for large ones (lanes: 160 KB).
#include "cpu/few_channels/few_channels.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <stdexcept>

#include "cpu/common/cache.h"
#include "cpu/common/coverage.h"
#include "cpu/common/half.h"
#include "cpu/common/parallel.h"
#include "cpu/common/tiling.h"
#include "cpu/direct/conv2d_kernels.h"

namespace gable::cpu {
namespace {

constexpr std::int64_t kMostChannels = 8;
constexpr std::int64_t kMostSteps = 512;  // the weights of a panel of two vectors then fit L2's share
constexpr std::int64_t kWideUnitFloats = 10 << 10;
constexpr std::int64_t kLanesUnitFloats = 40 << 10;
constexpr std::int64_t kMostThreadFloats = 256 << 10;

std::int64_t pool_side(const Conv2dProblem& p) { return p.pool.none() ? 1 : 2; }
std::int64_t conv_pixels(const Conv2dProblem& p) { return p.out_w() * pool_side(p); }
std::int64_t steps(const Conv2dProblem& p) { return p.c * p.r * p.s; }

/// Wide where its vectors of pixels are fuller than the other's vectors of output channels. A scalar is always full.
bool prefers_wide(const Conv2dProblem& p, int lanes) {
  if (p.k > kFewMaxWideChannels) return false;
  return lanes == 1 || round_up(conv_pixels(p), lanes) * p.k < conv_pixels(p) * round_up(p.k, lanes);
}

std::int64_t widest_tile(const FewChannelsKernels& k, const FewChannelsBlocking& b) {
  return (b.tile_rows == 2 ? k.max_pair_pixels : k.max_pixels)[static_cast<std::size_t>(b.vectors)];
}

std::int64_t conv_rows(const Conv2dProblem& p, const FewChannelsBlocking& b) {
  return round_up(b.unit_rows * pool_side(p), b.tile_rows);
}
std::int64_t strip_rows(const Conv2dProblem& p, const FewChannelsBlocking& b) {
  return (conv_rows(p, b) - 1) * p.stride_h + (p.r - 1) * p.dilation_h + 1;
}

/// Whether a row of the kernel is a run of taps that share broadcasts (shared_taps).
bool shares_taps(const Conv2dProblem& p, const FewChannelsBlocking& b) {
  return !b.wide && b.vectors == 1 && p.stride_w == 1 && p.dilation_w == 1 && (p.s == 3 || p.s == 5);
}

/// Whether a column of the strip holds all channels, as an NHWC row does.
bool interleaved(const Conv2dProblem& p, const FewChannelsBlocking& b) { return p.nhwc && !b.planes; }

void choose_strip(const Conv2dProblem& p, int lanes, FewChannelsBlocking& b) {
  const std::int64_t reach = (p.s - 1) * p.dilation_w;
  b.planes = b.wide || shares_taps(p, b);
  if (b.planes) {
    const std::int64_t pixels = b.wide ? round_up(conv_pixels(p), lanes) : conv_pixels(p);
    b.phases = p.stride_w;
    b.columns = conv_pixels(p) + reach / p.stride_w;
    b.pitch = round_up(b.columns - conv_pixels(p) + pixels, 16);
    b.strip_row = p.c * b.phases * b.pitch;
    b.x_px = 1;
    b.run = shares_taps(p, b) ? p.s : 1;
    return;
  }
  const std::int64_t width = p.nhwc ? p.c : 1;
  b.phases = 1;
  b.columns = ((conv_pixels(p) - 1) * p.stride_w + reach + 1) * width;
  b.pitch = round_up(b.columns, 16);
  b.strip_row = b.pitch * (p.nhwc ? 1 : p.c);
  b.x_px = p.stride_w * width;
  b.run = p.dilation_w == 1 ? width * p.s : width;
}

/// Offsets and size of a thread's part for b.unit_rows rows.
void lay_out(const Conv2dProblem& p, int lanes, FewChannelsBlocking& b) {
  const auto lines = [](std::int64_t floats) { return static_cast<std::size_t>(round_up(floats, 16)); };
  // A wide vector may reach beyond the last column of the last row.
  b.row_offset = lines(strip_rows(p, b) * b.strip_row + lanes);
  b.planes_offset = b.row_offset + lines(p.w * p.c);
  std::int64_t out = 0;
  std::int64_t planes = 0;
  if (b.wide) {
    planes = round_up(conv_rows(p, b) / pool_side(p), 2) * p.k * b.plane_pitch;
    out = p.nhwc ? b.unit_rows * p.out_w() * p.k + lanes : 0;
  } else if (!b.tile_stores) {
    out = b.unit_rows * p.out_w() * round_up(p.k, lanes);
    planes = 2 * kStoreBlockFloats;
  }
  b.out_offset = b.planes_offset + lines(planes);
  b.thread_floats = b.out_offset + lines(out);
}

FewChannelsBlocking choose_blocking(const Conv2dProblem& p, const FewChannelsKernels& kernels, int threads) {
  const int lanes = kernels.lanes;
  FewChannelsBlocking b{};
  b.wide = prefers_wide(p, lanes);
  b.vectors = b.wide ? 1 : std::min<std::int64_t>(kFewMaxVectors, ceil_div(p.k, lanes));
  b.tile_rows = b.wide ? kernels.wide_rows : pool_side(p);
  choose_strip(p, lanes, b);
  b.plane_pitch = round_up(p.out_w(), lanes) + lanes;
  b.tile_stores = !b.wide && p.dtype == DType::f32 && p.nhwc;

  const std::int64_t most = b.wide ? kWideUnitFloats : kLanesUnitFloats;
  const std::int64_t step = std::max<std::int64_t>(1, b.tile_rows / pool_side(p));
  const auto too_large = [&] {
    lay_out(p, lanes, b);
    const bool starves = threads > 1 && p.n * ceil_div(p.out_h(), b.unit_rows) < kUnitsPerThread * threads;
    return starves || static_cast<std::int64_t>(b.thread_floats) > most;
  };
  std::int64_t blocks = 1;
  do {
    b.unit_rows = round_up(ceil_div(p.out_h(), blocks++), step);
  } while (too_large() && b.unit_rows > step);
  b.row_blocks = ceil_div(p.out_h(), b.unit_rows);
  return b;
}

struct Step {
  std::int64_t kh, kw, channel;
};

/// In the order of pack().
std::vector<Step> all_steps(const Conv2dProblem& p, const FewChannelsBlocking& b) {
  std::vector<Step> steps;
  const bool channel_last = interleaved(p, b);
  for (std::int64_t kh = 0; kh < p.r; ++kh) {
    for (std::int64_t i = 0; i < p.c * p.s; ++i) {
      steps.push_back(channel_last ? Step{kh, i / p.c, i % p.c} : Step{kh, i % p.s, i / p.s});
    }
  }
  return steps;
}

/// Where each run of steps begins.
std::vector<std::int32_t> run_offsets(const Conv2dProblem& p, const FewChannelsBlocking& b) {
  std::vector<std::int32_t> offsets;
  const std::vector<Step> steps = all_steps(p, b);
  for (std::size_t i = 0; i < steps.size(); i += static_cast<std::size_t>(b.run)) {
    const std::int64_t column = steps[i].kw * p.dilation_w;
    const std::int64_t in_row = interleaved(p, b)
                                    ? column * p.c + steps[i].channel
                                    : (steps[i].channel * b.phases + column % b.phases) * b.pitch + column / b.phases;
    offsets.push_back(static_cast<std::int32_t>(steps[i].kh * p.dilation_h * b.strip_row + in_row));
  }
  return offsets;
}

struct FewChannelsRun {
  const Conv2dProblem& p;
  const Target& target;
  const FewChannelsKernels& kernels;
  const FewChannelsBlocking& b;
  const std::int32_t *offsets, *pixel_of, *channel_of;
  const void* x;
  const float* packed;
  const float* bias;  // whole vectors, never null
  bool stream;        // y is written past the caches
  void* y;
};

/// One unit of work: its coordinates, and the passes over it.
class Unit {
 public:
  Unit(const FewChannelsRun& run, std::int64_t index, float* workspace)
      : run_(run),
        p_(run.p),
        b_(run.b),
        workspace_(workspace),
        image_(index / b_.row_blocks),
        first_row_(index % b_.row_blocks * b_.unit_rows),
        rows_(std::min(b_.unit_rows, p_.out_h() - first_row_)) {}

  void compute() const {
    stage();
    if (b_.wide) {
      compute_wide();
    } else {
      compute_lanes();
    }
  }

 private:
  const void* x_image() const {
    return static_cast<const char*>(run_.x) +
           image_ * p_.c * p_.h * p_.w * static_cast<std::int64_t>(size_of(p_.dtype));
  }
  /// Where output (row of the unit, column 0, channel) begins.
  void* y_at(std::int64_t row, std::int64_t channel) const {
    const std::int64_t out_row = first_row_ + row;
    const std::int64_t element = p_.nhwc ? ((image_ * p_.out_h() + out_row) * p_.out_w()) * p_.k + channel
                                         : ((image_ * p_.k + channel) * p_.out_h() + out_row) * p_.out_w();
    return static_cast<char*>(run_.y) + element * static_cast<std::int64_t>(size_of(p_.dtype));
  }

  void stage() const {
    const std::int64_t together = interleaved(p_, b_) ? p_.c : 1;  // channels that are staged as one row
    FewStageCall call{};
    call.x = x_image();
    call.x_row = p_.nhwc ? p_.w * p_.c : p_.w;
    call.x_px = p_.nhwc ? p_.c : 1;
    call.x_channel = p_.nhwc ? 1 : p_.h * p_.w;
    call.height = p_.h;
    call.width = p_.w * together;
    call.channels = p_.c / together;
    call.first_row = first_row_ * pool_side(p_) * p_.stride_h - p_.pad_top;
    const std::int64_t computed = round_up(rows_ * pool_side(p_), b_.tile_rows);
    call.rows = (computed - 1) * p_.stride_h + (p_.r - 1) * p_.dilation_h + 1;
    call.pad_left = p_.pad_left * together;
    call.phases = b_.phases;
    call.columns = b_.columns;
    call.pitch = b_.pitch;
    call.strip = workspace_;
    call.row = workspace_ + b_.row_offset;
    const bool splits = p_.nhwc && b_.planes;
    (splits ? run_.kernels.stage_nhwc : run_.kernels.stage_nchw)[static_cast<std::size_t>(p_.dtype)](call);
  }

  /// Asks for a row's share of what the next unit will stage, which otherwise waits for all of it at once. Only where
  /// that follows this unit's input in memory.
  void ask_for_input(std::int64_t row) const {
    if (!p_.nhwc && b_.row_blocks > 1) return;
    const std::int64_t image = p_.c * p_.h * p_.w * static_cast<std::int64_t>(size_of(p_.dtype));
    const std::int64_t unit = image / b_.row_blocks;
    const std::int64_t begin = image_ * image + (first_row_ / b_.unit_rows + 1) * unit;
    const char* x = static_cast<const char*>(run_.x);
    const std::int64_t end = std::min(begin + (row + 1) * unit / rows_, p_.n * image);
    for (std::int64_t i = begin + row * unit / rows_; i < end; i += 64) hwy::Prefetch(x + i);
  }

  FewTileCall tile_call() const {
    return {.x = workspace_,
            .x_row = p_.stride_h * b_.strip_row,
            .x_px = b_.x_px,
            .offsets = run_.offsets,
            .runs = steps(p_) / b_.run,
            .run = b_.run,
            .weights = run_.packed,
            .bias = run_.bias};
  }

  void compute_wide() const {
    FewWideCall call{};
    call.tile = tile_call();
    call.channels = p_.k;
    call.pixels = conv_pixels(p_);
    call.planes = workspace_ + b_.planes_offset;
    call.pitch = b_.plane_pitch;
    const std::int64_t step = b_.tile_rows / pool_side(p_);
    for (std::int64_t row = 0; row < rows_; row += step) {
      call.tile.x = workspace_ + row * pool_side(p_) * call.tile.x_row;
      for (std::int64_t i = row; i < std::min(row + step, rows_); ++i) ask_for_input(i);
      (pool_side(p_) == 2 ? run_.kernels.wide_pool : run_.kernels.wide)(call);
      for (std::int64_t i = 0; i < std::min(step, rows_ - row); ++i) {
        const float* planes = call.planes + i * p_.k * call.pitch;
        if (p_.nhwc) {
          float* out = workspace_ + b_.out_offset + (row + i) * p_.out_w() * p_.k;
          run_.kernels.interleave({.planes = planes,
                                   .pitch = call.pitch,
                                   .channels = p_.k,
                                   .pixels = p_.out_w(),
                                   .y = out,
                                   .pixel_of = run_.pixel_of,
                                   .channel_of = run_.channel_of});
        } else {
          for (std::int64_t c = 0; c < p_.k; ++c) finish(planes + c * call.pitch, y_at(row + i, c), p_.out_w());
        }
      }
    }
    if (p_.nhwc) finish(workspace_ + b_.out_offset, y_at(0, 0), rows_ * p_.out_w() * p_.k);
  }

  void finish(const float* from, void* y, std::int64_t count) const {
    run_.kernels.finish[static_cast<std::size_t>(p_.dtype)](
        {.x = from, .y = y, .count = count, .activation = p_.activation});
  }

  void compute_lanes() const {
    const std::int64_t lanes = run_.kernels.lanes;
    const std::int64_t padded = round_up(p_.k, lanes);
    FewLanesCall call{};
    call.y_px = b_.tile_stores ? p_.k : padded;
    call.activation = b_.tile_stores ? p_.activation : Activation::none;
    call.stream = run_.stream;
    const std::int64_t widest = widest_tile(run_.kernels, b_) / pool_side(p_);
    call.ask_pixels = b_.tile_stores && !run_.stream ? ceil_div(widest, steps(p_) / b_.run) : 0;
    for (std::int64_t lane = 0; lane < padded; lane += b_.vectors * lanes) {
      const std::int64_t vectors = std::min(b_.vectors, (padded - lane) / lanes);
      call.valid = static_cast<int>(std::min(vectors * lanes, (b_.tile_stores ? p_.k : padded) - lane));
      for (std::int64_t row = 0; row < rows_; ++row) {
        if (lane == 0) ask_for_input(row);
        call.tile = tile_call();
        call.tile.weights += lane * steps(p_);
        call.tile.bias += lane;
        call.tile.x += row * pool_side(p_) * call.tile.x_row;
        skip_padding(row, vectors * lanes, call.tile);
        float* out = b_.tile_stores ? static_cast<float*>(y_at(row, lane))
                                    : workspace_ + b_.out_offset + row * p_.out_w() * padded + lane;
        compute_row(call, out, static_cast<std::size_t>(vectors));
      }
    }
    if (!b_.tile_stores) store_strip(padded);
  }

  /// Leaves out the kernel's rows that lie above or below the image for every row of the tile.
  void skip_padding(std::int64_t row, std::int64_t width, FewTileCall& tile) const {
    const std::int64_t first = (first_row_ + row) * pool_side(p_) * p_.stride_h - p_.pad_top;
    const std::int64_t last = first + (pool_side(p_) - 1) * p_.stride_h;
    const std::int64_t begin = std::clamp<std::int64_t>(ceil_div(-last, p_.dilation_h), 0, p_.r);
    const std::int64_t end = std::clamp<std::int64_t>(ceil_div(p_.h - first, p_.dilation_h), begin, p_.r);
    const std::int64_t runs = tile.runs / p_.r;  // of a row
    tile.offsets += begin * runs;
    tile.weights += begin * runs * tile.run * width;
    tile.runs = (end - begin) * runs;
  }

  /// Cuts a row into tiles of even width.
  void compute_row(FewLanesCall& call, float* out, std::size_t vectors) const {
    const std::int64_t side = pool_side(p_);
    const auto& functions = (side == 2 ? run_.kernels.pair : run_.kernels.tile)[vectors];
    const std::int64_t most = (side == 2 ? run_.kernels.max_pair_pixels : run_.kernels.max_pixels)[vectors] / side;
    const std::int64_t tiles = ceil_div(p_.out_w(), most);
    std::int64_t pixel = 0;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const std::int64_t width = (p_.out_w() - pixel) / (tiles - tile);
      call.y = out + pixel * call.y_px;
      functions[width * side](call);
      call.tile.x += width * side * call.tile.x_px;
      pixel += width;
    }
  }

  /// Activation, conversion and layout through Conv2dPlan's store kernels.
  void store_strip(std::int64_t padded) const {
    const Conv2dKernels& kernels = conv2d_kernels(run_.target);
    for (std::int64_t lane = 0; lane < p_.k; lane += kPartitionLanes) {
      StoreCall call{};
      call.strip = workspace_ + b_.out_offset + lane;
      call.strip_px = padded;
      call.lanes = static_cast<int>(std::min<std::int64_t>(kPartitionLanes, p_.k - lane));
      call.padded_lanes = static_cast<int>(std::min<std::int64_t>(kPartitionLanes, padded - lane));
      // Rows follow one another in the strip and in y, so they are one: blocks of pixels then are full ones.
      call.rows = 1;
      call.pixels = rows_ * p_.out_w();
      call.pool_h = call.pool_w = call.pool_stride_h = call.pool_stride_w = 1;
      call.activation = p_.activation;
      call.y = y_at(0, lane);
      call.y_px = p_.nhwc ? p_.k : 1;
      call.y_channel = p_.nhwc ? 1 : p_.out_h() * p_.out_w();
      call.block = workspace_ + b_.planes_offset;
      (p_.nhwc ? kernels.store_nhwc : kernels.store_nchw)[static_cast<std::size_t>(p_.dtype)](call);
    }
  }

  const FewChannelsRun& run_;
  const Conv2dProblem& p_;
  const FewChannelsBlocking& b_;
  float* workspace_;
  std::int64_t image_, first_row_, rows_;  // of the output
};

}  // namespace

std::string few_channels_refusal(const Conv2dProblem& p, const Target& target) {
  if (!target.supported) return "target " + std::string(target.name) + " is not supported by this CPU";
  if (p.groups != 1) return text(p.groups) + " groups: it takes one";
  if (p.c > kMostChannels) return text(p.c) + " input channels: it is made for at most " + text(kMostChannels);
  if (p.r * p.s == 1) return "kernel 1x1: a matrix product serves it";
  if (steps(p) > kMostSteps) {
    return text(steps(p)) + " taps and channels: it keeps the weights of at most " + text(kMostSteps) + " in L1";
  }
  if (!p.pool.none() && !p.pool.is_2x2()) return "it fuses a max-pool of 2x2 with stride 2 only";
  const FewChannelsBlocking b = choose_blocking(p, few_channels_kernels(target), 1);
  if (static_cast<std::int64_t>(b.thread_floats) > kMostThreadFloats) {
    return "rows of " + text(p.w) + " pixels: a strip of " + text(static_cast<std::int64_t>(b.thread_floats)) +
           " floats, at most " + text(kMostThreadFloats) + " stay in L2";
  }
  return "";
}

FewChannelsPlan::FewChannelsPlan(const Conv2dProblem& problem, const Target& target, int threads)
    : problem_(checked("few_channels", problem, few_channels_refusal, target, threads)),
      target_(&target),
      kernels_(&few_channels_kernels(target)),
      threads_(threads),
      blocking_(choose_blocking(problem, *kernels_, threads)),
      offsets_(run_offsets(problem, blocking_)),
      workspace_(static_cast<std::size_t>(round_up(problem.k, 16)) +
                 static_cast<std::size_t>(threads) * blocking_.thread_floats) {
  if (!blocking_.wide) return;
  const auto channels = static_cast<std::int32_t>(problem_.k);
  for (std::int32_t i = 0; i < channels * kernels_->lanes; ++i) {
    pixel_of_.push_back(i / channels);
    channel_of_.push_back(i % channels);
  }
}

std::size_t FewChannelsPlan::packed_bytes() const {
  const std::int64_t channels = blocking_.wide ? problem_.k : round_up(problem_.k, kernels_->lanes);
  return static_cast<std::size_t>(channels * steps(problem_)) * sizeof(float);
}

void FewChannelsPlan::pack(const void* weights, const WeightStrides& strides, void* packed) const {
  const Conv2dProblem& p = problem_;
  const std::int64_t padded = blocking_.wide ? p.k : round_up(p.k, kernels_->lanes);
  const std::int64_t blocks = ceil_div(p.k, kFewWideBlock);
  const std::vector<Step> order = all_steps(p, blocking_);
  auto* out = static_cast<float*>(packed);
  std::int64_t width = 0;
  for (std::int64_t first = 0, block = 0; first < padded; first += width, ++block) {
    width = blocking_.wide ? (p.k - first) / (blocks - block)
                           : std::min(blocking_.vectors * kernels_->lanes, padded - first);
    for (const Step& step : order) {
      const std::int64_t source = step.channel * strides.in + step.kh * strides.row + step.kw * strides.column;
      for (std::int64_t k = first; k < first + width; ++k) {
        *out++ = k < p.k ? element_as_f32(weights, p.dtype, source + k * strides.out) : 0.0f;
      }
    }
  }
}

/// Not where a panel is less than whole lines: they would be written in parts.
bool FewChannelsPlan::streams(const void* y) const {
  const Conv2dProblem& p = problem_;
  const std::int64_t panel = blocking_.vectors * kernels_->lanes;
  const bool lines = panel % 16 == 0 && p.k % panel == 0 && reinterpret_cast<std::uintptr_t>(y) % 64 == 0;
  return blocking_.tile_stores && lines && beyond_last_level(p.n * p.k * p.out_h() * p.out_w() * 4);
}

void FewChannelsPlan::run(const void* x, const void* packed, const float* bias, void* y) {
  const Conv2dProblem& p = problem_;
  note_path(blocking_.wide ? (p.pool.none() ? Path::few_wide : Path::few_wide_pool)
                           : (p.pool.none() ? Path::few_lanes : Path::few_lanes_pool),
            *target_);
  note_path(p.nhwc && blocking_.planes ? Path::few_stage_split : Path::few_stage_rows, *target_);
  const bool stream = streams(y);
  float* padded_bias = workspace_.data();
  if (p.bias) std::copy_n(bias, p.k, padded_bias);
  float* parts = padded_bias + round_up(p.k, 16);
  const FewChannelsRun run{p,
                           *target_,
                           *kernels_,
                           blocking_,
                           offsets_.data(),
                           pixel_of_.data(),
                           channel_of_.data(),
                           x,
                           static_cast<const float*>(packed),
                           padded_bias,
                           stream,
                           y};
  parallel_units(threads_, p.n * blocking_.row_blocks, [&](std::int64_t unit, int thread) {
    Unit(run, unit, parts + static_cast<std::size_t>(thread) * blocking_.thread_floats).compute();
    if (stream) hwy::FlushStream();
  });
}

Conv2dDescription FewChannelsPlan::description() const {
  const FewChannelsBlocking& b = blocking_;
  const std::int64_t lanes = kernels_->lanes;
  Conv2dDescription d;
  d.kernel = "few_channels";
  d.target = target_->name;
  d.tile = b.wide ? text(b.tile_rows) + "x" + text(lanes) + " pixels in vectors x " +
                        text(std::min<std::int64_t>(kFewWideBlock, problem_.k)) + " channels"
                  : text(b.tile_rows) + "x" + text(widest_tile(*kernels_, b)) + " pixels x " + text(b.vectors * lanes) +
                        " lanes";
  d.blocking = text(steps(problem_)) + " taps and channels in one go, unit " +
               text(std::min(b.unit_rows, problem_.out_h())) + "x" + text(problem_.out_w()) + " outputs, " +
               text(problem_.n * b.row_blocks) + " units";
  d.fusion = std::string("input staged in planes, ") + (problem_.pool.none() ? "no pool" : "max-pool in registers") +
             ", bias in registers, activation " + (b.tile_stores ? "in registers" : "in an L1 strip");
  d.threads = threads_;
  return d;
}

}  // namespace gable::cpu
