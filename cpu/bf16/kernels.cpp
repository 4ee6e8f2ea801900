// Staging and epilogues around the bf16 units, compiled once for each target. Staging reads, splits and writes each
// element once for all taps and lanes, which is little work compared with its r·s·K products.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/bf16/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/bf16/kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cstring>

#include "cpu/common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

using bf16::Epilogue;
using bf16::kChannels;
using bf16::kLanes;
using bf16::StageRow;

enum class F16 : std::uint16_t {};  // storage; bf16's is std::uint16_t

template <class D>
HWY_INLINE hn::Vec<D> load_as_f32(D d, const float* x) {
  return hn::LoadU(d, x);
}
template <class D>
HWY_INLINE hn::Vec<D> load_as_f32(D d, const F16* x) {
  return f16_to_f32(d, hn::LoadU(HalfTag<D>(), reinterpret_cast<const std::uint16_t*>(x)));
}

#if HWY_TARGET == HWY_AVX3
template <class D>
HWY_INLINE hn::Vec<D> load_first_as_f32(D d, const float* x, int count) {
  return load_first(d, x, count);
}
template <class D>
HWY_INLINE hn::Vec<D> load_first_as_f32(D d, const F16* x, int count) {
  return f16_to_f32(d, load_first(HalfTag<D>(), reinterpret_cast<const std::uint16_t*>(x), count));
}
#endif

/// Values as bf16 parts: each part is the remainder after the parts before it, rounded to bf16. Subtractions are exact.
template <int kParts, class D>
HWY_INLINE void split_vector(D d, hn::Vec<D> rest, std::int64_t part, std::uint16_t* strip) {
  for (int p = 0; p < kParts; ++p) {
    const auto half = f32_to_bf16(d, rest);
    hn::StoreU(half, HalfTag<D>(), strip + p * part);
    rest = hn::Sub(rest, bf16_to_f32(d, half));
  }
}

template <int kParts, class T>
HWY_INLINE void split_position(const T* x, std::int64_t part, std::uint16_t* strip) {
  const hn::ScalableTag<float> d;
  for (std::size_t i = 0; i < kChannels; i += hn::Lanes(d)) {
    split_vector<kParts>(d, load_as_f32(d, x + i), part, strip + i);
  }
}

template <int kParts, class T>
HWY_INLINE void write_position(const T* x, std::int64_t part, std::uint16_t* strip) {
  if constexpr (kParts == 1) {
    std::memcpy(strip, x, kChannels * sizeof(T));
  } else {
    split_position<kParts>(x, part, strip);
  }
}

template <int kParts>
HWY_INLINE void zero_positions(const StageRow& row, std::uint16_t* strip, std::int64_t begin, std::int64_t end) {
  for (int p = 0; p < kParts; ++p) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::fill_n(strip + p * row.strip.part + i * row.strip.position,
                  std::min<std::int64_t>(kChannels, row.strip.position), std::uint16_t{0});
    }
  }
}

template <int kParts>
HWY_INLINE void zero_pixels(const StageRow& row, std::int64_t begin, std::int64_t end) {
  for (int p = 0; p < kParts; ++p) {
    std::fill(row.strip.first + p * row.strip.part + begin * row.strip.pixel,
              row.strip.first + p * row.strip.part + end * row.strip.pixel, 0);
  }
}

/// Pixels of 3 bf16 channels to 4, two at a time. Returns how many it staged.
HWY_INLINE std::int64_t spread_pixels(const std::uint16_t* x, std::int64_t count, std::uint16_t* strip) {
#if HWY_TARGET == HWY_SCALAR
  static_cast<void>(x), static_cast<void>(count), static_cast<void>(strip);
  return 0;
#else
  const hn::FixedTag<std::uint8_t, 16> d;
  alignas(16) static constexpr std::uint8_t kBytes[16] = {0, 1, 2, 3, 4, 5, 128, 128, 6, 7, 8, 9, 10, 11, 128, 128};
  const auto bytes = hn::Load(d, kBytes);
  std::int64_t i = 0;
  for (; i + 3 <= count; i += 2) {  // a load reads into a third pixel
    const auto pixels = hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(x + 3 * i));
    hn::StoreU(hn::TableLookupBytesOr0(pixels, bytes), d, reinterpret_cast<std::uint8_t*>(strip + 4 * i));
  }
  return i;
