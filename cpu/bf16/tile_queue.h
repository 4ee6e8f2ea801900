// Tiles one after another, where a tile's epilogues run between the next tile's products or after them: vector
// instructions then run while the tile unit works, and do not wait for the accumulators' stores.
#pragma once

#include "cpu/bf16/blocking.h"
#include "cpu/bf16/tile.h"

namespace gable::cpu::bf16 {

class TileQueue {
 public:
  /// `accumulators`: of kTilesAlive tiles, kTileFloats each.
  TileQueue(TileFunction function, float* accumulators, bool prefetches_output)
      : function_(function), accumulators_(accumulators), prefetches_output_(prefetches_output) {}
  TileQueue(const TileQueue&) = delete;
  TileQueue& operator=(const TileQueue&) = delete;

  /// The next tile. The caller sets its operands, taps, blocks and positions.
  Tile& tile() { return tile_; }
  const Tile& tile() const { return tile_; }
  /// Where the next tile's accumulators will be.
  const float* accumulators() const { return accumulators_ + now_ * kTileFloats; }

  /// An epilogue of the next tile, before multiply().
  void add(const Epilogue& epilogue) {
    PendingEpilogues& pending = pending_[now_];
    pending.calls[pending.count++] = epilogue;
  }

  void multiply() {
    PendingEpilogues& own = pending_[now_];
    tile_.accumulators = accumulators_ + now_ * kTileFloats;
    tile_.overlap.next = own.calls;
    tile_.overlap.next_count = prefetches_output_ ? own.count : 0;
    now_ = 1 - now_;
    tile_.overlap.previous = &pending_[now_];
    function_(tile_);
    run_all(pending_[now_]);
  }

  /// The first half alone, `repeats` times. The caller also sets the accumulators. With an epilogue, the unit runs it
  /// in registers.
  void multiply_half(const Epilogue* epilogue) {
    tile_.positions[1] = 0;
    tile_.register_epilogue = epilogue;
    function_(tile_);
    tile_.register_epilogue = nullptr;
  }
  float* first_accumulators() const { return accumulators_; }

  /// Runs the last tile's epilogues.
  void drain() { run_all(pending_[1 - now_]); }

 private:
  static void run_all(PendingEpilogues& pending) {
    for (int i = 0; i < pending.count; ++i) pending.calls[i].run(pending.calls[i]);
    pending.count = 0;
  }

  TileFunction function_;
  float* accumulators_;
  bool prefetches_output_;
  Tile tile_{};
  PendingEpilogues pending_[kTilesAlive];
  std::int64_t now_ = 0;  // which accumulators and epilogues belong to the next tile
};

}  // namespace gable::cpu::bf16
