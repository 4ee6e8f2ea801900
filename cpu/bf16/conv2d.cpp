// Packing, loop nest and description of Bf16Conv2dPlan. The loops only compute addresses.
#include "cpu/bf16/conv2d.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "cpu/common/coverage.h"
#include "cpu/common/half.h"
#include "cpu/common/parallel.h"
#include "cpu/common/tiling.h"

namespace gable::cpu {
namespace {

bool takes(DType type, int products) {
  if (type == DType::bf16) return products == 1;
  return products == 3 || products == (type == DType::f16 ? 4 : 6);
}

const Conv2dProblem& checked(const Conv2dProblem& p, int products, const Bf16Unit& unit, const Target& target,
                             int threads) {
  check(p);
  if (threads < 1) {
    throw std::invalid_argument("conv2d: threads is " + std::to_string(threads) + ", must be at least 1");
  }
  if (!takes(p.dtype, products)) {
    throw std::invalid_argument("conv2d: products a term are " + std::to_string(products) + ", must be " +
                                (p.dtype == DType::bf16  ? "1 for bf16"
                                 : p.dtype == DType::f16 ? "3 or 4 for f16"
                                                         : "3 or 6 for f32"));
  }
  if (!target.supported) {
    throw std::invalid_argument("conv2d: target " + std::string(target.name) + " is not supported by this CPU");
  }
  if (const std::string reason = bf16_refusal(p, products, unit); !reason.empty()) {
    throw std::invalid_argument("conv2d: " + reason);
  }
  if (unit.tile(products) == nullptr) {
    throw std::invalid_argument("conv2d: products is " + std::to_string(products) + ", must be 1 on " + unit.name);
  }
  return p;
}

// How far reading ahead is before the products, of input that is not staged.
constexpr std::int64_t kPositionsAhead = 4 * kHalfPositions;
constexpr std::int64_t kRowsAhead = 4;
constexpr std::int64_t kManyTiles = 4;  // with fewer, the last level is busy with weights anyway

struct Bf16Run {
  const Conv2dProblem& problem;
  const Bf16Unit& unit;
  const Bf16Kernels& kernels;
  const Target& target;
  const Bf16Blocking& blocking;
  const void* x;
  const std::uint16_t* packed;
  const float* bias;
  void* y;
  bool streams;
  int threads;
};

/// Where the unit reads its input; strides in elements.
struct Input {
  const std::uint16_t* x;
  std::int64_t row, position, a_block;
};

/// One unit of work.
class Unit {
 public:
  Unit(const Bf16Run& run, std::int64_t index, float* workspace)
      : run_(run),
        p_(run.problem),
        b_(run.blocking),
        sums_(workspace),
        last_bias_(workspace + kBf16Sums * kBf16SumFloats),
        strip_(reinterpret_cast<std::uint16_t*>(workspace + kBf16HeadFloats)),
        index_(index) {
    const Spot spot = spot_of(index);
    const std::int64_t panel_tile = spot.tile % b_.panel_tiles;
    group_ = spot.tile / b_.panel_tiles;
    image_ = spot.image * b_.images;
    first_row_ = spot.row;
    first_column_ = spot.column;
    rows_ = std::min(b_.unit_rows, b_.rows - first_row_);
    columns_ = std::min(b_.unit_columns, b_.columns - first_column_);
    first_panel_ = panel_tile * b_.unit_panels;
    end_panel_ = std::min(b_.panels, first_panel_ + b_.unit_panels);
    y_columns_ = b_.columns / b_.pool;
    y_image_ = b_.rows / b_.pool * y_columns_;
    first_pixel_ = image_ * y_image_ + first_row_ / b_.pool * y_columns_ + first_column_ / b_.pool;
  }

  void compute() {
    call_.a_part = b_.a_part;
    call_.taps = b_.taps.data();
    call_.tap_count = call_.tap_columns = b_.tap_count;
    call_.tap_rows = 1;
    call_.blocks = b_.blocks;
    call_.last_pairs = b_.last_pairs;
    call_.last_is_single = b_.last_is_single;
    call_.b_passes_l1 = (b_.weights_fit_l2 || b_.by_images) && !b_.weights_fit_l1;
    call_.y_bytes = kBf16Lanes * static_cast<int>(size_of(p_.dtype));
    call_.reads = &reads_;
    if (b_.in_image) {
      compute_in_image();
    } else if (b_.by_images) {
      compute_by_images();
    } else {
      compute_of(may_read_in_place() ? in_place() : stage());
    }
    run_finishes(finishes_[1 - now_]);
  }

