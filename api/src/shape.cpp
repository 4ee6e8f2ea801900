// Shapes: up to four dimensions.
#include <gable/error.h>
#include <gable/shape.h>

namespace gable {

Shape::Shape(std::initializer_list<std::int64_t> dims) : rank_(dims.size()) {
  if (dims.size() > kMaxRank) {
    throw Error(ErrorCode::invalid_argument,
                "a shape of " + std::to_string(dims.size()) + " dimensions: at most 4 are supported");
  }
  std::size_t i = 0;
  for (const std::int64_t dim : dims) dims_[i++] = dim;
}

std::int64_t Shape::elements() const {
  std::int64_t product = 1;
  for (std::size_t i = 0; i < rank_; ++i) product *= dims_[i];
  return product;
}

std::string to_string(const Shape& shape) {
  std::string text;
  for (std::size_t i = 0; i < shape.rank(); ++i) text += (i == 0 ? "" : "x") + std::to_string(shape[i]);
  return text;
}

}  // namespace gable
