// The backends inside libgable.
#pragma once

#include <gable/backend.h>

#include <memory>

namespace gable {

std::unique_ptr<Backend> make_cpu_backend();
std::unique_ptr<Backend> make_reference_backend();

}  // namespace gable