 private:
  void compute_of(const Input& input) {
    call_.position = input.position;
    call_.a_block = input.a_block;
    const bool flat = prefers_flat();
    note_path(b_.pool == 2 ? Path::bf16_pool : flat ? Path::bf16_flat : Path::bf16_rows, run_.target);
    read_ahead(input.x != strip_ && b_.chunk == b_.unit_panels ? index_ : index_ + run_.threads);
    for (Chunk chunk = first_chunk(); chunk.begin < chunk.end; chunk = chunk_after(chunk)) {
      read_ahead_of(chunk_after(chunk));
      if (flat) {
        compute_flat(input, chunk);
        continue;
      }
      for (std::int64_t panel = chunk.begin; panel < chunk.end; ++panel) {
        begin_panel(panel);
        compute_rows(input);
      }
    }
  }

  /// Panels that a tile's positions go through before the next tile's.
  struct Chunk {
    std::int64_t begin, end;
  };
  Chunk chunk_from(std::int64_t panel) const { return {panel, std::min(end_panel_, panel + b_.chunk)}; }
  Chunk first_chunk() const { return chunk_from(first_panel_); }
  Chunk chunk_after(const Chunk& chunk) const { return chunk_from(chunk.end); }

  /// Of a unit: which group and panels, and where its outputs begin.
  struct Spot {
    std::int64_t tile, image, row, column;
  };
  Spot spot_of(std::int64_t index) const {
    const std::int64_t tiles = b_.groups * b_.panel_tiles;
    const std::int64_t spots = b_.units / tiles;
    const std::int64_t tile = b_.weights_once ? index / spots : index % tiles;
    index = b_.weights_once ? index % spots : index / tiles;
    const std::int64_t column = index % b_.column_blocks * b_.unit_columns;
    index /= b_.column_blocks;
    return {tile, index / b_.row_blocks, index % b_.row_blocks * b_.unit_rows, column};
  }

  /// Has the products of this unit fetch the input of unit `index` to L2: the thread's next one, most likely, or, where
  /// nothing is staged, this one.
  void read_ahead(std::int64_t index) {
    reads_ = {};
    if (!run_.unit.reads_whole_half || b_.by_images || b_.fold > 1 || index >= b_.units) return;
    const Spot spot = spot_of(index);
    const std::int64_t rows = std::min(b_.unit_rows, b_.rows - spot.row);
    const std::int64_t columns = std::min(b_.unit_columns, b_.columns - spot.column);
    Range h = source_range(spot.row, rows, p_.stride_h, p_.pad_top, (p_.r - 1) * p_.dilation_h, b_.h);
    Range w = source_range(spot.column, columns, p_.stride_w, p_.pad_left, (p_.s - 1) * p_.dilation_w, b_.w);
    if (index == index_ && b_.in_image) h.move_on(kRowsAhead, b_.h);
    if (index == index_ && !b_.in_image) w.move_on(kPositionsAhead, b_.w);
    if (h.count <= 0 || w.count <= 0) return;
    const auto bytes = static_cast<std::int64_t>(size_of(p_.dtype));
    const std::int64_t pixel = p_.c * bytes, channels = b_.group_c * bytes;
    const std::int64_t first = ((spot.image * b_.h + h.first) * b_.w + w.first) * pixel;
    reads_.row = static_cast<const char*>(run_.x) + first + spot.tile / b_.panel_tiles * channels;
    const bool dense = w.step == 1 && b_.groups == 1;
    reads_.run_lines = ceil_div(dense ? w.count * pixel : channels, 64);
    reads_.runs = dense ? 1 : w.count;
    reads_.run_pitch = w.step * pixel;
    reads_.rows = h.count;
    reads_.row_pitch = h.step * b_.w * pixel;
    const std::int64_t lines = reads_.rows * reads_.runs * reads_.run_lines;
    reads_.a_step = ceil_div(lines, panel_steps() * (end_panel_ - first_panel_));
    reads_.begin();
  }
  /// Weights that L2 does not keep come from the last level for every unit: a chunk's during the one before it.
  void read_ahead_of(const Chunk& chunk) {
    if (!b_.weights_stream || tiles() < kManyTiles) return;
    if (chunk.begin == chunk.end) return read_ahead(index_ + run_.threads);
    if (!run_.unit.reads_whole_half) return;
    const std::int64_t elements = b_.blocks * b_.tap_count * b_.parts * kWeightBlock;
    const std::int64_t panels = chunk.end - chunk.begin;
    reads_ = {.row = reinterpret_cast<const char*>(run_.packed + (group_ * b_.panels + chunk.begin) * elements)};
    reads_.run_lines = panels * elements * static_cast<std::int64_t>(sizeof(std::uint16_t)) / 64;
    reads_.runs = reads_.rows = 1;
    reads_.a_step = ceil_div(reads_.run_lines, panel_steps() * panels);
    reads_.begin();
  }
  std::int64_t tiles() const {
    return b_.by_images ? ceil_div(rows_ * columns_, 2) : ceil_div(rows_ * columns_, 2 * b_.positions);
  }
  std::int64_t panel_steps() const { return tiles() * b_.blocks * b_.tap_count; }
  /// Source rows (columns) of some outputs; a single tap skips those between its strides.
  struct Range {
    std::int64_t first, count, step;
    void move_on(std::int64_t some, std::int64_t size) {
      first += some * step;
      count = std::min(count, ceil_div(size - first, step));
    }
  };
  static Range source_range(std::int64_t first_out, std::int64_t outs, std::int64_t stride, std::int64_t pad,
                            std::int64_t reach, std::int64_t size) {
    const std::int64_t step = reach == 0 ? stride : 1;
    const std::int64_t low = std::max<std::int64_t>(0, first_out * stride - pad);
    const std::int64_t high = std::min(size, (first_out + outs - 1) * stride - pad + reach + 1);
    return {low, ceil_div(high - low, step), step};
  }

