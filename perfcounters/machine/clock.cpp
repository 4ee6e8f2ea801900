// The core clock, measured. See measure_clock_hz() in machine.h.
#include <algorithm>
#include <chrono>
#include <vector>

#include "perfcounters/machine.h"

namespace gable::perf {
namespace {

// `count` dependent additions, each one cycle.
void addition_chain(long count) {
  long value = count;
  for (long i = 0; i < count; i += 16) {
#if defined(__x86_64__)
    asm volatile(".rept 16\n\tadd %1, %0\n\t.endr" : "+r"(value) : "r"(i) : "cc");
#elif defined(__aarch64__)
    asm volatile(".rept 16\n\tadd %0, %0, %1\n\t.endr" : "+r"(value) : "r"(i));
#endif
  }
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

double measure_clock_hz(double seconds) {
#if defined(__x86_64__) || defined(__aarch64__)
  constexpr long kAdditions = 1 << 18;  // about 0.1 ms: short enough that some samples are not interrupted
  std::vector<double> rates;
  const double end = seconds_now() + seconds;
  do {
    const double start = seconds_now();
    addition_chain(kAdditions);
    rates.push_back(static_cast<double>(kAdditions) / (seconds_now() - start));
  } while (seconds_now() < end);
  // Interruptions only slow samples down, and the first samples wake the core: take the upper quartile.
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() * 3 / 4];
#else
  (void)seconds;
  return 0;
#endif
}

}  // namespace gable::perf
