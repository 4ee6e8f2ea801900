// A triad and a 7-point stencil of your own, measured in turn and put under the ceilings of this machine:
// measure_loops [study.json [seconds]]. Then: gable plot study.json.
#include <gable/measure.h>

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

int main(int argc, char** argv) try {
  const std::size_t n = 200, plane = n * n, all = n * plane;
  std::vector<double> a(all, 0), b(all, 1), c(all, 2);
  const auto triad = [&] {
    for (std::size_t i = 0; i < all; ++i) a[i] = b[i] + 3.0 * c[i];
  };
  const auto stencil = [&] {
    for (std::size_t z = 1; z + 1 < n; ++z)
      for (std::size_t y = 1; y + 1 < n; ++y)
        for (std::size_t i = z * plane + y * n + 1; i < z * plane + y * n + n - 1; ++i)
          a[i] = 0.4 * b[i] + 0.1 * (b[i - 1] + b[i + 1] + b[i - n] + b[i + n] + b[i - plane] + b[i + plane]);
  };
  const double inner = double(n - 2) * double(n - 2) * double(n - 2), numbers = double(all);
  gable::MeasureOptions options{.dtype = "f64", .seconds = argc > 2 ? std::atof(argv[2]) : 1.0};
  gable::MeasureOptions of_triad = options, of_stencil = options;
  of_triad.flop = 2 * numbers, of_triad.bytes = 32 * numbers;    // a is read before it is written
  of_stencil.flop = 8 * inner, of_stencil.bytes = 24 * numbers;  // b once, a twice
  gable::Record record;
  for (const auto& m : gable::measure_in_turn({{"triad", triad, of_triad}, {"stencil", stencil, of_stencil}}))
    record.add(m);
  record.measure_ceilings();
  record.write(argc > 1 ? argv[1] : "study.json");
  std::printf("%s", record.table().c_str());
} catch (const std::exception& error) {
  std::fprintf(stderr, "measure_loops: %s\n", error.what());
  return 1;
}