  /// A unit that multiplies whole halves reads past its last position, which has to be inside the tensor.
  bool may_read_in_place() const {
    if (!b_.in_place) return false;
    if (!run_.unit.reads_whole_half) return true;
    return first_column_ + round_up(columns_, b_.positions) <= b_.w;
  }
  Input in_place() const {
    note_path(Path::bf16_in_place, run_.target);
    const auto* x = static_cast<const std::uint16_t*>(run_.x);
    return {x + first_column_ * p_.c + group_ * b_.group_c, 0, p_.c, kBf16Channels};
  }

  Input stage() const {
    note_path(b_.parts > 1 ? Path::bf16_split : b_.fold > 1 ? Path::bf16_fold : Path::bf16_stage, run_.target);
    Bf16StageRow row{};
    row.x_pixel = p_.c;
    row.width = b_.w;
    row.step = b_.fold > 1 ? 1 : p_.stride_w;
    row.columns = (columns_ + b_.strip_columns - b_.unit_columns) * (b_.fold > 1 ? p_.stride_w : 1);
    row.channels = b_.group_c;
    row.pixel = b_.fold > 1 ? b_.pixel : 0;
    row.position = b_.position;
    row.blocks = b_.blocks;
    row.block = b_.a_block;
    row.part = b_.a_part;
    row.strip = strip_;
    row.split = run_.unit.split(p_.dtype, b_.parts);
    const std::int64_t strip_rows = rows_ + b_.strip_rows - b_.unit_rows;
    for (const std::int64_t row_phase : b_.row_phases) {
      for (const std::int64_t column_phase : b_.column_phases) {
        row.column = first_column_ * p_.stride_w - p_.pad_left + column_phase;
        for (std::int64_t i = 0; i < strip_rows; ++i) {
          row.x = source_row(image_, (first_row_ + i) * p_.stride_h - p_.pad_top + row_phase);
          run_.kernels.stage(p_.dtype, b_.parts)(row);
          row.strip += b_.strip_columns * b_.position;
        }
        row.strip += (b_.strip_rows - strip_rows) * b_.strip_columns * b_.position;
      }
    }
    return {strip_, b_.strip_columns * b_.position, b_.position, b_.a_block};
  }
  const void* source_row(std::int64_t image, std::int64_t row) const {
    if (row < 0 || row >= b_.h) return nullptr;
    const std::int64_t element = (image * b_.h + row) * b_.w * p_.c + group_ * b_.group_c;
    return static_cast<const char*>(run_.x) + element * static_cast<std::int64_t>(size_of(p_.dtype));
  }

  /// Positions that a row-wise and a flat pass multiply; each half also costs about two positions' time to start.
  bool prefers_flat() const {
    if (b_.pool == 2) return false;
    if (rows_ == 1) return true;
    const std::int64_t most = b_.positions;
    const auto cost = [&](std::int64_t positions) {
      const std::int64_t halves = ceil_div(positions, most);
      return (run_.unit.reads_whole_half ? halves * most : positions) + kHalfCost * halves;
    };
    return cost((rows_ - 1) * b_.strip_columns + columns_) < rows_ * cost(columns_);
  }

