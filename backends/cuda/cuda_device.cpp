// See cuda_device.h.
#include "backends/cuda/cuda_device.h"

#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace gable {
namespace {

constexpr int kMinMajor = 7, kMinMinor = 5;                     // compute capability of the oldest kernels
constexpr std::uint64_t kKeptBytes = std::uint64_t{256} << 20;  // of released memory, for the next allocation

std::string mebibytes(std::size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string name_of(const cudaDeviceProp& device, int driver) {
  return std::string(device.name) + " (sm_" + std::to_string(device.major) + std::to_string(device.minor) + ", " +
         std::to_string(device.multiProcessorCount) + " SMs, " + mebibytes(device.totalGlobalMem) +
         ", driver for CUDA " + version_text(driver) + ")";
}

std::string why_unusable(const cudaDeviceProp& device) {
  if (device.major < kMinMajor || (device.major == kMinMajor && device.minor < kMinMinor)) {
    return "compute capability " + std::to_string(device.major) + "." + std::to_string(device.minor) + "; this needs " +
           std::to_string(kMinMajor) + "." + std::to_string(kMinMinor) + " (Turing) or later";
  }
  if (device.memoryPoolsSupported == 0) {
    return "its driver offers no memory pools (cudaDevAttrMemoryPoolsSupported is 0): install a later driver";
  }
  return "";
}

DeviceInfo info_of(const std::string& backend, int index, int driver) {
  DeviceInfo info{.uri = backend + ":" + std::to_string(index), .backend = backend, .name = ""};
  info.memory = {Memory::Kind::cuda, index};
  cudaDeviceProp device{};
  const cudaError_t status = cudaGetDeviceProperties(&device, index);
  if (status != cudaSuccess) {
    info.reason = cuda::CallFailed(status, "cudaGetDeviceProperties").what();
    cuda::ignore(status);
    return info;
  }
  info.name = name_of(device, driver);
  info.reason = why_unusable(device);
  info.available = info.reason.empty();
  return info;
}

/// "cuda:0" or "host", for a pointer's attributes.
std::string memory_text(const cudaPointerAttributes& attributes) {
  if (attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged) {
    return to_string(Memory{Memory::Kind::cuda, attributes.device}) + " memory";
  }
  return attributes.type == cudaMemoryTypeHost ? "pinned host memory" : "no memory that CUDA knows";
}

/// Throws CallFailed, or Error where the pointer is not what it is said to be. Host memory that CUDA does not know is
/// pageable memory and fine; pinned and managed memory can be reached from everywhere.
void check_memory(const void* pointer, const Memory& said, const std::string& what) {
  cudaPointerAttributes attributes{};
  GABLE_CUDA_CHECK(cudaPointerGetAttributes(&attributes, pointer));
  const bool on_device = attributes.type == cudaMemoryTypeDevice;
  const bool elsewhere = on_device && (said.kind == Memory::Kind::host || attributes.device != said.index);
  const bool unknown = attributes.type == cudaMemoryTypeUnregistered && said.kind == Memory::Kind::cuda;
  if (!elsewhere && !unknown) return;
  throw Error(ErrorCode::invalid_argument, what + " is said to lie in " + to_string(said) +
                                               " memory, but its pointer lies in " + memory_text(attributes) +
                                               ": make it with this device's tensor(), or copy() it there");
}

class Range {
 public:
  explicit Range(const char* name) { nvtxRangePushA(name); }
  ~Range() { nvtxRangePop(); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

class CudaEvent final : public EventImpl {
 public:
  explicit CudaEvent(int index) : index_(index), where_(to_string(Memory{Memory::Kind::cuda, index}) + ": event") {
    GABLE_CUDA_CHECK(cudaEventCreate(&event_));
  }
  ~CudaEvent() override { cuda::ignore(cudaEventDestroy(event_)); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void record(void* stream) override {
    reporting(where_, [&] {
      const CurrentDevice current(index_);
      GABLE_CUDA_CHECK(cudaEventRecord(event_, static_cast<cudaStream_t>(stream)));
    });
    recorded_ = true;
  }

  double seconds_since(const EventImpl& start) const override {
    const auto& from = static_cast<const CudaEvent&>(start);
    if (!recorded_ || !from.recorded_) {
      throw Error(ErrorCode::invalid_argument, "an event was not recorded: record() both first");
    }
    if (index_ != from.index_) {
      throw Error(ErrorCode::invalid_argument, "events of cuda:" + std::to_string(from.index_) +
                                                   " and cuda:" + std::to_string(index_) +
                                                   ": time passes between events of one device");
    }
    return reporting(where_, [&] {
      const CurrentDevice current(index_);
      GABLE_CUDA_CHECK(cudaEventSynchronize(from.event_));
      GABLE_CUDA_CHECK(cudaEventSynchronize(event_));
      float milliseconds = 0;
      GABLE_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, from.event_, event_));
      return static_cast<double>(milliseconds) * 1e-3;
    });
  }

 private:
  int index_;
  std::string where_;
  cudaEvent_t event_ = nullptr;
  bool recorded_ = false;
};

/// Waits for pending frees before the pool is destroyed.
void destroy_pool(cudaMemPool_t pool, int index) noexcept {
  int former = index;
  cuda::ignore(cudaGetDevice(&former));
  cuda::ignore(cudaSetDevice(index));
  cuda::ignore(cudaStreamSynchronize(nullptr));
  cuda::ignore(cudaMemPoolDestroy(pool));
  if (former != index) cuda::ignore(cudaSetDevice(former));
}

std::shared_ptr<void> make_pool(int index) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, index};
  cudaMemPool_t pool = nullptr;
  GABLE_CUDA_CHECK(cudaMemPoolCreate(&pool, &properties));
  std::shared_ptr<void> owner(pool, [index](void* p) { destroy_pool(static_cast<cudaMemPool_t>(p), index); });
  std::uint64_t kept = kKeptBytes;
  GABLE_CUDA_CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept));
  return owner;
}

