// Programs with one planted bottleneck each: planted NAME [SCALE]. `gable measure --ceilings -- planted NAME` should
// name it (bench/planted.py). About a tenth of a second of CPU time at scale 1, since a simulation takes a hundred
// times as long. Built with -O2 for any x86-64; what needs more asks for it.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <fcntl.h>
#include <immintrin.h>
#endif

namespace {

volatile double sink;

void on_two_threads(const std::function<void(int)>& work) {
  std::thread other([&] { work(1); });
  work(0);
  other.join();
}

/// Two threads write to two numbers of one cache line.
void false_sharing(int scale) {
  alignas(64) static std::atomic<std::uint64_t> counters[8];
  on_two_threads([&](int thread) {
    for (int i = 0; i < 60'000'000 * scale; ++i) counters[thread].fetch_add(1, std::memory_order_relaxed);
  });
}

/// Column by column through a matrix that lies row by row.
void strided(int scale) {
  constexpr std::size_t kSide = 2048;
  std::vector<float> matrix(kSide * kSide, 1.0F);
  float sum = 0;
  for (int pass = 0; pass < 4 * scale; ++pass)
    for (std::size_t column = 0; column < kSide; ++column)
      for (std::size_t row = 0; row < kSide; ++row) sum += matrix[row * kSide + column];
  sink = sum;
}

/// Each load's address comes from the load before.
void chase(int scale) {
  constexpr std::size_t kNodes = 1 << 20;
  struct alignas(64) Node {
    std::size_t next;
  };
  std::vector<std::size_t> order(kNodes);
  std::iota(order.begin(), order.end(), 0);
  std::minstd_rand random(1);
  for (std::size_t i = kNodes - 1; i > 0; --i) std::swap(order[i], order[random() % (i + 1)]);
  std::vector<Node> nodes(kNodes);
  for (std::size_t i = 0; i < kNodes; ++i) nodes[order[i]].next = order[(i + 1) % kNodes];
  std::size_t at = 0;
  for (int i = 0; i < 1'500'000 * scale; ++i) at = nodes[at].next;
  sink = static_cast<double>(at);
}

/// Operands and results are below the smallest normal number. (Recent CPUs add and multiply them at full speed.)
void denormals(int scale) {
  std::vector<double> x(512, 1e-310), y(512);
  for (int pass = 0; pass < 40000 * scale; ++pass) {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = std::sqrt(x[i]) * 1e-160;
    asm volatile("" ::"r"(y.data()) : "memory");
  }
  sink = y[7];
}

/// Memory is taken from the system, touched once and given back.
void page_faults(int scale) {
  constexpr std::size_t kBytes = 16 << 20;
  for (int i = 0; i < 20 * scale; ++i) {
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto* bytes = static_cast<char*>(memory);
    for (std::size_t at = 0; at < kBytes; at += 4096) bytes[at] = 1;
    munmap(memory, kBytes);
  }
}

/// A thread for each tiny task.
void tiny_tasks(int scale) {
  std::atomic<int> done{0};
  for (int i = 0; i < 2000 * scale; ++i) std::thread([&] { ++done; }).join();
  sink = done;
}

/// A system call for each byte.
void tiny_writes(int scale) {
  const int file = open("/dev/null", O_WRONLY);
  for (int i = 0; i < 600'000 * scale; ++i)
    if (write(file, "x", 1) != 1) std::abort();
  close(file);
}

/// A branch that depends on a random bit.
void branches(int scale) {
  std::minstd_rand random(1);
  std::vector<unsigned char> bits(1 << 14);
  for (unsigned char& bit : bits) bit = static_cast<unsigned char>(random() >> 16 & 1);
  std::uint64_t sum = 0;
  for (int pass = 0; pass < 9000 * scale; ++pass)
    for (const unsigned char bit : bits) {
      if (bit != 0) {
        asm volatile("" ::: "memory");  // keeps the branch
        sum += 3;
      } else {
        sum ^= 5;
      }
    }
  sink = static_cast<double>(sum);
}

/// a = b + 3c, far larger than any cache.
void triad(int scale) {
  constexpr std::size_t kCount = 8 << 20;
  std::vector<float> a(kCount), b(kCount, 1.0F), c(kCount, 2.0F);
  for (int pass = 0; pass < 40 * scale; ++pass) {
    for (std::size_t i = 0; i < kCount; ++i) a[i] = b[i] + 3 * c[i];
    asm volatile("" ::"r"(a.data()) : "memory");
  }
  sink = a[7];
}

/// Sums in which each addition waits for the one before.
void chain(int scale) {
  double sum = 1;
  for (int i = 0; i < 60'000'000 * scale; ++i) {
    sum = sum * 0.9999999 + 1e-9;
    asm volatile("" : "+x"(sum));
  }
  sink = sum;
}

/// Eight independent chains of scalar arithmetic.
void scalar(int scale) {
  double s[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  for (int i = 0; i < 20'000'000 * scale; ++i) {
#pragma GCC unroll 8
    for (double& one : s) {
      one = one + 1e-9;
      asm volatile("" : "+x"(one));
    }
  }
  sink = s[0] + s[7];
}

#if defined(__x86_64__)
/// Independent chains of products and sums in vectors, in equal numbers. (Fused ones take valgrind minutes.)
__attribute__((target("avx2"))) void compute(int scale) {
  // Twelve numbers and two constants fit 16 registers; arrays would stay in memory.
  __m256 p0 = _mm256_set1_ps(1.0F), p1 = p0, p2 = p0, p3 = p0, p4 = p0, p5 = p0;
  __m256 s0 = p0, s1 = p0, s2 = p0, s3 = p0, s4 = p0, s5 = p0;
  const __m256 factor = _mm256_set1_ps(0.9999999F), term = _mm256_set1_ps(1e-3F);
  for (int i = 0; i < 20'000'000 * scale; ++i) {
    asm volatile("" : "+x"(p0), "+x"(p1), "+x"(p2), "+x"(p3), "+x"(p4), "+x"(p5));
    asm volatile("" : "+x"(s0), "+x"(s1), "+x"(s2), "+x"(s3), "+x"(s4), "+x"(s5));
    p0 = _mm256_mul_ps(p0, factor), s0 = _mm256_add_ps(s0, term);
    p1 = _mm256_mul_ps(p1, factor), s1 = _mm256_add_ps(s1, term);
    p2 = _mm256_mul_ps(p2, factor), s2 = _mm256_add_ps(s2, term);
    p3 = _mm256_mul_ps(p3, factor), s3 = _mm256_add_ps(s3, term);
    p4 = _mm256_mul_ps(p4, factor), s4 = _mm256_add_ps(s4, term);
    p5 = _mm256_mul_ps(p5, factor), s5 = _mm256_add_ps(s5, term);
  }
  const __m256 products =
      _mm256_mul_ps(_mm256_mul_ps(p0, p1), _mm256_mul_ps(_mm256_mul_ps(p2, p3), _mm256_mul_ps(p4, p5)));
  const __m256 sums = _mm256_add_ps(_mm256_add_ps(s0, s1), _mm256_add_ps(_mm256_add_ps(s2, s3), _mm256_add_ps(s4, s5)));
  sink = _mm256_cvtss_f32(_mm256_add_ps(products, sums));
}

/// Vector loads of which each crosses two cache lines.
__attribute__((target("avx2"))) void unaligned(int scale) {
  std::vector<float> x(4096 + 64, 1.0F);
  auto address = reinterpret_cast<std::uintptr_t>(x.data());
  const float* from = reinterpret_cast<const float*>((address + 63) / 64 * 64 + 48);
  __m256 a = _mm256_setzero_ps(), b = a, c = a, d = a;
  for (int pass = 0; pass < 1'200'000 * scale; ++pass) {
    for (int i = 0; i < 2048; i += 64) {
      a = _mm256_or_ps(a, _mm256_loadu_ps(from + i));
      b = _mm256_or_ps(b, _mm256_loadu_ps(from + i + 16));
      c = _mm256_or_ps(c, _mm256_loadu_ps(from + i + 32));
      d = _mm256_or_ps(d, _mm256_loadu_ps(from + i + 48));
    }
    asm volatile("" ::: "memory");
  }
  sink = _mm256_cvtss_f32(_mm256_or_ps(_mm256_or_ps(a, b), _mm256_or_ps(c, d)));
}

/// The same, in a thread that the first one waits for.
void unaligned_thread(int scale) { std::thread(unaligned, scale).join(); }

/// The same after forks that take the system milliseconds each, for their tables of pages.
void unaligned_after_forks(int scale) {
  constexpr std::size_t kBytes = 256 << 20;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(memory, kBytes, MADV_NOHUGEPAGE);
  for (std::size_t at = 0; at < kBytes; at += 4096) static_cast<char*>(memory)[at] = 1;
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, nullptr, 0);
  }
  munmap(memory, kBytes);
  unaligned(scale);
}
#endif

/// One thread keeps the system busy, with few instructions of its own between system calls, and then waits for another
/// thread, which starts threads meanwhile.
void handing_over(int scale) {
  constexpr std::size_t kBytes = 2 << 20;
  int there[2], back[2];
  if (pipe(there) != 0 || pipe(back) != 0) return;
  const int times = 50 * scale;
  std::thread other([&] {
    char byte = 0;
    for (int i = 0; i < times && read(there[0], &byte, 1) == 1; ++i) {
      std::thread([] {}).join();
      if (write(back[1], &byte, 1) != 1) return;
    }
  });
  char byte = 0;
  for (int i = 0; i < times; ++i) {
    for (int k = 0; k < 3; ++k)
      munmap(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0), kBytes);
    if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) break;
  }
  other.join();
}

