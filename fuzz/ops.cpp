// Convolutions: any attributes for validation and the kernels' answers, and random problems for the kernels themselves.
#include <gable/backend.h>
#include <gable/device.h>
#include <gable/error.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "bench/measure/random_verify.h"
#include "fuzz/targets.h"

namespace gable::fuzz {
namespace {

/// Numbers out of bytes: mostly small ones, some near the limits.
class Numbers {
 public:
  explicit Numbers(std::string_view data) : data_(data) {}

  std::int64_t next() {
    const std::uint8_t kind = byte();
    if (kind < 200) return kind % 70;
    if (kind < 220) return std::int64_t{1} << (byte() % 63);
    if (kind < 230) return -static_cast<std::int64_t>(byte());
    std::int64_t number = 0;
    const std::size_t bytes = std::min(sizeof(number), data_.size());
    std::memcpy(&number, data_.data(), bytes);
    data_.remove_prefix(bytes);
    return number;
  }
  std::uint8_t byte() {
    if (data_.empty()) return 0;
    const auto value = static_cast<std::uint8_t>(data_.front());
    data_.remove_prefix(1);
    return value;
  }

 private:
  std::string_view data_;
};

Conv2d convolution(std::string_view data) {
  Numbers from(data);
  Conv2d conv;
  conv.dtype = static_cast<DType>(from.byte() % 3);
  conv.layout = static_cast<Layout>(from.byte() % 2);
  conv.math = static_cast<Math>(from.byte() % 4);
  conv.epilogue.bias = from.byte() % 2 == 1;
  conv.epilogue.activation = static_cast<Activation>(from.byte() % 3);
  conv.input = {from.next(), from.next(), from.next(), from.next()};
  conv.weights = {from.next(), from.next(), from.next(), from.next()};
  if (from.byte() % 2 == 1) conv.stride = {from.next(), from.next()};
  if (from.byte() % 2 == 1) conv.padding = {from.next(), from.next(), from.next(), from.next()};
  if (from.byte() % 2 == 1) conv.dilation = {from.next(), from.next()};
  if (from.byte() % 2 == 1) conv.groups = from.next();
  if (from.byte() % 2 == 1) conv.epilogue.max_pool = PoolWindow({from.next(), from.next()}, {from.next(), from.next()});
  return conv;
}

}  // namespace

void conv2d(std::string_view data) {
  const Op op = convolution(data);
  try {
    validate(op);
  } catch (const Error&) {
    return;
  }
  const Shape y = output_shape(op);
  const Work least = work(op);
  if (y.elements() < 1) fail("a valid op without output: " + describe(op));
  if (!(least.flop > 0) || !std::isfinite(least.flop) || !(least.bytes() > 0) || terms(op) < 1)
    fail("a valid op without work: " + describe(op));
  for (const char* uri : {"cpu?threads=2", "cpu:avx2?threads=1", "reference?threads=1"}) {
    static_cast<void>(parse_device_uri(uri));
    try {
      int supported = 0;
      for (const KernelSupport& answer : open(uri).query(op)) supported += answer.supported ? 1 : 0;
      if (supported == 0 && std::get<Conv2d>(op).math == Math::strict) fail("no kernel for " + describe(op));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unavailable) throw;  // a target that this CPU lacks
    }
  }
}

void kernels(std::string_view data) {
  static bench::RandomVerifier verifier(bench::own_devices());
  std::uint64_t seed = 0;
  for (const char c : data.substr(0, sizeof(seed))) seed = seed << 8 | static_cast<std::uint8_t>(c);
  const bench::RandomResult result = verifier.run(seed);
  if (!result.kernel.empty() && !result.comparison.passed) {
    fail("mismatch: gable verify --random 1 --seed " + std::to_string(seed) + ": " + describe(result.problem.op) +
         " on " + result.device);
  }
}

}  // namespace gable::fuzz