#endif
}

/// `count` positions of kCount channels, which lie `pitch` elements apart.
template <int kCount>
HWY_INLINE void copy_positions(const std::uint16_t* from, std::int64_t pitch, std::int64_t count, std::uint16_t* to,
                               std::int64_t position) {
  for (std::int64_t i = 0; i < count; ++i) std::memcpy(to + i * position, from + i * pitch, kCount * sizeof(*to));
}
HWY_INLINE void copy_eights(const std::uint16_t* from, std::int64_t pitch, std::int64_t count, std::uint16_t* to,
                            std::int64_t position, std::int64_t channels) {
  if (channels == 8) return copy_positions<8>(from, pitch, count, to, position);
  if (channels == 16) return copy_positions<16>(from, pitch, count, to, position);
  if (channels == 24) return copy_positions<24>(from, pitch, count, to, position);
  copy_positions<32>(from, pitch, count, to, position);
}

/// What copy_pixels() reads and writes: the channels of `count` pixels of 16 bits, `from_pixel` elements apart, to
/// pixels of `pixel` elements, which end with zeros.
struct PixelCopy {
  const std::uint16_t* from;
  std::int64_t from_pixel, channels, count;
  std::uint16_t* to;
  std::int64_t pixel;
};

#if HWY_TARGET == HWY_AVX3
/// A masked load and a store for each pixel. Stores reach into the pixels that are copied next.
template <std::size_t kVector>
HWY_INLINE void copy_in_vectors(const PixelCopy& copy) {
  const hn::FixedTag<std::uint16_t, kVector> d;
  const auto channels = hn::FirstN(d, static_cast<std::size_t>(copy.channels));
  const auto pixel = hn::FirstN(d, static_cast<std::size_t>(copy.pixel));
  const std::int64_t room = copy.count * copy.pixel - static_cast<std::int64_t>(kVector);
  const std::uint16_t* from = copy.from;
  std::int64_t at = 0;
  for (; at <= room; at += copy.pixel, from += copy.from_pixel) {
    hn::StoreU(hn::MaskedLoad(channels, d, from), d, copy.to + at);
  }
  for (; at < copy.count * copy.pixel; at += copy.pixel, from += copy.from_pixel) {
    hn::BlendedStore(hn::MaskedLoad(channels, d, from), pixel, d, copy.to + at);
  }
}
/// Pixels of one channel that lie side by side, each to a pair.
HWY_INLINE std::int64_t copy_single_channels(const std::uint16_t* from, std::int64_t count, std::uint16_t* to) {
  const hn::ScalableTag<std::uint32_t> d;
  const hn::Rebind<std::uint16_t, decltype(d)> half;
  const hn::Repartition<std::uint16_t, decltype(d)> pairs;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::BitCast(pairs, hn::PromoteTo(d, hn::LoadU(half, from + i))), pairs, to + 2 * i);
  }
  return i;
}
HWY_INLINE void copy_pixels(PixelCopy copy) {
  if (copy.channels == 1 && copy.from_pixel == 1 && copy.pixel == 2) {
    const std::int64_t done = copy_single_channels(copy.from, copy.count, copy.to);
    copy.from += done;
    copy.to += 2 * done;
    copy.count -= done;
  }
  if (copy.pixel <= 8) return copy_in_vectors<8>(copy);
  copy.pixel <= 16 ? copy_in_vectors<16>(copy) : copy_in_vectors<32>(copy);
}
#else
HWY_INLINE void copy_pixels(const PixelCopy& copy) {
  for (std::int64_t i = 0; i < copy.count; ++i) {
    std::uint16_t* to = copy.to + i * copy.pixel;
    std::fill(std::copy_n(copy.from + i * copy.from_pixel, copy.channels, to), to + copy.pixel, std::uint16_t{0});
  }
}
#endif

