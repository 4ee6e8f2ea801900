// A libcuda.so.1 of a driver that is too old for this build's CUDA, for cuda_old_driver_test: it knows its version and
// nothing else.
#define GABLE_DRIVER_CALL extern "C" __attribute__((visibility("default"))) int

GABLE_DRIVER_CALL cuInit(unsigned) { return 0; }

GABLE_DRIVER_CALL cuDriverGetVersion(int* version) {
  *version = 11040;
  return 0;
}

GABLE_DRIVER_CALL cuGetProcAddress(const char*, void** function, int, unsigned long long) {
  *function = nullptr;
  return 500;  // CUDA_ERROR_NOT_FOUND
}
