// See known_kernels.h.
#include "perfcounters/cupti/known_kernels.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "perfcounters/cupti/context.h"
#include "perfcounters/sources/gpu_profiler.h"

namespace gable::cupti {
namespace {

// Parameters: source, destination. A thread moves 16 bytes.
constexpr const char* kCopy = R"(
.version 6.3
.target sm_70
.address_size 64
.visible .entry copy(.param .u64 from, .param .u64 to) {
  .reg .u32 %r<8>;
  .reg .u64 %a<4>;
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r3, %r0, %r1, %r2;
  mul.wide.u32 %a0, %r3, 16;
  ld.param.u64 %a1, [from];
  ld.param.u64 %a2, [to];
  add.u64 %a1, %a1, %a0;
  add.u64 %a2, %a2, %a0;
  ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%a1];
  st.global.v4.u32 [%a2], {%r4, %r5, %r6, %r7};
  ret;
}
)";

// Parameters: destination, rounds. A thread does 8 fused multiply-adds a round.
constexpr const char* kFma = R"(
.version 6.3
.target sm_70
.address_size 64
.visible .entry fma_chain(.param .u64 to, .param .u32 rounds) {
  .reg .u32 %r<6>;
  .reg .u64 %a<3>;
  .reg .f32 %f<5>;
  .reg .pred %p;
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r3, %r0, %r1, %r2;
  cvt.rn.f32.u32 %f0, %r3;
  mov.f32 %f1, %f0;
  mov.f32 %f2, 0f3F7FFFFF;
  mov.f32 %f3, 0f3A83126F;
  ld.param.u32 %r4, [rounds];
again:
  fma.rn.f32 %f0, %f0, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f0, %f0, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f0, %f0, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  fma.rn.f32 %f0, %f0, %f2, %f3;
  fma.rn.f32 %f1, %f1, %f2, %f3;
  sub.u32 %r4, %r4, 1;
  setp.ne.u32 %p, %r4, 0;
  @%p bra again;
  max.f32 %f0, %f0, %f1;
  mul.wide.u32 %a0, %r3, 4;
  ld.param.u64 %a1, [to];
  add.u64 %a1, %a1, %a0;
  st.global.f32 [%a1], %f0;
  ret;
}
)";

// Parameters: destination, rounds. A warp does 4 products of 16x16 and 16x8 in each round, in bf16 with f32
// accumulators.
constexpr const char* kMatrix = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry mma_chain(.param .u64 to, .param .u32 rounds) {
  .reg .b32 %r<8>;
  .reg .u64 %a<3>;
  .reg .f32 %f<9>;
  .reg .pred %p;
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r3, %r0, %r1, %r2;
  and.b32 %r5, %r3, 0x00070007;
  mov.u32 %r6, 0x3c003c00;
  mov.u32 %r7, 0x3c003c00;
  mov.f32 %f0, 0f00000000;
  mov.f32 %f1, %f0;
  mov.f32 %f2, %f0;
  mov.f32 %f3, %f0;
  mov.f32 %f4, %f0;
  mov.f32 %f5, %f0;
  mov.f32 %f6, %f0;
  mov.f32 %f7, %f0;
  ld.param.u32 %r4, [rounds];
again:
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0,%f1,%f2,%f3}, {%r5,%r6,%r7,%r5}, {%r6,%r7}, {%f0,%f1,%f2,%f3};
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f4,%f5,%f6,%f7}, {%r5,%r6,%r7,%r5}, {%r6,%r7}, {%f4,%f5,%f6,%f7};
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0,%f1,%f2,%f3}, {%r5,%r6,%r7,%r5}, {%r6,%r7}, {%f0,%f1,%f2,%f3};
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f4,%f5,%f6,%f7}, {%r5,%r6,%r7,%r5}, {%r6,%r7}, {%f4,%f5,%f6,%f7};
  sub.u32 %r4, %r4, 1;
  setp.ne.u32 %p, %r4, 0;
  @%p bra again;
  add.f32 %f0, %f0, %f1;
  add.f32 %f2, %f2, %f3;
  add.f32 %f4, %f4, %f5;
  add.f32 %f6, %f6, %f7;
  add.f32 %f0, %f0, %f2;
  add.f32 %f4, %f4, %f6;
  add.f32 %f0, %f0, %f4;
  mul.wide.u32 %a0, %r3, 4;
  ld.param.u64 %a1, [to];
  add.u64 %a1, %a1, %a0;
  st.global.f32 [%a1], %f0;
  ret;
}
)";