/// Splits the pixels that a vector holds and whose stores, which reach into later pixels, end before `end`. Returns the
/// first of the others.
template <int kParts, class T>
HWY_INLINE std::int64_t split_pixels(const StageRow& row, const T* x, std::int64_t begin, std::int64_t end) {
#if HWY_TARGET == HWY_AVX3
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (row.strip.pixel > lanes) return begin;
  const T* from = x + (row.source.column + begin) * row.source.pixel;
  std::uint16_t* to = row.strip.first + begin * row.strip.pixel;
  const int channels = static_cast<int>(row.source.channels);
  for (; (end - begin) * row.strip.pixel >= lanes; ++begin) {
    split_vector<kParts>(d, load_first_as_f32(d, from, channels), row.strip.part, to);
    from += row.source.pixel;
    to += row.strip.pixel;
  }
#else
  static_cast<void>(row), static_cast<void>(x), static_cast<void>(end);
#endif
  return begin;
}

/// Pixels [begin, end) of the strip, all inside the image.
template <int kParts, class T>
HWY_INLINE void stage_pixels(const StageRow& row, const T* x, std::int64_t begin, std::int64_t end) {
  if constexpr (kParts == 1) {
    const T* from = x + (row.source.column + begin) * row.source.pixel;
    std::uint16_t* strip = row.strip.first + begin * row.strip.pixel;
    if (row.source.channels == row.strip.pixel && row.source.channels == row.source.pixel) {
      std::copy_n(from, (end - begin) * row.strip.pixel, strip);
      return;
    }
    if (row.strip.whole_blocks && row.source.channels == row.strip.pixel) {
      return copy_eights(from, row.source.pixel, end - begin, strip, row.strip.pixel, row.source.channels);
    }
    if (row.source.channels == 3 && row.source.pixel == 3) begin += spread_pixels(from, end - begin, strip);
    return copy_pixels({.from = x + (row.source.column + begin) * row.source.pixel,
                        .from_pixel = row.source.pixel,
                        .channels = row.source.channels,
                        .count = end - begin,
                        .to = row.strip.first + begin * row.strip.pixel,
                        .pixel = row.strip.pixel});
  } else {
    begin = split_pixels<kParts>(row, x, begin, end);
    const std::int64_t group = kChannels / row.strip.pixel;
    for (; begin < end; begin += group) {
      const std::int64_t count = std::min(group, end - begin);
      const T* from = x + (row.source.column + begin) * row.source.pixel;
      T elements[kChannels] = {};
      for (std::int64_t i = 0; i < count; ++i) {
        std::copy_n(from + i * row.source.pixel, row.source.channels, elements + i * row.strip.pixel);
      }
      std::uint16_t parts[kParts * kChannels];
      write_position<kParts>(elements, kChannels, parts);
      for (int p = 0; p < kParts; ++p) {
        std::copy_n(parts + p * kChannels, count * row.strip.pixel,
                    row.strip.first + p * row.strip.part + begin * row.strip.pixel);
      }
    }
  }
}

template <int kParts, class T>
HWY_INLINE void stage_folded(const StageRow& row, const T* x) {
  const TapRange inside = row.source.inside(row.strip.columns);
  if (inside.begin == inside.end) return zero_pixels<kParts>(row, 0, row.strip.columns);
  zero_pixels<kParts>(row, 0, inside.begin);
  stage_pixels<kParts>(row, x, inside.begin, inside.end);
  zero_pixels<kParts>(row, inside.end, row.strip.columns);
}

/// Copies fewer than 32 channels and adds zeros, in one masked load. False where the target has none.
template <class T>
HWY_INLINE bool copy_channels(const T* x, std::int64_t channels, std::uint16_t* strip) {
#if HWY_TARGET == HWY_AVX3
  const hn::FixedTag<std::uint16_t, kChannels> d;
  const auto first = hn::FirstN(d, static_cast<std::size_t>(channels));
  hn::StoreU(hn::MaskedLoad(first, d, reinterpret_cast<const std::uint16_t*>(x)), d, strip);
  return true;
#else
  static_cast<void>(x), static_cast<void>(channels), static_cast<void>(strip);
  return false;
#endif
}

