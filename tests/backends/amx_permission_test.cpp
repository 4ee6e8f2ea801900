// When this process asks the system for AMX's tiles. A program of its own, since the permission lasts until it ends.
#include <doctest/doctest.h>
#include <gable/gable.h>

#include "common/bf16_units.h"

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

using namespace gable;

namespace {

/// Whether this process has the permission.
bool has_tiles() {
  std::uint64_t states = 0;
#if defined(__x86_64__)
  constexpr int kPermitted = 0x1022;  // ARCH_GET_XCOMP_PERM
  if (syscall(SYS_arch_prctl, kPermitted, &states) != 0) return false;
#endif
  return (states >> 18 & 1) != 0;
}

Conv2d layer(DType dtype, Layout layout) {
  return {.input = {1, 64, 14, 14}, .weights = {64, 64, 3, 3}, .dtype = dtype, .layout = layout};
}

}  // namespace

TEST_CASE("tiles are asked for by a bf16 layer that AMX takes, and not by f32 layers") {
  if (amx_state() != AmxState::usable) {
    MESSAGE("skipped: this machine has no AMX that processes may use");
    return;
  }
  CHECK(!has_tiles());
  const Device device = open("cpu");
  for (const Layout layout : {Layout::nhwc, Layout::nchw}) {
    device.query(layer(DType::f32, layout));
    device.plan(layer(DType::f32, layout));
  }
  CHECK(!has_tiles());
  device.plan(layer(DType::bf16, Layout::nhwc));
  CHECK(has_tiles());
}