void release(void* memory, int index) noexcept {
  int former = index;
  cuda::ignore(cudaGetDevice(&former));
  cuda::ignore(cudaSetDevice(index));
  cuda::ignore(cudaFreeAsync(memory, nullptr));
  if (former != index) cuda::ignore(cudaSetDevice(former));
}

}  // namespace

CurrentDevice::CurrentDevice(int index) {
  GABLE_CUDA_CHECK(cudaGetDevice(&former_));
  if (former_ == index) return;
  GABLE_CUDA_CHECK(cudaSetDevice(index));
  changed_ = true;
}

CurrentDevice::~CurrentDevice() {
  if (changed_) cuda::ignore(cudaSetDevice(former_));
}

std::vector<DeviceInfo> probe_cuda_devices(const std::string& backend) {
  int count = 0, driver = 0, runtime = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cuda::ignore(status);
  cuda::ignore(cudaDriverGetVersion(&driver));
  cuda::ignore(cudaRuntimeGetVersion(&runtime));
  if (status != cudaSuccess || count == 0) {
    return {{.uri = backend,
             .backend = backend,
             .name = "",
             .available = false,
             .reason = why_no_device(status == cudaSuccess ? cudaErrorNoDevice : status, driver, runtime),
             .memory = {Memory::Kind::cuda, 0}}};
  }
  std::vector<DeviceInfo> all;
  for (int i = 0; i < count; ++i) all.push_back(info_of(backend, i, driver));
  return all;
}

DeviceInfo find_cuda_device(const DeviceUri& uri) {
  const std::string text = "device '" + to_string(uri) + "': ";
  int index = 0;
  if (!uri.selector.empty()) {
    const char* end = uri.selector.data() + uri.selector.size();
    const auto [stop, error] = std::from_chars(uri.selector.data(), end, index);
    if (error != std::errc() || stop != end || index < 0) {
      throw Error(ErrorCode::invalid_argument,
                  text + "'" + uri.selector + "' is no index of a GPU; write " + uri.backend + ":0");
    }
  }
  std::vector<DeviceInfo> all = probe_cuda_devices(uri.backend);
  if (all.front().uri == uri.backend) throw Error(ErrorCode::unavailable, text + all.front().reason);
  if (static_cast<std::size_t>(index) >= all.size()) {
    throw Error(ErrorCode::unavailable, text + "there is no GPU " + std::to_string(index) + "; this process sees " +
                                            std::to_string(all.size()) + ": " + all.front().uri +
                                            (all.size() == 1 ? "" : " to " + all.back().uri));
  }
  DeviceInfo info = std::move(all[static_cast<std::size_t>(index)]);
  if (!info.available) throw Error(ErrorCode::unavailable, text + info.name + ": " + info.reason);
  info.uri = to_string(uri);
  return info;
}

CudaDevice::CudaDevice(DeviceInfo info) : DeviceImpl(std::move(info)) {
  reporting(uri(), [&] {
    const CurrentDevice current(index());
    auto properties = std::make_shared<cudaDeviceProp>();
    GABLE_CUDA_CHECK(cudaGetDeviceProperties(properties.get(), index()));
    properties_ = std::move(properties);
    pool_ = make_pool(index());
    // The calls above succeed even if a fault has destroyed the context or another process holds the GPU.
    const cudaError_t state = cudaStreamQuery(nullptr);
    const bool captures = state >= cudaErrorStreamCaptureUnsupported && state <= cudaErrorStreamCaptureWrongThread;
    if (state != cudaErrorNotReady && !captures) cuda::check(state, "cudaStreamQuery");
    cuda::ignore(state);
  });
}

