// What a GPU's hardware allows, by its data sheet's formulas: the base of predicted times (backends/shape_model.h).
#pragma once

#include "backends/cuda/cuda_device.h"
#include "backends/shape_model.h"

namespace gable {

/// Clock and memory of one GPU.
class CudaRates {
 public:
  /// Asks the driver. Throws CallFailed.
  explicit CudaRates(const CudaDevice& device);

  Rates of(const Op& op) const;

 private:
  double cycles_ = 0;  ///< of all SMs, a second
  double bytes_ = 0;   ///< a second
  int major_ = 0, minor_ = 0;
};

/// Seconds of a run with tensors in the GPU's memory. A matrix product or a convolution is `inefficiency[class]` times
/// slower than the roof.
double modelled_cuda_seconds(const Op& op, const CudaRates& rates,
                             const std::array<double, kShapeClasses>& inefficiency);

}  // namespace gable
