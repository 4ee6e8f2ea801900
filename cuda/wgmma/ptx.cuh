// The sm_90a instructions that the wgmma kernel is made of: mbarriers, bulk and tensor copies, the warpgroup matrix
// product, register reallocation, transposing stores. One thin function an instruction; nothing here knows of
// convolutions. Addresses of shared memory are the 32-bit ones of the shared window.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace gable::cuda::ptx {

/// f32 operands; the matrix unit reads their tf32 bits.
struct Tf32 {};

__device__ inline std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

/// Whether this is the one thread of the warp that is elected; all its threads must call it.
__device__ inline bool is_elected() {
  std::uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred one;\n"
      "elect.sync _|one, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, one;\n"
      "}\n"
      : "=r"(elected));
  return elected != 0;
}

// ---- mbarrier ----
__device__ inline void init_barrier(std::uint32_t barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ inline void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void arrive_expect_bytes(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
/// Returns once the phase of this parity has completed.
__device__ inline void wait(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "retry:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra retry;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
/// Whether the phase of this parity has completed; does not wait.
__device__ inline bool is_complete(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t complete;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n"
      "}\n"
      : "=r"(complete)
      : "r"(barrier), "r"(parity)
      : "memory");
  return complete != 0;
}

/// The address of the same place in the shared memory of the cluster's block `rank`.
__device__ inline std::uint32_t remote_address(std::uint32_t address, std::uint32_t rank) {
  std::uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}
/// Stores 16 bytes in a block's shared memory, and counts them at a barrier of that block. An arrival that releases
/// ordinary stores to the cluster takes some 600 cycles.
__device__ inline void store_remote(std::uint32_t to, float a, float b, float c, float d, std::uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "f"(a), "f"(b), "f"(c), "f"(d), "r"(barrier)
               : "memory");
}
__device__ inline float4 load_vector(std::uint32_t from) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(from)
               : "memory");
  return v;
}
/// As wait(); acquires what the cluster's arrivals released.
__device__ inline void wait_cluster(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "retry:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra retry;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
/// All threads of the cluster. Orders no writes but those of fence_barrier_init().
__device__ inline void sync_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory");
}

// ---- launches ----
/// Lets the stream's next kernel start as this one's blocks exit, if it was launched with programmatic serialization.
__device__ inline void allow_next_kernel() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
/// Returns once the kernels before this one have ended and their writes are visible.
__device__ inline void wait_for_previous_kernel() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// ---- named barriers ----
__device__ inline void named_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline void named_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// ---- copies ----
__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
__device__ inline void load_bulk(std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
__device__ inline void load_box(std::uint32_t to, const CUtensorMap& map, int c, int x, int y, int n,
                                std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(to),
      "l"(&map), "r"(c), "r"(x), "r"(y), "r"(n), "r"(barrier)
      : "memory");
}
/// Gathers the input pixels at tap (dx, dy) of consecutive output pixels, the first of which has its filter at (x, y).
/// The map holds their number.
__device__ inline void load_pixels_of_tap(std::uint32_t to, const CUtensorMap& map, int c, int x, int y, int n,
                                          short dx, short dy, std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, "
      "%5}], [%6], {%7, %8};" ::"r"(to),
      "l"(&map), "r"(c), "r"(x), "r"(y), "r"(n), "r"(barrier), "h"(dx), "h"(dy)
      : "memory");
}
__device__ inline void store_box(const CUtensorMap& map, int c, int x, int y, int n, std::uint32_t from) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(&map),
               "r"(c), "r"(x), "r"(y), "r"(n), "r"(from)
               : "memory");
}
/// The same of a map with windows of channels: `window` is where a window begins, in vectors of 16 bytes.
__device__ inline void store_window(const CUtensorMap& map, int c, int window, int x, int y, int n,
                                    std::uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3, %4, %5}], [%6];" ::"l"(&map),
      "r"(c), "r"(window), "r"(x), "r"(y), "r"(n), "r"(from)
      : "memory");
}
__device__ inline void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Returns once all but the newest `pending` groups of stores have read their shared memory.
template <int pending>
__device__ inline void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
/// Makes this thread's ordinary writes to shared memory visible to the copy engine and the matrix unit.
__device__ inline void fence_shared_for_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/// Stores 8x8 matrices of 16-bit elements transposed: lane i's address takes column i % 8 of matrix i / 8.
__device__ inline void store_transposed(std::uint32_t to, std::uint32_t a, std::uint32_t b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(a), "r"(b) : "memory");
}
__device__ inline void store_transposed(std::uint32_t to, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                        std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}
__device__ inline void store_word(std::uint32_t to, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(value) : "memory");
}
/// An element of 16 bits.
__device__ inline std::uint16_t load_half(std::uint32_t from) {
  std::uint16_t value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(from) : "memory");
  return value;
}
__device__ inline std::uint32_t load_word(std::uint32_t from) {
  std::uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(from) : "memory");
  return value;
}

// ---- registers ----
template <int count>
__device__ inline void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

// ---- warpgroup matrix product ----
__device__ inline void fence_operands() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int pending>
__device__ inline void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

