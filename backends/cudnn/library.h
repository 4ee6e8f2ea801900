// cuDNN, opened at run time: its functions as pointers, its errors as gable's. The headers are all that the build
// needs, so the plugin loads everywhere and says itself what is missing.
#pragma once

#include <cudnn.h>
#include <gable/error.h>

#include <string>

namespace gable::cudnn {

#define GABLE_CUDNN_CALLS(CALL)           \
  CALL(cudnnGetVersion)                   \
  CALL(cudnnGetErrorString)               \
  CALL(cudnnGetLastErrorString)           \
  CALL(cudnnCreate)                       \
  CALL(cudnnDestroy)                      \
  CALL(cudnnSetStream)                    \
  CALL(cudnnBackendCreateDescriptor)      \
  CALL(cudnnBackendDestroyDescriptor)     \
  CALL(cudnnBackendSetAttribute)          \
  CALL(cudnnBackendGetAttribute)          \
  CALL(cudnnBackendFinalize)              \
  CALL(cudnnBackendExecute)               \
  CALL(cudnnCreateTensorDescriptor)       \
  CALL(cudnnDestroyTensorDescriptor)      \
  CALL(cudnnSetTensor4dDescriptorEx)      \
  CALL(cudnnCreatePoolingDescriptor)      \
  CALL(cudnnDestroyPoolingDescriptor)     \
  CALL(cudnnSetPooling2dDescriptor)       \
  CALL(cudnnGetPooling2dForwardOutputDim) \
  CALL(cudnnPoolingForward)               \
  CALL(cudnnTransformTensor)

struct Library {
#define GABLE_CUDNN_MEMBER(name) decltype(&::name) name = nullptr;
  GABLE_CUDNN_CALLS(GABLE_CUDNN_MEMBER)
#undef GABLE_CUDNN_MEMBER

  /// "9.19.0"
  std::string version() const;
  /// The status in cuDNN's words, and what it last said about an error in this thread.
  std::string words(cudnnStatus_t status) const;
  /// Throws Error that names the call.
  void check(cudnnStatus_t status, const char* call) const;
};

/// Throws Error(unavailable) with the loader's own words and what would cure it. Loaded once; GABLE_CUDNN, a file or
/// folders with ':' between them, replaces the loader's own places.
const Library& library();

}  // namespace gable::cudnn

#define GABLE_CUDNN_CHECK(library, name, ...) (library).check((library).name(__VA_ARGS__), #name)
