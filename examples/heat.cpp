// A program that knows gable only by a header that needs no library: 20 steps of a 7-point stencil on 200^3 doubles.
//
//   g++ -O2 -march=haswell -I api/include examples/heat.cpp -o heat
//   gable measure -- ./heat
#include <gable/region.h>

#include <cstddef>
#include <cstdio>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t kSide = 200, kPlane = kSide * kSide, kPoints = kSide * kPlane;

void step(const std::vector<double>& from, std::vector<double>& to) {
  GABLE_REGION("stencil");  // until the end of the scope
  for (std::size_t z = 1; z < kSide - 1; ++z)
    for (std::size_t y = 1; y < kSide - 1; ++y)
      for (std::size_t i = z * kPlane + y * kSide + 1; i < z * kPlane + y * kSide + kSide - 1; ++i)
        to[i] = 0.4 * from[i] + 0.1 * (from[i - 1] + from[i + 1] + from[i - kSide] + from[i + kSide] +
                                       from[i - kPlane] + from[i + kPlane]);
}

}  // namespace

int main() {
  std::vector<double> a(kPoints, 1), b(kPoints, 1);
  for (int i = 0; i < 20; ++i) {
    step(a, b);
    std::swap(a, b);
  }
  std::printf("%g\n", a[kPoints / 2]);
}
