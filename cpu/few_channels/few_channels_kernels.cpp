// The few-channel kernels, compiled once a target: the table of few_channels_kernels.h.
#include "cpu/common/per_target.h"
// per_target.h first: it decides what Highway compiles.
#include "cpu/few_channels/few_channels_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/few_channels/few_channels_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "cpu/few_channels/channel_lanes-inl.h"
#include "cpu/few_channels/pixel_lanes-inl.h"
#include "cpu/few_channels/strip-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gable::cpu::HWY_NAMESPACE {

FewChannelsKernels make_few_channels_kernels() {
  FewChannelsKernels kernels{};
  kernels.lanes = static_cast<int>(hn::Lanes(FewD()));
  kernels.pixel_lanes_rows = kFewPixelLanesRows;
  kernels.shares_taps = kFewSharesTaps;
  kernels.max_pixels = {0, kFewTile[1], kFewTile[2]};
  kernels.max_neighbours = kFewSharedTile;
  kernels.max_pair_pixels = {0, kFewPair[1], kFewPair[2]};
  fill_channel_lanes<1, 1, kFewTile[1]>(kernels.row[1]);
  fill_channel_lanes<1, 2, kFewTile[2]>(kernels.row[2]);
  fill_channel_lanes<2, 1, kFewPair[1]>(kernels.row_pair[1]);
  fill_channel_lanes<2, 2, kFewPair[2]>(kernels.row_pair[2]);
  kernels.pixel_lanes = &pixel_lanes_rows<false>;
  kernels.pixel_lanes_pool = &pixel_lanes_rows<true>;
  kernels.interleave = &interleave;
  kernels.fill_strip_split = {&fill_strip<DType::f32, true>, &fill_strip<DType::f16, true>,
                              &fill_strip<DType::bf16, true>};
  kernels.fill_strip_rows = {&fill_strip<DType::f32, false>, &fill_strip<DType::f16, false>,
                             &fill_strip<DType::bf16, false>};
  kernels.finish = {&finish<DType::f32>, &finish<DType::f16>, &finish<DType::bf16>};
  return kernels;
}

const FewChannelsKernels& few_channels_kernels_here() {
  static const FewChannelsKernels kernels = make_few_channels_kernels();
  return kernels;
}

}  // namespace gable::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gable::cpu {

const FewChannelsKernels& few_channels_kernels(const Target& target) {
  GABLE_CPU_RETURN_OF(target, few_channels_kernels_here());
}

}  // namespace gable::cpu
#endif  // HWY_ONCE
