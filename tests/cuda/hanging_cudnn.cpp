// A libcudnn.so.9 whose first call never returns, for bench/gpu_faults.py.
#include <unistd.h>

#include <cstddef>

#define GABLE_CUDNN_CALL extern "C" __attribute__((visibility("default")))

GABLE_CUDNN_CALL std::size_t cudnnGetVersion() {
  while (true) ::pause();
}
GABLE_CUDNN_CALL int cudnnBackendCreateDescriptor(int, void**) { return 0; }
GABLE_CUDNN_CALL int cudnnCreatePoolingDescriptor(void**) { return 0; }