  void begin_panel(std::int64_t panel, std::int64_t first_tap = 0) {
    const std::int64_t steps = b_.blocks * b_.tap_count;
    call_.b = run_.packed + ((group_ * b_.panels + panel) * steps + first_tap) * b_.parts * kWeightBlock;
    first_lane_ = group_ * b_.group_k + panel * kBf16Lanes;
    lanes_ = static_cast<int>(std::min<std::int64_t>(kBf16Lanes, b_.group_k - panel * kBf16Lanes));
    if (run_.bias == nullptr) return;
    bias_ = run_.bias + first_lane_;
    if (lanes_ == kBf16Lanes) return;
    std::fill(std::copy_n(bias_, lanes_, last_bias_), last_bias_ + kBf16Lanes, 0.0f);
    bias_ = last_bias_;
  }

  void compute_rows(const Input& input) {
    const std::int64_t step =
        run_.unit.reads_whole_half ? b_.positions : round_up(even_part(columns_, b_.positions), b_.pool);
    for (std::int64_t row = 0; row < rows_; row += 2) {
      for (std::int64_t column = 0; column < columns_; column += step) {
        const int count = static_cast<int>(std::min(step, columns_ - column));
        const bool second = row + 1 < rows_;
        call_.a[0] = input.x + row * input.row + column * input.position;
        call_.a[1] = call_.a[0] + input.row;
        call_.count[0] = count;
        call_.count[1] = second ? count : 0;
        take_taps(0, row);
        take_taps(1, row + 1);
        if (finishes_in_registers()) {
          multiply_and_finish(finish_of(row, column, count), finish_of(row + 1, column, count));
          continue;
        }
        const float* c = sums();
        if (b_.pool == 2) {
          finish(c, c + kHalfFloats, row / 2, column / 2, count / 2);
        } else {
          finish(c, nullptr, row, column, count);
          if (second) finish(c + kHalfFloats, nullptr, row + 1, column, count);
        }
        multiply();
      }
    }
  }

  /// Taps of kernel rows that are not all padding for a row of output; all, where both halves share their weights.
  void take_taps(int half, std::int64_t row) {
    call_.tap_begin[half] = 0;
    call_.tap_end[half] = b_.tap_count;
    if (run_.unit.reads_whole_half) return;
    const std::int64_t first = (first_row_ + row) * p_.stride_h - p_.pad_top;
    const std::int64_t a_row = b_.tap_count / p_.r;
    const std::int64_t begin = first >= 0 ? 0 : std::min(p_.r, ceil_div(-first, p_.dilation_h));
    const std::int64_t end = first >= b_.h ? 0 : std::min(p_.r, ceil_div(b_.h - first, p_.dilation_h));
    call_.tap_begin[half] = begin * a_row;
    call_.tap_end[half] = std::max(begin, end) * a_row;
  }

  void compute_flat(const Input& input, const Chunk& chunk) {
    if (b_.chunk > 1) note_path(Path::bf16_panels_inside, run_.target);
    take_all_taps();
    for (std::int64_t first = 0; first < flat_positions(); first += 2 * flat_step()) {
      for (std::int64_t panel = chunk.begin; panel < chunk.end; ++panel) {
        begin_panel(panel);
        compute_flat_tile(input, first);
      }
    }
  }

  // ---- Input read in the image.
  /// Outputs along one axis that meet the same taps.
  struct Region {
    std::int64_t begin, end;
    std::int64_t first_tap, taps;
    std::int64_t last_inside;  // the last output whose taps, these ones, are inside the image (no taps: beyond the end)
    std::int64_t pitch;        // elements of input from output to output
  };
  struct Axis {
    std::int64_t size, taps, stride, pad, dilation, pitch;  // pitch: elements from pixel to pixel
  };
  static Region region_at(const Axis& axis, std::int64_t begin, std::int64_t end) {
    const auto first_tap = [&](std::int64_t out) {
      return std::clamp<std::int64_t>(ceil_div(axis.pad - out * axis.stride, axis.dilation), 0, axis.taps);
    };
    const auto end_tap = [&](std::int64_t out) {
      const std::int64_t room = axis.size + axis.pad - out * axis.stride;
      return std::max(first_tap(out), room <= 0 ? 0 : std::min(axis.taps, ceil_div(room, axis.dilation)));
    };
    const std::int64_t first = first_tap(begin), last = end_tap(begin) - 1;
    std::int64_t same = begin + 1;
    while (same < end && first_tap(same) == first && end_tap(same) == last + 1) ++same;
    const std::int64_t last_inside =
        last < first ? same + kHalfPositions : (axis.size - 1 + axis.pad - last * axis.dilation) / axis.stride;
    return {begin, same, first, last + 1 - first, last_inside, axis.stride * axis.pitch};
  }

