// Ops as data, without a device: conversions, names, shapes and work, validation, packings, the oracle by hand.
#include <doctest/doctest.h>
#include <gable/backend.h>
#include <gable/gable.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "common/runs_of_equal.h"
#include "tests/tools/expect.h"

namespace gable {
namespace {

Conv2d small_conv() { return {.input = {2, 6, 9, 11}, .weights = {4, 3, 3, 2}, .padding = {1, 0, 2, 1}, .groups = 2}; }

TEST_CASE("every f16 and bf16 bit pattern survives the way through f32") {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const float half = float_from_f16(pattern);
    const float brain = float_from_bf16(pattern);
    if (std::isnan(half)) {
      CHECK(std::isnan(float_from_f16(f16_from_float(half))));
    } else {
      REQUIRE(f16_from_float(half) == pattern);
    }
    if (std::isnan(brain)) {
      CHECK(std::isnan(float_from_bf16(bf16_from_float(brain))));
    } else {
      REQUIRE(bf16_from_float(brain) == pattern);
    }
  }
}

TEST_CASE("conversions to 16 bits round to nearest even and overflow to infinity") {
  CHECK(f16_from_float(1.0f + 0x1p-11f) == 0x3C00);             // a tie, to even below
  CHECK(f16_from_float(1.0f + 0x1p-11f + 0x1p-20f) == 0x3C01);  // above the tie
  CHECK(f16_from_float(1.0f + 3 * 0x1p-11f) == 0x3C02);         // a tie, to even above
  CHECK(f16_from_float(65519.9f) == 0x7BFF);
  CHECK(f16_from_float(65520.0f) == 0x7C00);
  CHECK(f16_from_float(-1e30f) == 0xFC00);
  CHECK(f16_from_float(0x1p-24f) == 0x0001);
  CHECK(f16_from_float(0x1p-25f) == 0x0000);  // a tie with zero
  CHECK(f16_from_float(0x1.8p-25f) == 0x0001);
  CHECK(bf16_from_float(1.0f + 0x1p-8f) == 0x3F80);
  CHECK(bf16_from_float(1.0f + 3 * 0x1p-8f) == 0x3F82);
  CHECK(bf16_from_float(std::numeric_limits<float>::max()) == 0x7F80);
}

TEST_CASE("names of enumerations parse back, unknown ones list the known") {
  CHECK(parse_dtype(to_string(DType::bf16)) == DType::bf16);
  CHECK(parse_layout(to_string(Layout::nhwc)) == Layout::nhwc);
  CHECK(parse_math(to_string(Math::split6)) == Math::split6);
  CHECK(parse_activation(to_string(Activation::tanh)) == Activation::tanh);
  CHECK(parse_function(to_string(Function::hard_swish)) == Function::hard_swish);
  CHECK(parse_function(to_string(Function::leaky_relu)) == Function::leaky_relu);
  CHECK(parse_interpolation(to_string(Interpolation::bilinear)) == Interpolation::bilinear);
  CHECK(describe(Activate{.shape = {3}, .function = Function::leaky_relu, .slope = 0.1f}) ==
        "activate leaky_relu (slope 0.1) of 3 f32 nchw");
  CHECK(message_of([] { parse_dtype("f64"); }) == "unknown dtype 'f64': one of f32, f16, bf16");
}

TEST_CASE("output shapes follow stride, asymmetric padding, dilation and the fused pool") {
  Conv2d conv = small_conv();
  CHECK(output_shape(conv) == Shape{2, 4, 10, 11});
  conv.stride = {2, 3};
  CHECK(output_shape(conv) == Shape{2, 4, 5, 4});
  conv.dilation = {3, 2};
  CHECK(output_shape(conv) == Shape{2, 4, 3, 4});
  conv.epilogue.max_pool = {Extent{2, 3}, Extent{1, 1}};
  CHECK(conv_output_shape(conv) == Shape{2, 4, 3, 4});
  CHECK(output_shape(conv) == Shape{2, 4, 2, 2});
  CHECK(output_shape(MaxPool{.input = {1, 3, 7, 8}, .window = {3, 3}, .stride = {2, 2}, .padding = {1, 1, 0, 1}}) ==
        Shape{1, 3, 3, 4});
  CHECK(output_shape(Transpose{.rows = 3, .columns = 5}) == Shape{5, 3});
  CHECK(output_shape(Matmul{.m = 2, .n = 3, .k = 4}) == Shape{2, 3});
}

TEST_CASE("work counts two FLOP a product and each tensor once") {
  const Work vgg = work(Conv2d{.input = {16, 64, 224, 224}, .weights = {64, 64, 3, 3}, .padding = {1, 1}});
  CHECK(vgg.flop == 2.0 * 16 * 64 * 224 * 224 * 64 * 9);
  CHECK(vgg.bytes_read == 4.0 * (16.0 * 64 * 224 * 224 + 64.0 * 64 * 9));
  CHECK(vgg.bytes_written == 4.0 * 16 * 64 * 224 * 224);
  Conv2d pooled = small_conv();
  pooled.dtype = DType::f16;
  pooled.epilogue = {.bias = true, .activation = Activation::none, .max_pool = {2, 2}};
  CHECK(work(pooled).flop == 2.0 * 2 * 4 * 10 * 11 * 3 * 6);
  CHECK(work(pooled).bytes_read == 2.0 * (2 * 6 * 9 * 11 + 4 * 3 * 6) + 4.0 * 4);
  CHECK(work(pooled).bytes_written == 2.0 * 2 * 4 * 5 * 5);
  CHECK(work(Add{.shape = {10}}).bytes() == 120.0);
}

TEST_CASE("validation names the attribute, its value and what would be right") {
  const auto refused = [](const std::function<void(Conv2d&)>& change) {
    Conv2d conv = small_conv();
    change(conv);
    return message_if_thrown([&] { validate(conv); });
  };
  CHECK(refused([](Conv2d&) {}).empty());
  // As a binding of another language may cast a number.
  CHECK(contains(refused([](Conv2d& c) { c.dtype = static_cast<DType>(77); }),
                 "dtype is number 77 of its enumeration, which ends at 2"));
  CHECK(contains(refused([](Conv2d& c) { c.layout = static_cast<Layout>(2); }), "layout is number 2"));
  CHECK(contains(refused([](Conv2d& c) { c.math = static_cast<Math>(4); }), "math is number 4"));
  CHECK(contains(refused([](Conv2d& c) { c.epilogue.activation = static_cast<Activation>(3); }),
                 "epilogue.activation is number 3"));
  CHECK_THROWS_AS(validate(Matmul{.activation = static_cast<Activation>(9)}), Error);
  CHECK_THROWS_AS(validate(MaxPool{.input = {1, 1, 2, 2}, .dtype = static_cast<DType>(3)}), Error);
  CHECK_THROWS_AS(validate(Transpose{.dtype = static_cast<DType>(3)}), Error);
  CHECK_THROWS_AS(validate(Reorder{.shape = {1, 1, 1, 1}, .to = static_cast<Layout>(3)}), Error);
  CHECK_THROWS_AS(open("reference").tensor(DType::f32, {4}, static_cast<Layout>(3)), Error);
  CHECK_THROWS_AS(Tensor(DType::f32, {4}, static_cast<Layout>(3)), Error);
  CHECK_THROWS_WITH_AS(open("reference").tensor(DType::f32, {1, -2, 3, 4}),
                       "tensor: dimension 1 of shape 1x-2x3x4 is -2; it must lie between 1 and 2147483647", Error);
  CHECK(contains(refused([](Conv2d& c) { c.input[1] = 7; }), "groups is 2; it must divide the input channels (7)"));
  CHECK(contains(refused([](Conv2d& c) { c.input[1] = 8; }), "8 channels in 2 groups needs 4"));
  CHECK(contains(refused([](Conv2d& c) { c.stride.w = 0; }), "stride.w is 0; it must lie between 1 and"));
  CHECK(contains(refused([](Conv2d& c) { c.dilation.h = -1; }), "dilation.h is -1"));
  CHECK(contains(refused([](Conv2d& c) { c.padding.bottom = -3; }), "padding.bottom is -3; it must lie between 0"));
  CHECK(contains(refused([](Conv2d& c) { c.input[2] = 0; }), "dimension 2 of input 2x6x0x11 is 0"));
  CHECK(contains(refused([](Conv2d& c) { c.input = {2, 6, 9}; }), "input has 3 dimensions (2x6x9); it must have 4"));
  CHECK(contains(refused([](Conv2d& c) { c.weights[2] = 40; }), "does not fit into the padded input of 12x12"));
  CHECK(contains(refused([](Conv2d& c) { c.epilogue.max_pool = {20, 2}; }), "max_pool.window 20x2 does not fit"));
  CHECK(contains(refused([](Conv2d& c) {
                   c.epilogue.max_pool = {Extent{2, 2}, Extent{0, 1}};
                 }),
                 "max_pool.stride.h is 0"));
  CHECK(contains(refused([](Conv2d& c) {
                   c.dtype = DType::f16;
                   c.math = Math::split3;
                 }),
                 "math split3 is for f32"));
  CHECK(contains(refused([](Conv2d& c) { c.input = {1 << 20, 6, 1 << 20, 1 << 20}; }), "2^40"));
  CHECK(contains(message_of([] {
                   validate(MaxPool{.input = {1, 1, 4, 4}, .padding = {2, 0}});
                 }),
                 "padding.top is 2; it must be below the window's 2"));
  constexpr std::int64_t kTooWide = std::int64_t{1} << 31;
  CHECK(contains(message_of([] { validate(Upsample{.input = {1, 1, 1, kTooWide}}); }), "is 2147483648"));
  CHECK(contains(message_of([] { validate(Upsample{.input = {1, 1, 1, kTooWide / 2}}); }), "is 2147483648"));
  CHECK(contains(message_of([] { validate(Matmul{.m = 0}); }), "dimension 0 of a 0x1 is 0"));
  CHECK_NOTHROW(validate(Add{.shape = {4}, .activation = Activation::relu}));
  CHECK(contains(message_of([] { validate(Add{.shape = {4}, .activation = Activation::tanh}); }),
                 "activation is tanh; it must be none or relu"));
  CHECK_THROWS_AS(validate(Add{.shape = {4}, .activation = static_cast<Activation>(3)}), Error);
  CHECK(describe(Add{.shape = {2, 3}, .activation = Activation::relu}) == "add 2x3 f32 nchw, relu");
  const auto refused_tile = [](const Tile& tile) {
    return message_if_thrown([&] { validate(Add{.shape = {25600}, .tile = tile}); });
  };
  CHECK(refused_tile({128, 2000}).empty());
  CHECK(contains(refused_tile({129, 1}), "tile.row_chunk is 129; a tile has 1 to 128 partition lanes"));
  CHECK(contains(refused_tile({0, 5}), "tile.row_chunk is 0"));
  CHECK(contains(refused_tile({128, 0}), "tile.free_dim is 0; it must be from 1"));
}

TEST_CASE("runs of equal values are found at powers of two and between those that differ") {
  int calls = 0;
  const auto runs = runs_of_equal(1, 100, [&](std::int64_t i) {
    ++calls;
    return i < 7 ? 'a' : i < 40 ? 'b' : 'c';
  });
  REQUIRE(runs.size() == 3);
  CHECK(runs[0].first == 1);
  CHECK(runs[1].first == 7);
  CHECK(runs[1].value == 'b');
  CHECK(runs[2].first == 40);
  CHECK(calls < 20);
  CHECK(runs_of_equal(5, 5, [](std::int64_t i) { return i; }).size() == 1);
  CHECK(runs_of_equal(3, 9, [](std::int64_t i) { return i; }).size() == 7);
}

TEST_CASE("a packing's key tells everything that packed bytes depend on apart") {
  const Packing base{.order = "panels", .k = 8, .group_c = 4, .r = 3, .s = 3, .groups = 2, .cut = {16, 4}};
  std::vector<Packing> others(9, base);
  others[0].order = "rows";
  others[1].dtype = DType::bf16;
  others[2].k = 9;
  others[3].group_c = 5;
  others[4].r = 1;
  others[5].s = 1;
  others[6].groups = 1;
  others[7].cut = {4, 16};
  others[8].cut = {16, 4, 0, 0, 0, 1};
  const std::string panels = "panels";  // the same name elsewhere in memory
  Packing same = base;
  same.order = panels.c_str();
  CHECK(same == base);
  CHECK(packing_key("cpu", base) == packing_key("cpu", same));
  CHECK(packing_key("cpu", base) != packing_key("cuda", base));
  for (std::size_t i = 0; i < others.size(); ++i) {
    CAPTURE(i);
    CHECK(base != others[i]);
    CHECK(packing_key("cpu", base) != packing_key("cpu", others[i]));
  }
}

TEST_CASE("the oracle sums by hand, with magnitudes") {
  const Conv2d conv{.input = {1, 1, 2, 2},
                    .weights = {1, 1, 2, 2},
                    .padding = {0, 0, 1, 0},
                    .epilogue = {.bias = true, .activation = Activation::relu}};
  const Tensor x(DType::f32, conv.input);
  const Tensor weights(DType::f32, conv.weights);
  const Tensor bias(DType::f32, {1});
  const std::vector<float> xs{1, -2, 3, 4};
  const std::vector<float> ws{2, 1, -1, 0.5};
  std::copy(xs.begin(), xs.end(), x.as<float>());
  std::copy(ws.begin(), ws.end(), weights.as<float>());
  bias.as<float>()[0] = -0.25f;
  const OracleResult result = oracle(conv, {x, weights, bias});
  CHECK(result.exact == std::vector<double>{0.0, 9.75});  // 2 - 2 - 3 + 2 - 0.25 < 0, and 6 + 4 - 0.25
  CHECK(result.magnitude == std::vector<double>{9.25, 10.25});
  CHECK(contains(message_of([&] { oracle(conv, {x, weights}); }), "takes 3 inputs, not 2"));
  CHECK(contains(message_of([&] { oracle(conv, {x, bias, bias}); }), "weights is 1 f32"));
}

TEST_CASE("comparison fails on one wrong element, on a NaN and on a false infinity") {
  const OracleResult expected{{1.0, 2.0, 1e6}, {1.0, 2.0, 1e6}};
  const ErrorBound bound = f32_accumulation_bound(1, DType::f16, Activation::none);
  const Tensor y(DType::f16, {3});
  const auto set = [&](float a, float b, float c) {
    y.as<std::uint16_t>()[0] = f16_from_float(a);
    y.as<std::uint16_t>()[1] = f16_from_float(b);
    y.as<std::uint16_t>()[2] = f16_from_float(c);
    return compare(y, expected, bound);
  };
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(set(1, 2, infinity).passed);  // 1e6 overflows f16
  CHECK(set(1, 2.01f, infinity).first_mismatch == 1);
  CHECK(set(std::nanf(""), 2, infinity).first_mismatch == 0);
  CHECK(set(1, infinity, infinity).first_mismatch == 1);
  CHECK(set(1, 2, -infinity).mismatches == 1);
  CHECK(set(1, 2, 65504).mismatches == 1);
}

}  // namespace
}  // namespace gable
