// See grouped_tile.h.
#include "cuda/grouped/grouped_tile.h"

#include <algorithm>

namespace gable::cuda {
namespace {

constexpr int kSlabChannels = 32;  // input channels that a slab of several groups has at most: lines of 128 bytes
constexpr int kMaxLanes = 16;
constexpr int kFloats = 4;  // of a vector

int as_int(std::int64_t value) { return static_cast<int>(value); }

/// Eight output channels a thread read less per product; four fit narrow groups with less padding.
int outputs_of_thread(int group_k) {
  constexpr double kRateOfFour = 0.8;
  const auto waste = [&](int out) { return static_cast<double>(round_up(group_k, out)); };
  return waste(8) <= waste(4) / kRateOfFour ? 8 : 4;
}

/// `parts`: at least so many blocks share a group's output channels.
GroupedSlab slab_of(const Conv2dProblem& p, int parts) {
  GroupedSlab s;
  const int group_k = as_int(p.group_k());
  s.out = outputs_of_thread(group_k);
  s.padded_c = as_int(round_up(p.group_c(), kFloats));
  s.padded_k = as_int(round_up(group_k, s.out));
  const int lanes = s.padded_k / s.out;
  s.parts = std::clamp(parts, as_int(ceil_div(lanes, kMaxLanes)), lanes);
  s.group_lanes = as_int(ceil_div(lanes, s.parts));
  s.groups = std::clamp(std::min(kSlabChannels / s.padded_c, kMaxLanes / s.group_lanes), 1, as_int(p.groups));
  s.slabs = as_int(ceil_div(p.groups, s.groups));
  return s;
}

/// Neighbouring threads read neighbouring rows: their vectors must lie in different banks.
int pitch_of(int columns, int channels) {
  constexpr int kBanks = 32;
  return as_int(round_up(columns * channels - kFloats, kBanks)) + kFloats;
}

GroupedTile tile_of(const Conv2dProblem& p, const GroupedSlab& slab, int strips, int rows, int images) {
  GroupedTile t{.strips = strips, .rows = rows, .images = images};
  t.in_rows = as_int((rows - 1) * p.stride_h + (p.r - 1) * p.dilation_h + 1);
  t.in_columns = as_int((strips * kGroupedPixels - 1) * p.stride_w + (p.s - 1) * p.dilation_w + 1);
  t.pitch = pitch_of(t.in_columns, slab.groups * slab.padded_c);
  t.tiles_x = as_int(ceil_div(p.wo, strips * kGroupedPixels));
  t.tiles_y = as_int(ceil_div(p.ho, rows));
  t.tiles_n = as_int(ceil_div(p.n, images));
  return t;
}

GroupedCut cut_of(const Conv2dProblem& p, const GroupedSlab& slab, const GroupedTile& tile) {
  GroupedCut c{.slab = slab, .tile = tile};
  const int group_c = as_int(p.group_c());
  const int copies = slab.groups * group_c / (group_c % kFloats == 0 ? kFloats : 1);  // of a pixel, by as many threads
  c.threads = as_int(round_up(std::max(copies, slab.lanes() * tile.strips * tile.rows * tile.images), 32));
  c.weight_floats = as_int(p.r * p.s) * slab.padded_c * slab.lanes() * slab.out;
  c.input_floats = tile.images * tile.in_rows * tile.pitch;
  c.blocks = std::int64_t{tile.tiles_x} * tile.tiles_y * tile.tiles_n * slab.slabs * slab.parts;
  return c;
}

/// Cycles of the busiest multiprocessor or of memory, whichever are more. The constants are fitted to an H200.
double estimate(const Conv2dProblem& p, const GroupedCut& c, int multiprocessors, int shared_bytes) {
  constexpr double kStart = 4000;        // launch, the first tile's load and the last one's store
  constexpr double kTile = 2500;         // of a block: copies of weights and input, addresses, barriers, epilogue
  constexpr double kRate = 0.55;         // of an FMA a cycle and thread's lane
  constexpr double kLoadBytes = 32;      // a cycle, from L2 to one multiprocessor
  constexpr double kDeviceBytes = 2300;  // a cycle, of device memory
  constexpr int kSchedulers = 4, kRegisters = 128, kReserved = 1024, kWarpsForRate = 8;
  const auto blocks = static_cast<int>(ceil_div(c.blocks, multiprocessors));
  const int fitting = std::min(shared_bytes / (c.shared_bytes() + kReserved), 65536 / (kRegisters * c.threads));
  const int warps = c.threads / 32, resident = std::clamp(fitting, 1, blocks);
  const double full = std::min(1.0, static_cast<double>(warps * resident) / kWarpsForRate);
  const auto products = static_cast<double>(kGroupedPixels * c.slab.out * c.slab.padded_c * p.r * p.s);
  const double multiply = warps * products / kSchedulers / (kRate * full);
  const double load = c.shared_bytes() / kLoadBytes;
  const double block = (resident > 1 ? std::max(multiply, load) : multiply + load) + kTile;
  const double bytes = static_cast<double>(p.x_elements() + p.y_elements()) * static_cast<double>(size_of(p.dtype));
  return kStart + std::max(blocks * block, bytes / kDeviceBytes);
}

void consider_tiles(const Conv2dProblem& p, const GroupedSlab& slab, int multiprocessors, int shared_bytes,
                    std::optional<GroupedCut>& best) {
  const int all_strips = as_int(ceil_div(p.wo, kGroupedPixels));
  const int most = kGroupedMostThreads / slab.lanes();  // strips in all
  for (int strips = 1; strips <= std::min(all_strips, most); ++strips) {
    const int most_rows = as_int(std::min<std::int64_t>(p.ho, most / strips));
    for (int rows = 1; rows <= most_rows; ++rows) {
      const bool whole = rows == p.ho && strips == all_strips;
      const int most_images = whole ? as_int(std::min<std::int64_t>(p.n, most / (strips * rows))) : 1;
      for (int images = 1; images <= most_images; ++images) {
        GroupedCut cut = cut_of(p, slab, tile_of(p, slab, strips, rows, images));
        if (cut.shared_bytes() > shared_bytes || cut.threads > kGroupedMostThreads) break;
        cut.cycles = estimate(p, cut, multiprocessors, shared_bytes);
        if (!best || cut.cycles < best->cycles) best = cut;
      }
    }
  }
}

}  // namespace

std::optional<GroupedCut> find_grouped_cut(const Conv2dProblem& p, int multiprocessors, int shared_bytes) {
  std::optional<GroupedCut> best;
  for (const int parts : {1, 2, 4}) {  // fewer weights a block, the input read more often
    consider_tiles(p, slab_of(p, parts), multiprocessors, shared_bytes, best);
  }
  return best;
}

}  // namespace gable::cuda