  /// Calls work(rows, columns) for each region of the unit.
  template <class Work>
  void for_regions(const Work& work) const {
    const Axis h{b_.h, p_.r, p_.stride_h, p_.pad_top, p_.dilation_h, b_.w * p_.c};
    const Axis w{b_.w, p_.s, p_.stride_w, p_.pad_left, p_.dilation_w, p_.c};
    for (std::int64_t row = first_row_; row < first_row_ + rows_;) {
      const Region rows = region_at(h, row, first_row_ + rows_);
      for (std::int64_t column = first_column_; column < first_column_ + columns_;) {
        const Region columns = region_at(w, column, first_column_ + columns_);
        work(rows, columns);
        column = columns.end;
      }
      row = rows.end;
    }
  }

  void compute_in_image() {
    note_path(Path::bf16_in_image, run_.target);
    read_ahead(index_);
    call_.a_block = kBf16Channels;
    call_.tap_pitch = p_.s;
    for_regions([&](const Region& rows, const Region& columns) { compute_region(rows, columns); });
  }

  void compute_region(const Region& rows, const Region& columns) {
    call_.tap_rows = rows.taps;
    call_.tap_columns = columns.taps;
    const std::int64_t source_row = rows.begin * p_.stride_h - p_.pad_top + rows.first_tap * p_.dilation_h;
    const std::int64_t source_column = columns.begin * p_.stride_w - p_.pad_left + columns.first_tap * p_.dilation_w;
    const std::int64_t pixel = (image_ * b_.h + source_row) * b_.w + source_column;
    const std::uint16_t* x = static_cast<const std::uint16_t*>(run_.x) + pixel * p_.c + group_ * b_.group_c;
    const bool is_column = b_.pool == 1 && columns.end - columns.begin < b_.positions && rows.end - rows.begin > 1;
    const Region& inner = is_column ? rows : columns;
    const Region& outer = is_column ? columns : rows;
    call_.position = inner.pitch;
    for (std::int64_t out = outer.begin; out < outer.end; out += 2) {
      for (std::int64_t in = inner.begin; in < inner.end; in += b_.positions) {
        // A tile always reads all positions: the last ones of a region are read together with some before them.
        const std::int64_t read = std::min(in, inner.last_inside + 1 - b_.positions);
        const std::int64_t count = std::min<std::int64_t>(b_.positions, inner.end - in);
        call_.a[0] = x + (out - outer.begin) * outer.pitch + (read - inner.begin) * inner.pitch;
        call_.a[1] = call_.a[0] + outer.pitch;
        call_.count[0] = static_cast<int>(count);
        call_.count[1] = out + 1 < outer.end ? call_.count[0] : 0;
        const std::int64_t row = (is_column ? in : out) - first_row_, column = (is_column ? out : in) - first_column_;
        for (std::int64_t panel = first_panel_; panel < end_panel_; ++panel) {
          begin_panel(panel, rows.first_tap * p_.s + columns.first_tap);
          finish_region_tile(is_column, (in - read) * kBf16Lanes, row, column, count);
          multiply();
        }
      }
    }
  }

  void finish_region_tile(bool is_column, std::int64_t first_sum, std::int64_t row, std::int64_t column,
                          std::int64_t count) {
    const float* c = sums() + first_sum;
    if (b_.pool == 2) return finish(c, c + kHalfFloats, row / 2, column / 2, count / 2);
    const std::int64_t y_pixel = is_column ? y_columns_ * p_.k : p_.k;
    finish(c, nullptr, row, column, count, y_pixel);
    if (call_.count[1] == 0) return;
    finish(c + kHalfFloats, nullptr, row + (is_column ? 0 : 1), column + (is_column ? 1 : 0), count, y_pixel);
  }

  // ---- Positions that are images.
  struct Source {
    Range rows, columns;
  };

  void compute_by_images() {
    note_path(Path::bf16_by_images, run_.target);
    const Source source{
        source_range(first_row_, rows_, p_.stride_h, p_.pad_top, (p_.r - 1) * p_.dilation_h, b_.h),
        source_range(first_column_, columns_, p_.stride_w, p_.pad_left, (p_.s - 1) * p_.dilation_w, b_.w)};
    const std::int64_t images = std::min(b_.images, b_.n - image_);
    stage_images(source, images);
    call_.position = kBf16Channels;
    call_.a_block = b_.a_block;
    call_.tap_pitch = p_.s;
    for (Chunk chunk = first_chunk(); chunk.begin < chunk.end; chunk = chunk_after(chunk)) {
      read_ahead_of(chunk_after(chunk));
      for_regions(
          [&](const Region& rows, const Region& columns) { compute_pixels(source, images, rows, columns, chunk); });
    }
  }