template <int kParts, class T>
HWY_INLINE void stage_block(const StageRow& row, const TapRange& inside, const T* x, std::int64_t channels,
                            std::uint16_t* strip) {
  if (inside.begin == inside.end) return zero_positions<kParts>(row, strip, 0, row.strip.columns);
  zero_positions<kParts>(row, strip, 0, inside.begin);
  const T* from = x + (row.source.column + inside.begin * row.source.step) * row.source.pixel;
  const std::int64_t pitch = row.source.step * row.source.pixel;
  if constexpr (kParts > 1) {
    if (row.split != nullptr) {
      row.split({from, pitch, inside.end - inside.begin, channels, strip + inside.begin * row.strip.position,
                 row.strip.part});
      return zero_positions<kParts>(row, strip, inside.end, row.strip.columns);
    }
  } else if (row.strip.whole_blocks) {
    copy_eights(from, pitch, inside.end - inside.begin, strip + inside.begin * row.strip.position, row.strip.position,
                channels);
    return zero_positions<kParts>(row, strip, inside.end, row.strip.columns);
  }
  const std::int64_t elements = std::min<std::int64_t>(kChannels, row.strip.position);
  for (std::int64_t i = inside.begin; i < inside.end; ++i, from += pitch) {
    if (channels == kChannels) {
      write_position<kParts>(from, row.strip.part, strip + i * row.strip.position);
    } else if (kParts == 1 && elements == kChannels && copy_channels(from, channels, strip + i * row.strip.position)) {
      continue;
    } else if constexpr (kParts == 1) {
      std::uint16_t* to = strip + i * row.strip.position;
      std::fill(std::copy_n(from, channels, to), to + elements, std::uint16_t{0});
    } else {
      T lanes[kChannels] = {};
      std::copy_n(from, channels, lanes);
      write_position<kParts>(lanes, row.strip.part, strip + i * row.strip.position);
    }
  }
  zero_positions<kParts>(row, strip, inside.end, row.strip.columns);
}

template <int kParts, class T>
void stage_row(const StageRow& row) {
  const T* x = static_cast<const T*>(row.source.x);
  if (row.strip.pixel > 0) return stage_folded<kParts>(row, x);
  const TapRange inside = row.source.inside(row.strip.columns);
  for (std::int64_t block = 0; block < row.strip.blocks; ++block) {
    const std::int64_t first = block + 1 == row.strip.blocks ? row.strip.last_block : block * row.strip.block_channels;
    const std::int64_t channels = std::min(row.strip.block_channels, row.source.channels - first);
    stage_block<kParts>(row, inside, x + (x == nullptr ? 0 : first), channels,
                        row.strip.first + block * row.strip.block);
  }
}

#if HWY_TARGET == HWY_AVX3
/// The lanes of a block that columns `taps` of a kernel row fill, whose first channel would be lane `first`.
HWY_INLINE std::uint32_t lanes_of(std::int64_t first, const bf16::WindowRow& row, const TapRange& taps) {
  const std::int64_t begin = std::clamp<std::int64_t>(first + taps.begin * row.channels, 0, row.block_channels);
  const std::int64_t end = std::clamp<std::int64_t>(first + taps.end * row.channels, begin, row.block_channels);
  return static_cast<std::uint32_t>(((std::uint64_t{1} << end) - 1) & ~((std::uint64_t{1} << begin) - 1));
}

