// Preloaded into a program that uses CUDA (bench/gpu_faults.py): what happens when the driver fails, without harm to
// the GPU. The program finds the driver's functions by dlsym() and cuGetProcAddress(); both give stand-ins here, which
// go on to the driver until it is to fail.
//   GABLE_FAULT_WHEN   a file: the fault comes as soon as it exists; without it a code comes at once, a kernel never
//   GABLE_FAULT_CODE   every function of GABLE_FAULT_CALLS returns this CUresult from then on: 999 is what a GPU that
//                      fell off the bus gives, 46 one in exclusive mode, 2 one without memory
//   GABLE_FAULT_CALLS  names with commas between; without it all but those that only look something up
// Without GABLE_FAULT_CODE a kernel of its own, not gable's, writes to an illegal address in the primary context of GPU
// 0.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

using Address = int (*)(const char*, void**, int, std::uint64_t, void*);

std::atomic<std::uint8_t> failing{0};
Address driver_address = nullptr;
int code = 0;

bool is_to_fail(const std::string& name) {
  const char* calls = std::getenv("GABLE_FAULT_CALLS");
  if (calls != nullptr) return ("," + std::string(calls) + ",").find("," + name + ",") != std::string::npos;
  for (const char* part :
       {"cuGetError", "cuGetProcAddress", "cuGetExportTable", "cuDriverGetVersion", "cuInit", "cuDeviceGet"})
    if (name.rfind(part, 0) == 0) return false;
  return true;
}

/// Machine code that returns `code` where `failing` is set and goes on to `function` otherwise, with its arguments as
/// they are. Only r11 and the flags change, which belong to the callee.
void* stand_in(void* function) {
  static unsigned char* page = nullptr;
  static std::size_t used = 0, size = std::size_t{1} << 20;
  constexpr std::size_t kBytes = 64;
  if (page == nullptr) {
    void* mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return function;
    page = static_cast<unsigned char*>(mapped);
  }
  if (used + kBytes > size) return function;
  unsigned char* const start = page + used;
  unsigned char* at = start;
  const auto put = [&at](std::initializer_list<unsigned char> bytes) {
    for (const unsigned char byte : bytes) *at++ = byte;
  };
  const auto put_number = [&at](const auto& number) {
    std::memcpy(at, &number, sizeof(number));
    at += sizeof(number);
  };
  put({0xf3, 0x0f, 0x1e, 0xfa});  // endbr64
  put({0x49, 0xbb});              // mov r11, &failing
  put_number(reinterpret_cast<std::uint64_t>(&failing));
  put({0x41, 0x80, 0x3b, 0x00, 0x75, 0x0d});  // cmp byte [r11], 0; jne to the return
  put({0x49, 0xbb});                          // mov r11, function
  put_number(reinterpret_cast<std::uint64_t>(function));
  put({0x41, 0xff, 0xe3, 0xb8});  // jmp r11; mov eax, code
  put_number(code);
  put({0xc3});
  used += kBytes;
  return start;
}

int address(const char* name, void** function, int version, std::uint64_t flags, void* found) {
  const int status = driver_address(name, function, version, flags, found);
  if (status == 0 && std::strcmp(name, "cuGetProcAddress") == 0) {
    driver_address = reinterpret_cast<Address>(*function);
    *function = reinterpret_cast<void*>(&address);
  } else if (status == 0 && *function != nullptr && code != 0 && is_to_fail(name)) {
    *function = stand_in(*function);
  }
  return status;
}

constexpr const char* kKernel =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry fault() { .reg .b64 %a; mov.u64 %a, 8; st.global.u64 [%a], %a; ret; }\n";

template <typename Function>
Function driver(const char* name) {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  return reinterpret_cast<Function>(library == nullptr ? nullptr : ::dlsym(library, name));
}

/// As a kernel of the user's does. Says what failed, since this may be the wrong driver for it.
void fault() {
  void *context = nullptr, *module = nullptr, *kernel = nullptr;
  int status = driver<int (*)(void**, int)>("cuDevicePrimaryCtxRetain")(&context, 0);
  if (status == 0) status = driver<int (*)(void*)>("cuCtxSetCurrent")(context);
  if (status == 0) status = driver<int (*)(void**, const void*)>("cuModuleLoadData")(&module, kKernel);
  if (status == 0)
    status = driver<int (*)(void**, void*, const char*)>("cuModuleGetFunction")(&kernel, module, "fault");
  using Launch =
      int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  if (status == 0) status = driver<Launch>("cuLaunchKernel")(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  if (status != 0) std::fprintf(stderr, "failing_driver: the kernel was not launched: CUresult %d\n", status);
}

void wait_and_fail() {
  const char* when = std::getenv("GABLE_FAULT_WHEN");
  while (when != nullptr && ::access(when, F_OK) != 0) ::usleep(2000);
  if (code != 0) {
    failing = 1;
  } else {
    fault();
  }
}

__attribute__((constructor)) void begin() {
  const char* text = std::getenv("GABLE_FAULT_CODE");
  if (text != nullptr) code = std::atoi(text);
  if (code != 0 && std::getenv("GABLE_FAULT_WHEN") == nullptr) {
    failing = 1;
  } else if (std::getenv("GABLE_FAULT_WHEN") != nullptr) {
    std::thread(wait_and_fail).detach();
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void* dlsym(void* handle, const char* name) noexcept {
  static const auto next = reinterpret_cast<void* (*)(void*, const char*)>(::dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
  void* const found = next(handle, name);
  const bool asks = std::strcmp(name, "cuGetProcAddress_v2") == 0 || std::strcmp(name, "cuGetProcAddress") == 0;
  if (!asks || found == nullptr) return found;
  driver_address = reinterpret_cast<Address>(found);
  return reinterpret_cast<void*>(&address);
}