constexpr unsigned kThreads = 256;  ///< of a block
constexpr std::size_t kCopyBytes = std::size_t{1}
                                   << 30;  ///< what an L2 keeps dirty of it at the end is 1 % of the traffic
constexpr unsigned kBlocks = 2048;
constexpr unsigned kRounds = 4096;
constexpr double kFmasARound = 8;
constexpr double kProductsARound = 4;
constexpr double kFlopAProduct = 2.0 * 16 * 8 * 16;

/// A compiled kernel and the device memory that it works on.
class Kernel {
 public:
  Kernel(CUdevice device, const char* ptx, const char* name, std::size_t buffers, std::size_t bytes)
      : context_(device) {
    const Current current(context_);
    try {
      check(driver().load_module(&module_, ptx), "cuModuleLoadData");
      check(driver().function(&function_, module_, name), "cuModuleGetFunction");
      for (std::size_t i = 0; i < buffers; ++i) {
        check(driver().allocate(&buffers_[i], bytes), "cuMemAlloc");
        check(driver().fill(buffers_[i], static_cast<unsigned char>(0x3c), bytes), "cuMemsetD8");
      }
      check(driver().synchronize(), "cuCtxSynchronize");
    } catch (...) {
      release();
      throw;
    }
  }
  ~Kernel() {
    try {
      const Current current(context_);
      release();
    } catch (const perf::GpuProfilerError&) {
      // The context was destroyed, which freed its memory.
    }
  }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  void run(unsigned blocks, void** parameters) const {
    const Current current(context_);
    check(driver().launch(function_, blocks, 1, 1, kThreads, 1, 1, 0, nullptr, parameters, nullptr), "cuLaunchKernel");
    check(driver().synchronize(), "cuCtxSynchronize");
  }
  CUdeviceptr buffer(std::size_t i) const { return buffers_[i]; }

 private:
  void release() noexcept {
    for (const CUdeviceptr buffer : buffers_) {
      if (buffer != 0) driver().free(buffer);
    }
    if (module_ != nullptr) driver().unload_module(module_);
  }

  PrimaryContext context_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  std::array<CUdeviceptr, 2> buffers_{};
};

perf::KnownWork copy_work(int gpu, CUdevice device) {
  const auto kernel = std::make_shared<Kernel>(device, kCopy, "copy", 2, kCopyBytes);
  perf::KnownWork known;
  known.name = "copy of 1 GiB";
  known.workload.gpu = gpu;
  known.workload.run = [kernel] {
    CUdeviceptr from = kernel->buffer(0), to = kernel->buffer(1);
    void* parameters[] = {&from, &to};
    kernel->run(static_cast<unsigned>(kCopyBytes / 16 / kThreads), parameters);
  };
  const double bytes = 2.0 * static_cast<double>(kCopyBytes);
  known.expected = {
      {perf::Metric::dram_bytes, bytes}, {perf::Metric::l2_bytes, bytes}, {perf::Metric::l1_bytes, bytes}};
  return known;
}

perf::KnownWork chain_work(int gpu, CUdevice device, const char* ptx, const char* entry, const std::string& name,
                           double flop_a_round) {
  const auto kernel = std::make_shared<Kernel>(device, ptx, entry, 1, std::size_t{kBlocks} * kThreads * 4);
  perf::KnownWork known;
  known.name = name;
  known.tolerance = 0.005;
  known.workload.gpu = gpu;
  known.workload.run = [kernel] {
    CUdeviceptr to = kernel->buffer(0);
    unsigned rounds = kRounds;
    void* parameters[] = {&to, &rounds};
    kernel->run(kBlocks, parameters);
  };
  known.expected = {{perf::Metric::flop, flop_a_round * kBlocks * kRounds}};
  return known;
}

}  // namespace

std::vector<perf::KnownWork> known_work(int gpu) {
  const CUdevice device = device_of(gpu);
  std::vector<perf::KnownWork> all;
  all.push_back(copy_work(gpu, device));
  all.push_back(chain_work(gpu, device, kFma, "fma_chain", "chain of FFMA", 2 * kFmasARound * kThreads));
  int major = 0;
  check(driver().attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), "cuDeviceGetAttribute");
  if (major >= 8) {
    constexpr double kWarps = kThreads / 32.0;
    all.push_back(chain_work(gpu, device, kMatrix, "mma_chain", "chain of bf16 mma.sync",
                             kProductsARound * kFlopAProduct * kWarps));
  }
  return all;
}

}  // namespace gable::cupti