/// The kernel rows of a window in one block, for the columns that read the image: each is a masked load.
class BlockRows {
 public:
  BlockRows(const bf16::WindowRow& row, std::int64_t block, const TapRange& taps) {
    const std::int64_t block_first = row.first_channel(block);
    for (std::int64_t kh = row.kernel_rows.begin; kh < row.kernel_rows.end; ++kh) {
      const std::int64_t row_first = kh * row.row_channels() - block_first;
      const std::uint32_t lanes = lanes_of(row_first, row, taps);
      if (lanes == 0) continue;  // each row that is kept fills lanes of its own, so there are at most kChannels
      offsets_[count_] = (kh - row.kernel_rows.begin) * row.pitch - row_first;
      masks_[count_++] = lanes;
    }
  }
  /// `x`: the window's first pixel in the first kernel row that reads the image.
  HWY_INLINE void gather(const std::uint16_t* x, std::uint16_t* to) const {
    __m512i all = _mm512_setzero_si512();
    for (int i = 0; i < count_; ++i) all = _mm512_mask_loadu_epi16(all, masks_[i], x + offsets_[i]);
    _mm512_storeu_si512(to, all);
  }
  /// The windows of `count` outputs, `step` elements of input and `position` elements of the strip apart.
  void gather(const std::uint16_t* x, std::int64_t step, std::uint16_t* to, std::int64_t position,
              std::int64_t count) const {
    if (count_ == 1) return gather_few<1>(x, step, to, position, count);
    if (count_ == 2) return gather_few<2>(x, step, to, position, count);
    if (count_ == 3) return gather_few<3>(x, step, to, position, count);
    for (std::int64_t i = 0; i < count; ++i) gather(x + i * step, to + i * position);
  }

 private:
  template <int kRows>
  void gather_few(const std::uint16_t* x, std::int64_t step, std::uint16_t* to, std::int64_t position,
                  std::int64_t count) const {
    std::int64_t offsets[kRows];
    __mmask32 masks[kRows];
    std::copy_n(offsets_, kRows, offsets);
    std::copy_n(masks_, kRows, masks);
    for (std::int64_t i = 0; i < count; ++i, x += step, to += position) {
      __m512i all = _mm512_maskz_loadu_epi16(masks[0], x + offsets[0]);
      for (int row = 1; row < kRows; ++row) all = _mm512_mask_loadu_epi16(all, masks[row], x + offsets[row]);
      _mm512_storeu_si512(to, all);
    }
  }

  int count_ = 0;
  std::int64_t offsets_[kChannels];
  std::uint32_t masks_[kChannels];
};

void gather_windows(const bf16::WindowRow& row) {
  const TapRange all{0, row.kernel_columns};
  // The outputs whose columns all read the image.
  const std::int64_t begin = std::min(row.outputs, row.column >= 0 ? 0 : ceil_div(-row.column, row.stride));
  const std::int64_t room = row.width - row.kernel_columns - row.column;
  const std::int64_t end = room < 0 ? begin : std::clamp(room / row.stride + 1, begin, row.outputs);
  for (std::int64_t block = 0; block < row.blocks; ++block) {
    std::uint16_t* to = row.strip + block * kChannels;
    const std::uint16_t* x = row.x + row.column * row.channels;
    const std::int64_t step = row.stride * row.channels;
    const auto edge = [&](std::int64_t i) {
      const TapRange taps = taps_inside(row.column + i * row.stride, row.width, 1, row.kernel_columns);
      BlockRows(row, block, taps).gather(x + i * step, to + i * row.position);
    };
    for (std::int64_t i = 0; i < begin; ++i) edge(i);
    const BlockRows whole(row, block, all);
    whole.gather(x + begin * step, step, to + begin * row.position, row.position, end - begin);
    for (std::int64_t i = end; i < row.outputs; ++i) edge(i);
  }
}
#else
void gather_windows(const bf16::WindowRow& row) {
  for (std::int64_t i = 0; i < row.outputs; ++i) {
    const std::int64_t column = row.column + i * row.stride;
    const TapRange taps = taps_inside(column, row.width, 1, row.kernel_columns);
    std::uint16_t* const position = row.strip + i * row.position;
    std::fill_n(position, row.blocks * kChannels, std::uint16_t{0});
    for (std::int64_t block = 0; block < row.blocks; ++block) {
      for (std::int64_t channel = 0; channel < row.block_channels; ++channel) {
        const std::int64_t at = row.first_channel(block) + channel;
        const std::int64_t kh = at / row.row_channels(), kw = at % row.row_channels() / row.channels;
        if (kh < row.kernel_rows.begin || kh >= row.kernel_rows.end || kw < taps.begin || kw >= taps.end) continue;
        const std::uint16_t* x = row.x + (kh - row.kernel_rows.begin) * row.pitch + column * row.channels;
        position[block * kChannels + channel] = x[at % row.row_channels()];
      }
    }
  }
}
#endif

