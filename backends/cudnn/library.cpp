// See library.h.
#include "backends/cudnn/library.h"

#include "backends/cudnn/trial.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <vector>

namespace gable::cudnn {
namespace {

constexpr const char* kFile = "libcudnn.so.9";
constexpr int kTrialSeconds = 20;
constexpr std::size_t kMaxWords = 300;  // of an error: cuDNN may list every check that an engine failed

std::vector<std::string> places() {
  const char* given = ::secure_getenv("GABLE_CUDNN");  // a privileged program must not load what its caller names
  if (given == nullptr || *given == '\0') return {kFile};
  std::vector<std::string> all;
  std::istringstream parts(given);
  for (std::string part; std::getline(parts, part, ':');) {
    if (part.empty()) continue;
    const std::filesystem::path path(part);
    all.push_back((std::filesystem::is_directory(path) ? path / kFile : path).string());
  }
  return all;
}

std::string cure() {
  return "install cuDNN 9 for this CUDA, and if the loader does not find it set GABLE_CUDNN to the folder that holds " +
         std::string(kFile);
}

template <typename Function>
void find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  if (function != nullptr) return;
  throw Error(ErrorCode::unavailable, std::string(kFile) + " lacks " + name + " (" + dlerror() + "): " + cure());
}

/// Never closed: its threads and the driver's callbacks may outlive every device.
void* open_library() {
  std::string refused;
  for (const std::string& place : places()) {
    if (void* handle = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    refused += std::string(refused.empty() ? "" : "; ") + dlerror();
  }
  if (refused.empty()) refused = "GABLE_CUDNN names no folder";
  throw Error(ErrorCode::unavailable, refused + ": " + cure());
}

/// cuDNN is several libraries: the first one ends the process where it can't load another, since a file is missing or
/// memory is short.
void call_all_parts() {
  void* handle = open_library();
  Library library;
  find(handle, "cudnnGetVersion", library.cudnnGetVersion);
  find(handle, "cudnnBackendCreateDescriptor", library.cudnnBackendCreateDescriptor);
  find(handle, "cudnnCreatePoolingDescriptor", library.cudnnCreatePoolingDescriptor);
  library.cudnnGetVersion();
  cudnnBackendDescriptor_t graph = nullptr;
  library.cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &graph);
  cudnnPoolingDescriptor_t pooling = nullptr;
  library.cudnnCreatePoolingDescriptor(&pooling);
}

std::unique_ptr<const Library> load() {
  const std::string failure = why_it_ends_the_process(call_all_parts, kTrialSeconds);
  if (!failure.empty()) {
    throw Error(ErrorCode::unavailable, std::string(kFile) + " is incomplete, finds no memory or hangs: in a trial, " +
                                            failure + ". " + cure());
  }
  void* handle = open_library();
  auto made = std::make_unique<Library>();
#define GABLE_CUDNN_FIND(name) find(handle, #name, made->name);
  GABLE_CUDNN_CALLS(GABLE_CUDNN_FIND)
#undef GABLE_CUDNN_FIND
  return made;
}

ErrorCode code_of(cudnnStatus_t status) {
  if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
      status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED) {
    return ErrorCode::out_of_memory;
  }
  return CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED ? ErrorCode::unsupported
                                                                     : ErrorCode::device_failure;
}

}  // namespace

std::string Library::version() const {
  const std::size_t number = cudnnGetVersion();
  return std::to_string(number / 10000) + "." + std::to_string(number % 10000 / 100) + "." +
         std::to_string(number % 100);
}

std::string Library::words(cudnnStatus_t status) const {
  std::array<char, kMaxWords> last{};
  cudnnGetLastErrorString(last.data(), last.size());
  last.back() = '\0';
  std::string text = last.data();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return std::string(cudnnGetErrorString(status)) + (text.empty() ? "" : " (" + text + ")");
}

void Library::check(cudnnStatus_t status, const char* call) const {
  if (status != CUDNN_STATUS_SUCCESS) throw Error(code_of(status), std::string(call) + ": " + words(status));
}

const Library& library() {
  static std::mutex mutex;
  static std::unique_ptr<const Library> loaded;  // a failed load is tried again: the process may have cured the reason
  static std::optional<Error> hung;              // set if loading took the whole time limit: that is not tried again
  const std::lock_guard lock(mutex);
  if (hung) throw Error(*hung);
  if (loaded) return *loaded;
  const auto start = std::chrono::steady_clock::now();
  try {
    loaded = load();
  } catch (const Error& error) {
    if (std::chrono::steady_clock::now() - start >= std::chrono::seconds(kTrialSeconds)) hung = error;
    throw;
  }
  return *loaded;
}

}  // namespace gable::cudnn
