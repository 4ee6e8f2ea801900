// Staging: a unit's input rows, of any type and layout, become an f32 strip in this thread's L2. The padding becomes
// zeros, so the tile kernel never tests a coordinate. A strip costs one read and one write an element and serves all
// taps of up to 128 output lanes: about 1 % of a 3×3 layer's time.
// No register blocking; each step converts one vector.
#if defined(GABLE_CPU_STAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GABLE_CPU_STAGE_INL_H_
#undef GABLE_CPU_STAGE_INL_H_
#else
#define GABLE_CPU_STAGE_INL_H_
#endif

#include <algorithm>

#include "cpu/common/half.h"
#include "cpu/common/strips.h"
#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

/// The strip positions [begin, end) of a span axis whose source coordinate is inside [0, size).
struct ValidRange {
  std::int64_t begin, end;
};
HWY_INLINE ValidRange valid_positions(std::int64_t first, std::int64_t positions, std::int64_t size) {
  const std::int64_t begin = std::clamp<std::int64_t>(-first, 0, positions);
  return {begin, std::clamp<std::int64_t>(size - first, begin, positions)};
}

/// Calls column(position, source coordinate, count) for runs of valid columns: one run of a span, single columns of a
/// gather; and zero(position, count) for the padding.
template <class Run, class Zero>
HWY_INLINE void for_each_column_run(const StageCall& call, const Run& run, const Zero& zero) {
  if (!call.axes.columns.gather) {
    const ValidRange valid = valid_positions(call.first_column, call.column_positions, call.image.width);
    zero(0, valid.begin);
    run(valid.begin, call.first_column + valid.begin, valid.end - valid.begin);
    zero(valid.end, call.column_positions - valid.end);
    return;
  }
  for (std::int64_t position = 0; position < call.column_positions; ++position) {
    const std::int64_t column = call.first_column + call.axes.columns.source(position);
    if (column >= 0 && column < call.image.width) {
      run(position, column, 1);
    } else {
      zero(position, 1);
    }
  }
}

template <DType kType>
const Storage<kType>* stage_source(const StageCall& call, std::int64_t row) {
  return static_cast<const Storage<kType>*>(call.image.x) + row * call.image.strides.row;
}

/// Calls write_row(source row, strip row) for rows inside the image; rows of padding become zeros.
template <class WriteRow>
HWY_INLINE void for_each_row(const StageCall& call, std::int64_t row_floats, const WriteRow& write_row) {
  for (std::int64_t position = 0; position < call.row_positions; ++position) {
    const std::int64_t row = call.first_row + call.axes.rows.source(position);
    float* strip = call.strip + position * row_floats;
    if (row >= 0 && row < call.image.height) {
      write_row(row, strip);
    } else {
      std::fill_n(strip, row_floats, 0.0f);
    }
  }
}

/// The channels of one pixel, cut into in tiles that lie `tile_floats` apart.
template <DType kType>
HWY_INLINE void stage_pixel(const StageCall& call, const Storage<kType>* x, float* strip, std::int64_t tile_floats) {
  const hn::ScalableTag<float> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t channel = 0;
  if (call.in_lanes == lanes) {
    for (; channel + lanes <= call.channels; channel += lanes) {
      hn::StoreU(load_as_f32<kType>(d, x + channel), d, strip);
      strip += tile_floats;
    }
  }
  for (; channel < call.channels; channel += call.in_lanes) {
    convert_to_f32<kType>(x + channel, strip, std::min(call.in_lanes, call.channels - channel));
    strip += tile_floats;
  }
}

/// Strip [row][in tile][column][in lane]. The source is read in its own order, pixel by pixel, as one stream.
template <DType kType>
void stage_nhwc(const StageCall& call) {
  const std::int64_t tiles = ceil_div(call.channels, call.in_lanes);
  const std::int64_t tile_floats = call.column_positions * call.in_lanes;
  for_each_row(call, tiles * tile_floats, [&](std::int64_t row, float* strip) HWY_ATTR {
    const Storage<kType>* x = stage_source<kType>(call, row);
    const auto copy = [&](std::int64_t position, std::int64_t column, std::int64_t count) HWY_ATTR {
      if (call.channels == call.image.strides.pixel && call.channels == call.in_lanes) {
        convert_to_f32<kType>(x + column * call.image.strides.pixel, strip + position * call.in_lanes,
                              count * call.in_lanes);
        return;
      }
      for (std::int64_t i = 0; i < count; ++i) {
        stage_pixel<kType>(call, x + (column + i) * call.image.strides.pixel, strip + (position + i) * call.in_lanes,
                           tile_floats);
      }
    };
    const auto zero = [&](std::int64_t position, std::int64_t count) HWY_ATTR {
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        std::fill_n(strip + tile * tile_floats + position * call.in_lanes, count * call.in_lanes, 0.0f);
      }
    };
    for_each_column_run(call, copy, zero);
  });
}

template <DType kType>
HWY_INLINE void stage_channel_row(const StageCall& call, const Storage<kType>* x, float* strip) {
  const auto copy = [&](std::int64_t position, std::int64_t column, std::int64_t count) HWY_ATTR {
    if (count == 1) {
      strip[position] = element_as_f32(x, kType, column);
    } else {
      convert_to_f32<kType>(x + column, strip + position, count);
    }
  };
  const auto zero = [&](std::int64_t position, std::int64_t count)
                        HWY_ATTR { std::fill_n(strip + position, count, 0.0f); };
  for_each_column_run(call, copy, zero);
}

/// Strip [row][channel][column]: contiguous copies, no transpose.
template <DType kType>
void stage_nchw(const StageCall& call) {
  for_each_row(call, call.channels * call.column_positions, [&](std::int64_t row, float* strip) HWY_ATTR {
    for (std::int64_t channel = 0; channel < call.channels; ++channel) {
      stage_channel_row<kType>(call, stage_source<kType>(call, row) + channel * call.image.strides.channel,
                               strip + channel * call.column_positions);
    }
  });
}

/// Strip [row][column][channel] with a column pitch of in_lanes, four channels at a time.
template <DType kType>
void stage_nchw_lanes(const StageCall& call) {
  const std::int64_t columns = call.column_positions;
  // The channel rows being transposed lie behind the strip.
  float* rows = call.strip + call.row_positions * columns * call.in_lanes;
  for_each_row(call, columns * call.in_lanes, [&](std::int64_t row, float* strip) HWY_ATTR {
    for (std::int64_t channel = 0; channel < call.channels; channel += 4) {
      const std::int64_t count = std::min<std::int64_t>(4, call.channels - channel);
      for (std::int64_t i = 0; i < count; ++i) {
        stage_channel_row<kType>(call, stage_source<kType>(call, row) + (channel + i) * call.image.strides.channel,
                                 rows + i * columns);
      }
      transpose_32bit(rows, columns, strip + channel, call.in_lanes, count, columns);
    }
  });
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // GABLE_CPU_STAGE_INL_H_
