// A small residual network from end to end: any number of images up to eight, in several threads, on any device.
// Weights are in PyTorch's order (K, C/groups, R, S) and images in NCHW; with Layout::nhwc the weights stay as they
// are. It runs on `auto` and on the f64 reference, whose answers must agree.
#include <gable/gable.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

namespace {

constexpr std::int64_t kMost = 8;  // images at once
constexpr std::int64_t kChannels = 32, kSide = 16, kClasses = 10;
constexpr gable::Epilogue kRelu{.bias = true, .activation = gable::Activation::relu};

std::vector<float> numbers(std::int64_t count, float scale) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = scale * static_cast<float>(std::sin(static_cast<double>(i)));
  return values;
}

/// Weights and bias of a layer. All threads share them.
struct Values {
  explicit Values(const gable::Conv2d& conv)
      : weights(numbers(conv.weights.elements(), 0.2F)), bias(numbers(conv.weights[0], 0.1F)) {}
  std::vector<float> weights, bias;
};

/// A convolution of one thread: a plan runs in one thread at a time. Packed weights serve all threads.
class Layer {
 public:
  Layer(const gable::Device& device, const gable::Conv2d& conv)
      : conv_(conv), values_(std::make_shared<Values>(conv)), plan_(device.plan(conv, gable::BatchRange{1, kMost})) {
    packed_ = plan_.pack({values_->weights.data(), conv.dtype, conv.weights});
    size_output();
  }
  /// For another thread.
  Layer(const gable::Device& device, const Layer& other)
      : conv_(other.conv_), values_(other.values_), plan_(device.plan(conv_, gable::BatchRange{1, kMost})) {
    packed_ = other.packed_;
    size_output();
  }

  const gable::Shape& shape() const { return shape_; }  ///< of kMost outputs

  gable::TensorView run(const gable::ConstTensorView& x) {
    gable::Shape shape = shape_;
    shape[0] = x.shape[0];
    const gable::TensorView y(output_.data(), conv_.dtype, shape);
    plan_.run(x, packed_, {values_->bias.data(), gable::DType::f32, {shape[1]}}, y);
    return y;
  }

 private:
  void size_output() {
    shape_ = plan_.at(kMost)->output_shape();
    output_.resize(static_cast<std::size_t>(shape_.elements()));
  }

  gable::Conv2d conv_;
  std::shared_ptr<Values> values_;
  gable::BatchPlan plan_;
  gable::BatchWeights packed_;
  gable::Shape shape_;
  std::vector<float> output_;
};

/// The layers of one thread.
struct Network {
  explicit Network(const gable::Device& device)
      : stem(device, {.input = {kMost, 3, 2 * kSide, 2 * kSide},
                      .weights = {kChannels, 3, 3, 3},
                      .padding = {1, 1},
                      .epilogue = {.bias = true, .activation = gable::Activation::relu, .max_pool = {2, 2}}}),
        grouped(device, {.input = stem.shape(),
                         .weights = {kChannels, kChannels / 4, 3, 3},
                         .padding = {1, 1},
                         .groups = 4,
                         .epilogue = kRelu}),
        last(device, {.input = stem.shape(), .weights = {kChannels, kChannels, 1, 1}, .epilogue = {.bias = true}}),
        residual(plan_of_residual(device, stem.shape())),
        // A fully connected layer is a 1x1 convolution of one pixel.
        classifier(
            device,
            {.input = {kMost, kChannels, 1, 1}, .weights = {kClasses, kChannels, 1, 1}, .epilogue = {.bias = true}}) {}
  Network(const gable::Device& device, const Network& other)
      : stem(device, other.stem),
        grouped(device, other.grouped),
        last(device, other.last),
        residual(plan_of_residual(device, stem.shape())),
        classifier(device, other.classifier) {}

  std::vector<float> run(std::vector<float>& images) {
    const auto count = static_cast<std::int64_t>(images.size()) / (3 * 4 * kSide * kSide);
    const gable::TensorView a = stem.run({images.data(), gable::DType::f32, {count, 3, 2 * kSide, 2 * kSide}});
    const gable::TensorView b = last.run(grouped.run(a));
    residual.run(a, b, b);  // b = relu(a + b); the output of an Add may be one of its inputs
    std::vector<float> means(static_cast<std::size_t>(count * kChannels));
    const auto* y = static_cast<const float*>(b.data);
    for (float& mean : means) {
      for (std::int64_t i = 0; i < kSide * kSide; ++i) mean += *y++ / (kSide * kSide);
    }
    const gable::TensorView scores = classifier.run({means.data(), gable::DType::f32, {count, kChannels, 1, 1}});
    const auto* first = static_cast<const float*>(scores.data);
    return {first, first + count * kClasses};
  }

  Layer stem, grouped, last;
  gable::BatchPlan residual;
  Layer classifier;

 private:
  static gable::BatchPlan plan_of_residual(const gable::Device& device, const gable::Shape& shape) {
    return device.plan(gable::Add{.shape = shape, .activation = gable::Activation::relu}, gable::BatchRange{1, kMost});
  }
};

float furthest(const std::vector<float>& a, const std::vector<float>& b) {
  float most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

}  // namespace

int main() try {
  // Tensors lie on the host. With a GPU, `auto` uses it where a layer is worth the copies.
  const gable::Device device = gable::open("auto?memory=host"), reference = gable::open("reference");
  Network network(device), exact(reference);
  std::vector<float> differences(4);
  std::vector<std::vector<float>> images, expected;
  for (std::size_t t = 0; t < differences.size(); ++t) {
    images.push_back(numbers(static_cast<std::int64_t>(1 + 2 * t) * 3 * 4 * kSide * kSide, 1));
    expected.push_back(exact.run(images.back()));
  }
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < differences.size(); ++t) {
    threads.emplace_back([&, t, own = std::make_shared<Network>(device, network)] {
      differences[t] = furthest(own->run(images[t]), expected[t]);  // an exception here would end the program: catch it
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t t = 0; t < differences.size(); ++t) {
    std::printf("%zu images: %s\n", 1 + 2 * t, differences[t] < 1e-4F ? "as the reference" : "WRONG");
  }
} catch (const gable::Error& error) {
  std::fprintf(stderr, "small_network: %s\n", error.what());
  return 1;
}