  void stage_images(const Source& source, std::int64_t images) const {
    Bf16StageRow row{};
    row.x_pixel = p_.c;
    row.width = b_.w;
    row.column = source.columns.first;
    row.step = source.columns.step;
    row.columns = source.columns.count;
    row.channels = b_.group_c;
    row.position = b_.images * kBf16Channels;
    row.blocks = b_.blocks;
    row.block = b_.a_block;
    for (std::int64_t i = 0; i < source.rows.count; ++i) {
      for (std::int64_t image = 0; image < images; ++image) {
        row.x = source_row(image_ + image, source.rows.first + i * source.rows.step);
        row.strip = strip_ + (i * b_.strip_columns * b_.images + image) * kBf16Channels;
        run_.kernels.stage(p_.dtype, b_.parts)(row);
      }
    }
  }

  /// Two pixels a tile, all of the same taps.
  void compute_pixels(const Source& source, std::int64_t images, const Region& rows, const Region& columns,
                      const Chunk& chunk) {
    call_.tap_rows = rows.taps;
    call_.tap_columns = columns.taps;
    const auto place = [](const Range& range, const Region& region, std::int64_t out, std::int64_t stride,
                          std::int64_t pad, std::int64_t dilation) {
      return (out * stride - pad + region.first_tap * dilation - range.first) / range.step;
    };
    const std::int64_t width = columns.end - columns.begin, pixels = (rows.end - rows.begin) * width;
    for (std::int64_t first = 0; first < pixels; first += 2) {
      std::int64_t row[2], column[2];
      for (std::int64_t half = 0; half < 2; ++half) {
        const std::int64_t pixel = std::min(first + half, pixels - 1);
        row[half] = rows.begin + pixel / width;
        column[half] = columns.begin + pixel % width;
        const std::int64_t y = place(source.rows, rows, row[half], p_.stride_h, p_.pad_top, p_.dilation_h);
        const std::int64_t x = place(source.columns, columns, column[half], p_.stride_w, p_.pad_left, p_.dilation_w);
        call_.a[half] = strip_ + (y * b_.strip_columns + x) * b_.images * kBf16Channels;
        call_.count[half] = first + half < pixels ? static_cast<int>(images) : 0;
      }
      for (std::int64_t panel = chunk.begin; panel < chunk.end; ++panel) {
        begin_panel(panel, rows.first_tap * p_.s + columns.first_tap);
        for (std::int64_t half = 0; half < 2 && call_.count[half] > 0; ++half) {
          finish(sums() + half * kHalfFloats, nullptr, row[half] - first_row_, column[half] - first_column_, images,
                 y_image_ * p_.k);
        }
        multiply();
      }
    }
  }

  void take_all_taps() {
    call_.tap_begin[0] = call_.tap_begin[1] = 0;
    call_.tap_end[0] = call_.tap_end[1] = b_.tap_count;
  }
  std::int64_t flat_positions() const { return (rows_ - 1) * b_.strip_columns + columns_; }
  std::int64_t flat_step() const {
    return run_.unit.reads_whole_half ? b_.positions : even_part(flat_positions(), b_.positions);
  }

  void compute_flat_tile(const Input& input, std::int64_t first) {
    const std::int64_t total = flat_positions(), step = flat_step();
    const std::int64_t second = first + step;
    call_.a[0] = input.x + first * input.position;
    call_.a[1] = input.x + second * input.position;
    call_.count[0] = static_cast<int>(std::min(step, total - first));
    call_.count[1] = static_cast<int>(std::clamp<std::int64_t>(total - second, 0, step));
    if (rows_ == 1 && finishes_in_registers()) {
      multiply_and_finish(finish_of(0, first, call_.count[0]), finish_of(0, second, call_.count[1]));
      return;
    }
    if (step == kHalfPositions) {
      finish_positions(sums(), first, call_.count[0] + call_.count[1]);  // the halves' sums lie together
    } else {
      finish_positions(sums(), first, call_.count[0]);
      finish_positions(sums() + kHalfFloats, second, call_.count[1]);
    }
    multiply();
  }

  /// Finishes the outputs among consecutive strip positions.
  void finish_positions(const float* c, std::int64_t position, std::int64_t count) {
    if (rows_ == 1 && count > 0) return finish(c, nullptr, 0, position, count);
    while (count > 0) {
      const std::int64_t row = position / b_.strip_columns;
      const std::int64_t column = position % b_.strip_columns;
      const std::int64_t here = std::min(count, b_.strip_columns - column);
      if (column < columns_) finish(c, nullptr, row, column, std::min(here, columns_ - column));
      c += here * kBf16Lanes;
      position += here;
      count -= here;
    }
  }

