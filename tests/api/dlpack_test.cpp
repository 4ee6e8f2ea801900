// DLPack in and out: no copies, lifetimes, and a reason for every tensor that does not fit.
#include <doctest/doctest.h>
#include <gable/dlpack.h>

#include <array>
#include <string>

namespace gable {
namespace {

/// What a producer such as NumPy hands over.
struct Produced {
  std::array<float, 24> data{};
  std::array<std::int64_t, 4> shape{1, 2, 3, 4};
  std::array<std::int64_t, 4> strides{24, 12, 4, 1};
  DLTensor tensor{};

  Produced() {
    tensor.data = data.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 4;
    tensor.dtype = {kDLFloat, 32, 1};
    tensor.shape = shape.data();
    tensor.strides = strides.data();
  }
};

std::string refusal(const DLTensor& tensor) {
  try {
    view_of(tensor);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("row-major and channels-last producers are viewed where they lie") {
  Produced p;
  CHECK(view_of(p.tensor).data == p.data.data());
  CHECK(view_of(p.tensor).layout == Layout::nchw);
  CHECK(view_of(p.tensor).shape == Shape{1, 2, 3, 4});
  p.tensor.byte_offset = 16;
  CHECK(view_of(p.tensor).data == p.data.data() + 4);
  p.strides = {24, 1, 8, 2};
  CHECK(view_of(p.tensor).layout == Layout::nhwc);
  p.strides = {7, 1, 8, 2};  // one image: its stride says nothing
  CHECK(view_of(p.tensor).layout == Layout::nhwc);
  p.tensor.strides = nullptr;
  CHECK(view_of(p.tensor).layout == Layout::nchw);
}

TEST_CASE("a producer that does not fit is refused with what would") {
  Produced p;
  p.strides = {24, 12, 1, 3};
  CHECK(refusal(p.tensor).find("make it contiguous first") != std::string::npos);
  p = Produced();
  p.tensor.strides = p.strides.data();
  p.tensor.shape = p.shape.data();
  p.tensor.dtype = {kDLFloat, 64, 1};
  CHECK(refusal(p.tensor).find("64 bits") != std::string::npos);
  p.tensor.dtype = {kDLFloat, 32, 4};
  CHECK(refusal(p.tensor).find("4 lanes") != std::string::npos);
  p.tensor.dtype = {kDLBfloat, 16, 1};
  p.tensor.ndim = 5;
  CHECK(refusal(p.tensor).find("5 dimensions") != std::string::npos);
  p.tensor.ndim = 4;
  p.tensor.device = {kDLOpenCL, 0};
  CHECK(refusal(p.tensor).find("device type 4") != std::string::npos);
}

TEST_CASE("an exported tensor outlives its owner, with the strides of its layout") {
  DLManagedTensor* managed = nullptr;
  {
    const Tensor tensor(DType::f32, {1, 2, 3, 4}, Layout::nhwc);
    tensor.as<float>()[5] = 42;
    managed = to_dlpack(tensor);
  }
  const TensorView back = view_of(managed->dl_tensor);
  CHECK(back.layout == Layout::nhwc);
  CHECK(back.shape == Shape{1, 2, 3, 4});
  CHECK(managed->dl_tensor.strides[1] == 1);
  CHECK(static_cast<const float*>(back.data)[5] == 42);
  managed->deleter(managed);
  CHECK_THROWS_WITH_AS(to_dlpack(Tensor()), doctest::Contains("the tensor is empty"), Error);
}

}  // namespace
}  // namespace gable