/// One vector of accumulators after pool, bias and activation.
template <class D>
HWY_INLINE hn::Vec<D> epilogue_vector(D d, const Epilogue& call, std::int64_t pixel, std::int64_t lane) {
  const float* accumulators = call.accumulators + lane;
  hn::Vec<D> value;
  if (call.accumulators_below == nullptr) {
    value = hn::LoadU(d, accumulators + pixel * kLanes);
  } else {
    const std::int64_t left = 2 * pixel * kLanes;
    const std::int64_t right = left + kLanes;
    const float* below = call.accumulators_below + lane;
    value = nan_max(d, nan_max(d, hn::LoadU(d, accumulators + left), hn::LoadU(d, accumulators + right)),
                    nan_max(d, hn::LoadU(d, below + left), hn::LoadU(d, below + right)));
  }
  if (call.bias != nullptr) value = hn::Add(value, hn::LoadU(d, call.bias + lane));
  if (call.activation == Activation::relu) value = relu(d, value);
  if (call.activation == Activation::tanh) value = hn::CallTanh(d, value);
  return value;
}

/// Writes all 32 lanes of a pixel with non-temporal stores of whole vectors.
template <DType kType, class D>
HWY_INLINE void stream_pixel(D d, const Epilogue& call, std::int64_t pixel, Storage<kType>* y) {
  const int lanes = static_cast<int>(hn::Lanes(d));
  if constexpr (kType == DType::f32) {
    for (int lane = 0; lane < kLanes; lane += lanes) {
      hn::Stream(epilogue_vector(d, call, pixel, lane), d, y + lane);
    }
  } else {
#if HWY_TARGET == HWY_SCALAR
    for (int lane = 0; lane < kLanes; ++lane) store_f32_as<kType>(d, epilogue_vector(d, call, pixel, lane), y + lane);
#else
    const hn::Repartition<std::uint16_t, D> whole;
    for (int lane = 0; lane < kLanes; lane += 2 * lanes) {
      const auto low = from_f32<kType>(d, epilogue_vector(d, call, pixel, lane));
      const auto high = from_f32<kType>(d, epilogue_vector(d, call, pixel, lane + lanes));
      hn::Stream(hn::Combine(whole, high, low), whole, y + lane);
    }
#endif
  }
}

template <DType kType>
void epilogue(const Epilogue& call) {
  const hn::ScalableTag<float> d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (std::int64_t pixel = 0; pixel < call.pixels; ++pixel) {
    Storage<kType>* y = static_cast<Storage<kType>*>(call.y) + pixel * call.y_pixel;
    if (call.non_temporal) {
      stream_pixel<kType>(d, call, pixel, y);
      continue;
    }
    for (int lane = 0; lane < call.lanes; lane += lanes) {
      const auto value = epilogue_vector(d, call, pixel, lane);
      if (lane + lanes <= call.lanes) {
        store_f32_as<kType>(d, value, y + lane);
      } else {
        store_first_f32_as<kType>(d, value, y + lane, call.lanes - lane);
      }
    }
  }
}

const Bf16Kernels& bf16_kernels_here() {
  static const Bf16Kernels kernels{.stage_bf16 = &stage_row<1, std::uint16_t>,
                                   .stage_f16 = &stage_row<2, F16>,
                                   .stage_f32 = {nullptr, nullptr, &stage_row<2, float>, &stage_row<3, float>},
                                   .gather = &gather_windows,
                                   .epilogue_bf16 = &epilogue<DType::bf16>,
                                   .epilogue_f16 = &epilogue<DType::f16>,
                                   .epilogue_f32 = &epilogue<DType::f32>};
  return kernels;
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {

const Bf16Kernels& bf16_kernels(const Target& target) { GABLE_CPU_RETURN_OF(target, bf16_kernels_here()); }

}  // namespace gable::cpu
#endif  // HWY_ONCE
