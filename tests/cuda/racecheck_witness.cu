// What compute-sanitizer's racecheck makes of an exchange between the two blocks of a cluster, as wgmma's epilogue does
// it: each thread stores 16 bytes into the other block's shared memory, then reads those that it got. The argument says
// what orders the two, and the number of wrong values is printed. "cluster": barrier.cluster. "arrive": a remote
// mbarrier.arrive.release.cluster after the stores, try_wait.acquire.cluster before the loads. "named": the same among
// half of the block's threads, by a named barrier and an arrival at both blocks, which is what wgmma's consumers do.
// "tx": st.async, which completes bytes of the reader's mbarrier. These are right; "none" orders nothing.
// bench/gpu_check.sh excuses a kind of report about wgmma only where "named" gets it too, "cluster" gets none and
// "none" is seen.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

namespace {

constexpr int kThreads = 128;  // that exchange; "named" has as many that do not
enum class Way { cluster, arrive, named, tx, none };

__device__ std::uint32_t remote(std::uint32_t address, std::uint32_t rank) {
  std::uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
__device__ void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
__device__ void wait(std::uint32_t barrier) {
  asm volatile(
      "{\n.reg .pred done;\nretry:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
      "@!done bra retry;\n}\n" ::"r"(barrier)
      : "memory");
}

template <Way way>
__global__ void __cluster_dims__(2) exchange(float4* out) {
  __shared__ float4 inbox[2 * kThreads];
  __shared__ alignas(8) std::uint64_t ready;
  const auto mine = static_cast<std::uint32_t>(__cvta_generic_to_shared(inbox + threadIdx.x));
  const auto barrier = static_cast<std::uint32_t>(__cvta_generic_to_shared(&ready));
  const std::uint32_t other = 1 - blockIdx.x % 2;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\nfence.mbarrier_init.release.cluster;" ::"r"(barrier),
                 "n"(way == Way::named ? 2 : 1)
                 : "memory");
  }
  __syncthreads();
  sync_cluster();  // the other's barrier is set up
  if (threadIdx.x >= kThreads) return;
  const float value = static_cast<float>(blockIdx.x * kThreads + threadIdx.x);
  if constexpr (way == Way::tx) {
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "n"(16 * kThreads)
                   : "memory");
    }
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %1, %1, %1}, [%2];" ::"r"(
                     remote(mine, other)),
                 "f"(value), "r"(remote(barrier, other))
                 : "memory");
  } else {
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %1, %1, %1};" ::"r"(remote(mine, other)), "f"(value) : "memory");
  }
  if constexpr (way == Way::arrive) {
    __syncthreads();
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(remote(barrier, other))
                   : "memory");
    }
  }
  if constexpr (way == Way::named) {
    asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
    if (threadIdx.x < 2) {
      asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(remote(barrier, threadIdx.x))
                   : "memory");
    }
  }
  if constexpr (way == Way::cluster) sync_cluster();
  if constexpr (way == Way::arrive || way == Way::named || way == Way::tx) wait(barrier);
  float4 got;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(got.x), "=f"(got.y), "=f"(got.z), "=f"(got.w)
               : "r"(mine)
               : "memory");
  out[blockIdx.x * kThreads + threadIdx.x] = got;
  if constexpr (way == Way::none) sync_cluster();  // shared memory outlives the stores into it
}

template <Way way>
int wrong_values() {
  constexpr int kBlocks = 8;
  static float4 got[kBlocks * kThreads];
  float4* out = nullptr;
  cudaMalloc(&out, sizeof(got));
  exchange<way><<<kBlocks, way == Way::named ? 2 * kThreads : kThreads>>>(out);
  if (cudaMemcpy(got, out, sizeof(got), cudaMemcpyDeviceToHost) != cudaSuccess) return -1;
  int wrong = 0;
  for (int i = 0; i < kBlocks * kThreads; ++i) {
    const auto expected = static_cast<float>(i ^ kThreads);  // the same thread of the cluster's other block
    if (got[i].x != expected || got[i].y != expected || got[i].z != expected || got[i].w != expected) ++wrong;
  }
  return wrong;
}

}  // namespace

int main(int count, char** arguments) {
  const char* const way = count == 2 ? arguments[1] : "";
  int wrong = -1;
  if (std::strcmp(way, "cluster") == 0) wrong = wrong_values<Way::cluster>();
  if (std::strcmp(way, "arrive") == 0) wrong = wrong_values<Way::arrive>();
  if (std::strcmp(way, "named") == 0) wrong = wrong_values<Way::named>();
  if (std::strcmp(way, "tx") == 0) wrong = wrong_values<Way::tx>();
  if (std::strcmp(way, "none") == 0) wrong = wrong_values<Way::none>();
  if (wrong < 0) {
    std::fprintf(stderr, "racecheck_witness: cluster, arrive, named, tx or none; %s\n",
                 cudaGetErrorString(cudaGetLastError()));
    return 4;
  }
  std::printf("%s: %d wrong values\n", way, wrong);
  return wrong == 0 || std::strcmp(way, "none") == 0 ? 0 : 1;
}