/// Keeps the compiler from moving reads of the accumulators before the preceding wait_products().
template <int count>
__device__ inline void fence_sums(float (&sums)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

/// Operand in shared memory with 128-byte swizzle: rows of 128 bytes along the reduction, groups of eight contiguous
/// rows, and `group_pitch` bytes from group to group.
__device__ inline std::uint64_t operand_descriptor(std::uint32_t address, std::uint32_t group_pitch) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  return kSwizzle128 | (static_cast<std::uint64_t>(group_pitch >> 4) << 32) | (std::uint64_t{1} << 16) |
         ((address & 0x3FFFF) >> 4);
}

/// d (64 x pixels, 32-bit) = a (64 x 32 bytes) * b (pixels x 32 bytes)^T, plus d unless `accumulate` is 0.
template <typename T, int pixels>
__device__ void multiply(float (&d)[pixels / 2], std::uint64_t a, std::uint64_t b, int accumulate);

#define GABLE_NAMES_0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define GABLE_NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define GABLE_NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define GABLE_NAMES_48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define GABLE_NAMES_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define GABLE_NAMES_80 ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define GABLE_NAMES_96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define GABLE_NAMES_112 ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define GABLE_NAMES_OF_64 GABLE_NAMES_0 GABLE_NAMES_16
#define GABLE_NAMES_OF_96 GABLE_NAMES_OF_64 GABLE_NAMES_32
#define GABLE_NAMES_OF_112 GABLE_NAMES_OF_96 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define GABLE_NAMES_OF_128 GABLE_NAMES_OF_96 GABLE_NAMES_48
#define GABLE_NAMES_OF_160 GABLE_NAMES_OF_128 GABLE_NAMES_64
#define GABLE_NAMES_OF_192 GABLE_NAMES_OF_160 GABLE_NAMES_80
#define GABLE_NAMES_OF_224 GABLE_NAMES_OF_192 GABLE_NAMES_96
#define GABLE_NAMES_OF_256 GABLE_NAMES_OF_224 GABLE_NAMES_112
#define GABLE_D4(i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define GABLE_D16(i) GABLE_D4(i), GABLE_D4((i) + 4), GABLE_D4((i) + 8), GABLE_D4((i) + 12)
#define GABLE_D_OF_64 GABLE_D16(0), GABLE_D16(16)
#define GABLE_D_OF_96 GABLE_D_OF_64, GABLE_D16(32)
#define GABLE_D_OF_112 GABLE_D_OF_96, GABLE_D4(48), GABLE_D4(52)
#define GABLE_D_OF_128 GABLE_D_OF_96, GABLE_D16(48)
#define GABLE_D_OF_160 GABLE_D_OF_128, GABLE_D16(64)
#define GABLE_D_OF_192 GABLE_D_OF_160, GABLE_D16(80)
#define GABLE_D_OF_224 GABLE_D_OF_192, GABLE_D16(96)
#define GABLE_D_OF_256 GABLE_D_OF_224, GABLE_D16(112)

#define GABLE_MULTIPLY(T, pixels, shape_and_types, majors, a_name, b_name, accumulate_name)           \
  template <>                                                                                         \
  __device__ inline void multiply<T, pixels>(float(&d)[pixels / 2], std::uint64_t a, std::uint64_t b, \
                                             int accumulate) {                                        \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " accumulate_name                                  \
                 ", 0;\nwgmma.mma_async.sync.aligned." shape_and_types " {" GABLE_NAMES_OF_##pixels   \
                 "}, " a_name ", " b_name ", p, 1, 1" majors ";\n}\n"                                 \
                 : GABLE_D_OF_##pixels                                                                \
                 : "l"(a), "l"(b), "r"(accumulate));                                                  \
  }
#define GABLE_MULTIPLY_TYPES(pixels, a_name, b_name, accumulate_name)                                                  \
  GABLE_MULTIPLY(__half, pixels, "m64n" #pixels "k16.f32.f16.f16", ", 0, 0", a_name, b_name, accumulate_name)          \
  GABLE_MULTIPLY(__nv_bfloat16, pixels, "m64n" #pixels "k16.f32.bf16.bf16", ", 0, 0", a_name, b_name, accumulate_name) \
  GABLE_MULTIPLY(Tf32, pixels, "m64n" #pixels "k8.f32.tf32.tf32", "", a_name, b_name, accumulate_name)
GABLE_MULTIPLY_TYPES(64, "%32", "%33", "%34")
GABLE_MULTIPLY_TYPES(96, "%48", "%49", "%50")
GABLE_MULTIPLY_TYPES(112, "%56", "%57", "%58")
GABLE_MULTIPLY_TYPES(128, "%64", "%65", "%66")
GABLE_MULTIPLY_TYPES(160, "%80", "%81", "%82")
GABLE_MULTIPLY_TYPES(192, "%96", "%97", "%98")
GABLE_MULTIPLY_TYPES(224, "%112", "%113", "%114")
GABLE_MULTIPLY_TYPES(256, "%128", "%129", "%130")
#undef GABLE_MULTIPLY_TYPES
#undef GABLE_MULTIPLY

}  // namespace gable::cuda::ptx
