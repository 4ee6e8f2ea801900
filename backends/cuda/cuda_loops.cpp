// See cuda_loops.h. Each block goes over its own part, and all blocks run at once. Passes after the first hit a cache
// if it holds the whole working set.
#include "backends/cuda/cuda_loops.h"

#include <algorithm>
#include <vector>

#include "cuda/studies/bandwidth.h"
#include "cuda/studies/ceilings.h"
#include "cuda/studies/pagerank.h"

namespace gable {
namespace {

using Movement = MemoryLoop::Movement;

class CudaLoop : public LoopImpl {
 public:
  CudaLoop(LoopDetails details, const CudaDevice& device, std::string name)
      : LoopImpl(std::move(details)), where_(device.uri() + ": " + std::move(name)), index_(device.index()) {}

  void run(int passes, void* stream) final {
    reporting(where_, [&] {
      const CurrentDevice current(index_);
      launch(passes, static_cast<cudaStream_t>(stream));
    });
  }

 protected:
  virtual void launch(int passes, cudaStream_t stream) = 0;
  const std::string& where() const { return where_; }
  int index() const { return index_; }

 private:
  std::string where_;
  int index_;
};

/// One block for each multiprocessor, so that all run at once, with as many threads (up to 1024) as the bytes keep
/// busy.
cuda::MemorySweep sweep_of(std::int64_t array_bytes, const cudaDeviceProp& device) {
  constexpr std::int64_t bytes_a_thread = 64;
  const std::int64_t most_blocks = device.multiProcessorCount;
  cuda::MemorySweep sweep{.blocks = 1, .threads = 32};
  while (sweep.threads < 1024 && array_bytes >= 2 * sweep.threads * bytes_a_thread * most_blocks) sweep.threads *= 2;
  const std::int64_t round_bytes = sweep.threads * bytes_a_thread;
  const std::int64_t rounds = array_bytes / round_bytes;
  if (rounds == 0) {
    throw Error(ErrorCode::unsupported, "an array of " + std::to_string(array_bytes) + " bytes: a warp moves " +
                                            std::to_string(round_bytes) + " at least");
  }
  const std::int64_t rounds_a_block = (rounds + most_blocks - 1) / most_blocks;
  sweep.blocks = static_cast<int>(rounds / rounds_a_block);
  sweep.block_bytes = rounds_a_block * round_bytes;
  return sweep;
}

class SweepLoop final : public CudaLoop {
 public:
  SweepLoop(const CudaDevice& device, cuda::MemoryLoop loop, const cuda::MemorySweep& sweep)
      : CudaLoop(details_of(loop, sweep), device, "memory loop"), loop_(loop), sweep_(sweep) {
    const auto bytes = static_cast<std::size_t>(sweep.block_bytes) * static_cast<std::size_t>(sweep.blocks);
    a_ = cuda_noise(device, bytes);
    if (loop == cuda::MemoryLoop::triad) b_ = cuda_noise(device, bytes);
    const bool stores = loop == cuda::MemoryLoop::copy || loop == cuda::MemoryLoop::triad;
    c_ = device.allocate(stores ? bytes : sizeof(float));
  }

 private:
  static LoopDetails details_of(cuda::MemoryLoop loop, const cuda::MemorySweep& sweep) {
    LoopDetails details;
    details.kernel = std::to_string(sweep.blocks) + " blocks of " + std::to_string(sweep.threads) + " threads";
    details.bytes = static_cast<double>(cuda::bytes_moved(loop, sweep));
    if (loop == cuda::MemoryLoop::triad) details.flop = 2 * details.bytes / (3 * sizeof(float));
    return details;
  }

  void launch(int passes, cudaStream_t stream) override {
    cuda::MemorySweep all = sweep_;
    all.passes = passes;
    cuda::run_memory_loop(loop_, all, a_.get(), b_.get(), c_.get(), static_cast<float*>(c_.get()), stream);
  }

  cuda::MemoryLoop loop_;
  cuda::MemorySweep sweep_;
  std::shared_ptr<void> a_, b_, c_;
};

class HostCopy final : public CudaLoop {
 public:
  HostCopy(const CudaDevice& device, std::size_t bytes, bool pinned, bool to_device)
      : CudaLoop({.kernel = pinned ? "copy engine" : "copy engine, by way of the driver's pinned buffers",
                  .bytes = static_cast<double>(bytes)},
                 device, "host copy"),
        bytes_(bytes) {
    const std::shared_ptr<void> here = cuda_noise(device, bytes);
    std::shared_ptr<void> host =
        pinned ? pinned_memory(bytes)
               : std::shared_ptr<void>(new char[bytes], [](void* p) { delete[] static_cast<char*>(p); });
    GABLE_CUDA_CHECK(cudaMemcpy(host.get(), here.get(), bytes, cudaMemcpyDeviceToHost));  // touches its pages
    from_ = to_device ? host : here;
    to_ = to_device ? here : host;
  }

 private:
  void launch(int passes, cudaStream_t stream) override {
    for (int i = 0; i < passes; ++i)
      GABLE_CUDA_CHECK(cudaMemcpyAsync(to_.get(), from_.get(), bytes_, cudaMemcpyDefault, stream));
  }

