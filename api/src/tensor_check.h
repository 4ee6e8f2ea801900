// What a tensor may be, whoever makes it.
#pragma once

#include <gable/dtype.h>
#include <gable/shape.h>

namespace gable {

/// Throws Error(invalid_argument) that names what is wrong: 1 to 4 dimensions of at least 1 element, and at most 2^40
/// elements.
void validate_tensor(DType dtype, const Shape& shape, Layout layout);

}  // namespace gable