void waiting(int scale) {
  for (int i = 0; i < 20 * scale; ++i) usleep(10'000);
}

struct Planted {
  const char* name;
  void (*run)(int scale);
};

constexpr Planted kPlanted[] = {
    {"false_sharing", false_sharing},
    {"strided", strided},
    {"chase", chase},
    {"denormals", denormals},
    {"page_faults", page_faults},
    {"tiny_tasks", tiny_tasks},
    {"tiny_writes", tiny_writes},
    {"branches", branches},
    {"triad", triad},
    {"chain", chain},
    {"scalar", scalar},
    {"waiting", waiting},
    {"handing_over", handing_over},
#if defined(__x86_64__)
    {"compute", compute},
    {"unaligned", unaligned},
    {"unaligned_thread", unaligned_thread},
    {"unaligned_after_forks", unaligned_after_forks},
#endif
};

}  // namespace

int main(int argc, char** argv) {
  const int scale = argc > 2 ? std::atoi(argv[2]) : 1;
  for (const Planted& one : kPlanted) {
    if (argc < 2 || std::strcmp(one.name, argv[1]) != 0) continue;
    one.run(scale);
    return 0;
  }
  std::fputs("planted NAME [SCALE]; NAME is one of", stderr);
  for (const Planted& one : kPlanted) std::fprintf(stderr, " %s", one.name);
  std::fputs("\n", stderr);
  return 2;
}