  std::size_t bytes_;
  std::shared_ptr<void> from_, to_;
};

/// The host's values on the device.
template <typename T>
std::shared_ptr<void> on_device(const CudaDevice& device, std::span<const T> values) {
  std::shared_ptr<void> memory = device.allocate(std::max<std::size_t>(1, values.size_bytes()));
  GABLE_CUDA_CHECK(cudaMemcpy(memory.get(), values.data(), values.size_bytes(), cudaMemcpyHostToDevice));
  return memory;
}

class CudaPagerank final : public CudaLoop {
 public:
  CudaPagerank(const CudaDevice& device, const PagerankLoop& loop)
      : CudaLoop(details_of(loop), device, "PageRank"),
        pagerank_({loop.offsets.begin(), loop.offsets.end()}, loop.damping),
        vertices_(static_cast<std::int32_t>(loop.out_degrees.size())),
        offsets_(on_device(device, loop.offsets)),
        sources_(on_device(device, loop.sources)),
        out_degrees_(on_device(device, loop.out_degrees)),
        ranks_(device.allocate(static_cast<std::size_t>(vertices_) * sizeof(float))),
        change_(device.allocate(sizeof(double))),
        workspace_(device.allocate(pagerank_.workspace_bytes())) {
    pagerank_.prepare(workspace_.get(), nullptr);
    GABLE_CUDA_CHECK(cudaStreamSynchronize(nullptr));
  }

  std::vector<float> result() const override {
    return reporting(where(), [&] {
      const CurrentDevice current(index());
      std::vector<float> ranks(static_cast<std::size_t>(vertices_));
      GABLE_CUDA_CHECK(cudaDeviceSynchronize());
      GABLE_CUDA_CHECK(cudaMemcpy(ranks.data(), ranks_.get(), ranks.size() * sizeof(float), cudaMemcpyDeviceToHost));
      return ranks;
    });
  }

 private:
  /// An edge: its source, and an addition. A vertex: offsets, row number, degree, its rank twice, its share written and
  /// read once; a multiplication and addition with the damping, a division for the share, and the change.
  static LoopDetails details_of(const PagerankLoop& loop) {
    constexpr double bytes_an_edge = 4, bytes_a_vertex = 36, flop_a_vertex = 5;
    const auto edges = static_cast<double>(loop.sources.size()),
               vertices = static_cast<double>(loop.out_degrees.size());
    return {.kernel = "pagerank",
            .bytes = bytes_an_edge * edges + bytes_a_vertex * vertices,
            .flop = edges + flop_a_vertex * vertices};
  }

  void launch(int passes, cudaStream_t stream) override {
    const cuda::InEdges graph{.vertices = vertices_,
                              .offsets = static_cast<const std::int64_t*>(offsets_.get()),
                              .sources = static_cast<const std::int32_t*>(sources_.get()),
                              .out_degrees = static_cast<const std::int32_t*>(out_degrees_.get())};
    pagerank_.run(graph, passes, static_cast<float*>(ranks_.get()), static_cast<double*>(change_.get()),
                  workspace_.get(), stream);
  }

  cuda::Pagerank pagerank_;
  std::int32_t vertices_;
  std::shared_ptr<void> offsets_, sources_, out_degrees_, ranks_, change_, workspace_;
};

std::shared_ptr<LoopImpl> make_sweep(const CudaDevice& device, cuda::MemoryLoop loop, std::int64_t bytes) {
  const std::int64_t arrays = loop == cuda::MemoryLoop::triad ? 3 : loop == cuda::MemoryLoop::copy ? 2 : 1;
  return std::make_shared<SweepLoop>(device, loop, sweep_of(bytes / arrays, device.properties()));
}

}  // namespace

std::shared_ptr<void> cuda_noise(const CudaDevice& device, std::size_t bytes) {
  std::shared_ptr<void> array = device.allocate(bytes);
  cuda::fill_with_noise(static_cast<float*>(array.get()), bytes / sizeof(float), nullptr);
  return array;
}

std::shared_ptr<void> pinned_memory(std::size_t bytes) {
  void* memory = nullptr;
  GABLE_CUDA_CHECK(cudaMallocHost(&memory, bytes));
  return {memory, [](void* p) { cuda::ignore(cudaFreeHost(p)); }};
}

std::shared_ptr<LoopImpl> make_cuda_loop(const CudaDevice& device, const MemoryLoop& loop) {
  return reporting(device.uri() + ": memory loop", [&]() -> std::shared_ptr<LoopImpl> {
    const CurrentDevice current(device.index());
    const auto bytes = static_cast<std::size_t>(loop.bytes);
    switch (loop.movement) {
      case Movement::read:
        return make_sweep(device, cuda::MemoryLoop::read, loop.bytes);
      case Movement::copy:
        return make_sweep(device, cuda::MemoryLoop::copy, loop.bytes);
      case Movement::triad:
        return make_sweep(device, cuda::MemoryLoop::triad, loop.bytes);
      case Movement::to_shared:
        return make_sweep(device, cuda::MemoryLoop::to_shared, loop.bytes);
      case Movement::pinned_to_device:
        return std::make_shared<HostCopy>(device, bytes, true, true);
      case Movement::device_to_pinned:
        return std::make_shared<HostCopy>(device, bytes, true, false);
      case Movement::pageable_to_device:
        return std::make_shared<HostCopy>(device, bytes, false, true);
      case Movement::device_to_pageable:
        return std::make_shared<HostCopy>(device, bytes, false, false);
    }
    throw Error(ErrorCode::invalid_argument,
                "memory loop: movement " + std::to_string(static_cast<int>(loop.movement)) + " is none");
  });
}

std::shared_ptr<LoopImpl> make_cuda_loop(const CudaDevice& device, const PagerankLoop& loop) {
  return reporting(device.uri() + ": PageRank", [&] {
    const CurrentDevice current(device.index());
    return std::make_shared<CudaPagerank>(device, loop);
  });
}

}  // namespace gable