  /// Row and column of the (pooled) output, from the unit's first.
  Bf16Finish finish_of(std::int64_t row, std::int64_t column, std::int64_t pixels) const {
    const std::int64_t element = (first_pixel_ + row * y_columns_ + column) * p_.k + first_lane_;
    return {.c = nullptr,
            .below = nullptr,
            .pixels = pixels,
            .lanes = lanes_,
            .bias = run_.bias == nullptr ? nullptr : bias_,
            .activation = p_.activation,
            .y = static_cast<char*>(run_.y) + element * static_cast<std::int64_t>(size_of(p_.dtype)),
            .y_pixel = p_.k,
            .streams = run_.streams,
            .run = unit_finishes(lanes_) ? run_.unit.finish(p_.dtype) : run_.kernels.finish(p_.dtype)};
  }

  void finish(const float* c, const float* below, std::int64_t row, std::int64_t column, std::int64_t pixels) {
    finish(c, below, row, column, pixels, p_.k);
  }
  void finish(const float* c, const float* below, std::int64_t row, std::int64_t column, std::int64_t pixels,
              std::int64_t y_pixel) {
    Bf16Finish call = finish_of(row, column, pixels);
    call.c = c;
    call.below = below;
    call.y_pixel = y_pixel;
    Bf16Finishes& finishes = finishes_[now_];
    finishes.calls[finishes.count++] = call;
  }

  // A tile's sums are finished between the next tile's products, or after them: vector instructions then run while the
  // tile unit works, and do not wait for the sums' stores.
  float* sums() const { return sums_ + now_ * kBf16SumFloats; }
  void multiply() {
    call_.c = sums();
    call_.later = finishes_[now_].calls;
    call_.later_count = run_.streams ? 0 : finishes_[now_].count;
    now_ = 1 - now_;
    call_.before = &finishes_[now_];
    run_.unit.tile(b_.products)(call_);
    run_finishes(finishes_[now_]);
  }
  static void run_finishes(Bf16Finishes& finishes) {
    for (int i = 0; i < finishes.count; ++i) finishes.calls[i].run(finishes.calls[i]);
    finishes.count = 0;
  }

  void multiply_and_finish(const Bf16Finish& first, const Bf16Finish& second) {
    call_.finish[0] = &first;
    call_.finish[1] = &second;
    run_.unit.tile(b_.products)(call_);
    call_.finish[0] = call_.finish[1] = nullptr;
  }

  bool unit_finishes(int lanes) const {
    return run_.unit.finish(p_.dtype) != nullptr && lanes == kBf16Lanes && p_.activation != Activation::tanh;
  }
  bool finishes_in_registers() const {
    return run_.unit.finishes_in_registers && b_.pool == 1 && unit_finishes(lanes_);
  }