std::shared_ptr<void> CudaDevice::allocate(std::size_t bytes) const {
  if (bytes == 0) return nullptr;
  return reporting(uri(), [&]() -> std::shared_ptr<void> {
    const CurrentDevice current(index());
    void* memory = nullptr;
    const cudaError_t status =
        cudaMallocFromPoolAsync(&memory, bytes, static_cast<cudaMemPool_t>(pool_.get()), nullptr);
    if (status == cudaErrorMemoryAllocation) {
      cuda::ignore(status);
      std::size_t available = 0, total = 0;
      GABLE_CUDA_CHECK(cudaMemGetInfo(&available, &total));
      throw Error(ErrorCode::out_of_memory, uri() + ": no " + std::to_string(bytes) + " bytes (" + mebibytes(bytes) +
                                                ") of device memory; " + mebibytes(available) + " of " +
                                                mebibytes(total) +
                                                " are free: release tensors and plans, or take a smaller batch");
    }
    cuda::check(status, "cudaMallocFromPoolAsync");
    return {memory, [device = index(), pool = pool_](void* p) { release(p, device); }};
  });
}

void CudaDevice::copy(const ConstTensorView& from, const TensorView& to, void* stream) const {
  reporting(uri() + ": copy", [&] {
    const CurrentDevice current(index());
    check_memory(from.data, from.memory, "copy: the source");
    check_memory(to.data, to.memory, "copy: the destination");
    const auto queue = static_cast<cudaStream_t>(stream);
    const bool device_to_device = from.memory.kind == Memory::Kind::cuda && to.memory.kind == Memory::Kind::cuda;
    if (device_to_device && from.memory.index != to.memory.index) {
      GABLE_CUDA_CHECK(cudaMemcpyPeerAsync(to.data, to.memory.index, from.data, from.memory.index, to.bytes(), queue));
    } else {
      GABLE_CUDA_CHECK(cudaMemcpyAsync(to.data, from.data, to.bytes(), cudaMemcpyDefault, queue));
    }
  });
}

Stream CudaDevice::stream() const {
  return reporting(uri(), [&] {
    const CurrentDevice current(index());
    cudaStream_t made = nullptr;
    GABLE_CUDA_CHECK(cudaStreamCreate(&made));
    return Stream(
        std::shared_ptr<void>(made, [](void* s) { cuda::ignore(cudaStreamDestroy(static_cast<cudaStream_t>(s))); }));
  });
}

void CudaDevice::synchronize(void* stream) const {
  reporting(uri(), [&] {
    const CurrentDevice current(index());
    GABLE_CUDA_CHECK(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
  });
}

std::shared_ptr<EventImpl> CudaDevice::event() const {
  return reporting(uri(), [&]() -> std::shared_ptr<EventImpl> {
    const CurrentDevice current(index());
    return std::make_shared<CudaEvent>(index());
  });
}

CudaPlan::CudaPlan(PlanDetails details, const CudaDevice& device, const Op& op, std::size_t alignment)
    : PlanImpl(std::move(details)),
      where_(device.uri() + ": " + std::string(name(op))),
      range_("gable " + std::string(name(op)) + " " + this->details().kernel),
      index_(device.index()),
      element_bytes_(size_of(dtype_of(op))),
      alignment_(std::max(alignment, element_bytes_)),
      workspace_(device.allocate(this->details().workspace_bytes)) {}

void CudaPlan::launch_pack(const void*, void*) {}

void CudaPlan::pack(const void* weights, void* packed) {
  reporting(where_ + " pack", [&] {
    const CurrentDevice current(index_);
    const Range range("gable pack");
    check_pointer(weights, "weights", element_bytes_);
    check_memory(weights, {Memory::Kind::cuda, index_}, where_ + ": weights");
    launch_pack(weights, packed);
  });
}

void CudaPlan::run(const RunArguments& arguments) {
  reporting(where_, [&] {
    const CurrentDevice current(index_);
    const Range range(range_.c_str());
    check_pointers(arguments);
    launch(arguments, static_cast<cudaStream_t>(arguments.stream));
  });
}

void CudaPlan::check_pointers(const RunArguments& a) {
  const void* const now[5] = {a.inputs[0], a.inputs[1], a.weights, a.bias, a.output};
  constexpr const char* kRoles[5] = {"the input", "the second input", "the packed weights", "the bias", "the output"};
  for (int i = 0; i < 5; ++i) {
    if (now[i] == known_[i] || now[i] == nullptr) continue;
    check_pointer(now[i], kRoles[i], i == 3 ? sizeof(float) : alignment_);
    check_memory(now[i], {Memory::Kind::cuda, index_}, where_ + ": " + kRoles[i]);
    known_[i] = now[i];
  }
}

void CudaPlan::check_pointer(const void* pointer, const char* role, std::size_t alignment) const {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (address % alignment == 0) return;
  throw Error(ErrorCode::invalid_argument, where_ + ": " + role + " lies at an address that is " +
                                               std::to_string(address % alignment) + " beyond a multiple of " +
                                               std::to_string(alignment) + ": it must be a multiple of that");
}

}  // namespace gable
