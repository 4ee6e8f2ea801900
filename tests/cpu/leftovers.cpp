// Fills what is allocated on cache lines, which is where plans keep their workspaces, with denormals: a kernel that
// multiplies lanes or pixels that hold no data then has denormal operands, which check_plan() notices. AddressSanitizer
// has an allocator of its own, and its builds fill workspaces with NaN.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>

void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto line = static_cast<std::size_t>(alignment);
  const std::size_t bytes = (std::max(size, line) + line - 1) / line * line;
  auto* data = static_cast<float*>(std::aligned_alloc(line, bytes));
  if (data == nullptr) throw std::bad_alloc();
  std::fill_n(data, bytes / sizeof(float), std::numeric_limits<float>::denorm_min());
  return data;
}
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, std::size_t, std::align_val_t) noexcept { std::free(data); }
#endif