  const Bf16Run& run_;
  const Conv2dProblem& p_;
  const Bf16Blocking& b_;
  float* sums_;
  float* last_bias_;  // of the one panel of fewer than 32 lanes
  const float* bias_ = nullptr;
  std::uint16_t* strip_;
  std::int64_t index_;
  std::int64_t image_, group_, first_row_, first_column_, rows_, columns_, first_panel_, end_panel_;
  std::int64_t y_columns_, y_image_, first_pixel_;  // of (pooled) output: pixels of a row, of an image, and before this
  std::int64_t first_lane_ = 0;
  int lanes_ = 0;
  Bf16Call call_{};
  Bf16ReadAhead reads_;
  Bf16Finishes finishes_[kBf16Sums];
  std::int64_t now_ = 0;  // which sums and finishes belong to the tile at hand
};

std::int64_t output_bytes(const Conv2dProblem& p) {
  return p.n * p.out_h() * p.out_w() * p.k * static_cast<std::int64_t>(size_of(p.dtype));
}

/// One value as its bf16 parts, greatest first.
void split_weight(float value, int parts, std::uint16_t* out, std::int64_t part_stride) {
  for (int part = 0; part < parts; ++part) {
    const std::uint16_t half = f32_to_bf16(value);
    out[part * part_stride] = half;
    value -= bf16_to_f32(half);
  }
}

}  // namespace

Bf16Conv2dPlan::Bf16Conv2dPlan(const Conv2dProblem& problem, int products, const Bf16Unit& unit, const Target& target,
                               int threads, std::int64_t stream_above)
    : problem_(checked(problem, products, unit, target, threads)),
      unit_(&unit),
      target_(&target),
      kernels_(&bf16_kernels(target)),
      threads_(threads),
      streams_(problem.k / problem.groups % kBf16Lanes == 0 && output_bytes(problem) > stream_above),
      blocking_(bf16_blocking(problem, products, unit, threads)),
      workspace_(static_cast<std::size_t>(threads) * blocking_.thread_bytes / sizeof(float)) {}

std::size_t Bf16Conv2dPlan::packed_bytes() const {
  const Bf16Blocking& b = blocking_;
  return static_cast<std::size_t>(b.groups * b.panels * b.blocks * b.tap_count * b.parts * kWeightBlock) *
         sizeof(std::uint16_t);
}

void Bf16Conv2dPlan::pack(const void* weights, const WeightStrides& strides, void* packed) const {
  const Bf16Blocking& b = blocking_;
  auto* out = static_cast<std::uint16_t*>(packed);
  const std::int64_t columns = b.tap_count / problem_.r;
  for (std::int64_t panel = 0; panel < b.groups * b.panels; ++panel) {
    const std::int64_t first_lane = panel % b.panels * kBf16Lanes;
    const std::int64_t lanes = std::min<std::int64_t>(kBf16Lanes, b.group_k - first_lane);
    const std::int64_t base = (panel / b.panels * b.group_k + first_lane) * strides.out;
    for (std::int64_t block = 0; block < b.blocks; ++block) {
      for (std::int64_t tap = 0; tap < b.tap_count; ++tap, out += b.parts * kWeightBlock) {
        std::fill_n(out, b.parts * kWeightBlock, std::uint16_t{0});
        for (std::int64_t i = 0; i < kBf16Channels; ++i) {
          const std::int64_t channel = block * kBf16Channels + i;
          const std::int64_t kw = tap % columns + (b.fold > 1 ? channel / b.pixel : 0);
          const std::int64_t c = b.fold > 1 ? channel % b.pixel : channel;
          if (c >= b.group_c || kw >= problem_.s) continue;
          const std::int64_t source = base + c * strides.in + tap / columns * strides.row + kw * strides.column;
          for (std::int64_t lane = 0; lane < lanes; ++lane) {
            const std::int64_t place = lane / 16 * (kWeightBlock / 2) + i / 2 * kBf16Lanes + lane % 16 * 2 + i % 2;
            split_weight(element_as_f32(weights, problem_.dtype, source + lane * strides.out), b.parts, out + place,
                         kWeightBlock);
          }
        }
      }
    }
  }
}

void Bf16Conv2dPlan::run(const void* x, const void* packed, const float* bias, void* y) {
  const Bf16Run run{problem_,
                    *unit_,
                    *kernels_,
                    *target_,
                    blocking_,
                    x,
                    static_cast<const std::uint16_t*>(packed),
                    problem_.bias ? bias : nullptr,
                    y,
                    streams_ && reinterpret_cast<std::uintptr_t>(y) % 64 == 0,
                    threads_};
  const std::int64_t thread_floats = static_cast<std::int64_t>(blocking_.thread_bytes / sizeof(float));
  parallel_units(threads_, blocking_.units, [&](std::int64_t unit, int thread) {
    unit_->begin(blocking_.positions, blocking_.blocks == 1 ? blocking_.last_pairs : kBf16Channels / 2);
    Unit(run, unit, workspace_.data() + thread * thread_floats).compute();
    unit_->end();
    if (run.streams) hwy::FlushStream();
  });
}

Conv2dDescription Bf16Conv2dPlan::description() const {
  const Bf16Blocking& b = blocking_;
  Conv2dDescription d;
  d.kernel = unit_->name;
  d.target = target_->name;
  d.tile = "2x" + text(b.positions) + " pixels x " + text(kBf16Lanes) + " lanes, " + text(b.products) +
           (b.products == 1 ? " bf16 product" : " bf16 products") + " a term";
  d.blocking = "out panels of " + text(kBf16Lanes) + " lanes, " + text(b.unit_panels) + " a unit, in blocks of " +
               text(kBf16Channels) + " channels" + (b.fold > 1 ? " of " + text(b.fold) + " columns" : "") + ", unit " +
               text(b.unit_rows) + "x" + text(b.unit_columns) + " outputs, " + text(b.units) + " units";
  if (b.by_images) d.blocking += " of " + text(b.images) + " images";
  if (b.chunk == b.unit_panels || b.in_image) {
    d.blocking += ", all panels of a tile's pixels in turn";
  } else if (b.chunk > 1) {
    d.blocking += ", " + text(b.chunk) + " panels of a tile's pixels in turn";
  }
  d.fusion = std::string(b.in_place || b.in_image ? "input in place" : "input staged in L2") +
             (b.pool == 2 ? ", max-pool in an L1 tile" : ", no pool") + ", bias and activation in an L1 tile" +
             (streams_ ? ", output past the caches" : "");
  d.threads = threads_;
  return d;
}

}  // namespace gable::cpu
