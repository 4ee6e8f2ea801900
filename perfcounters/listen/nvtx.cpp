// NVTX ranges as regions. NVTX_INJECTION64_PATH names this library; each copy of NVTX in the program (it is a header)
// calls InitializeInjectionNvtx2() at its first use and lets it replace its functions.
#include <stdlib.h>
#include <string.h>

#include "perfcounters/listen/names.h"
#include "perfcounters/listen/nvtx_abi.h"
#include "perfcounters/listen/thread_stack.h"

namespace gable::listen::nvtx {
namespace {

constexpr std::size_t kMaxBytes = kMaxNameBytes + 8;  // longer than a region's name: what is cut is known to be

/// A name made from NVTX's forms of one: "message" or "domain:message".
class Name {
 public:
  Name(const char* domain, const EventAttributes* attributes) {
    put_domain(domain);
    if (attributes == nullptr) return;
    if (attributes->message_type == kAscii)
      put(attributes->message.ascii);
    else if (attributes->message_type == kUnicode)
      put(attributes->message.unicode);
    else if (attributes->message_type == kRegistered)
      put(static_cast<const char*>(attributes->message.registered));
  }
  explicit Name(const wchar_t* text) { put(text); }
  const char* text() const { return text_; }

 private:
  void put_domain(const char* domain) {
    if (domain == nullptr) return;
    put(domain);
    put(":");
  }
  void put(const char* text) {
    while (text != nullptr && *text != '\0' && bytes_ + 1 < kMaxBytes) text_[bytes_++] = *text++;
    text_[bytes_] = '\0';
  }
  void put(const wchar_t* text) {
    while (text != nullptr && *text != L'\0' && bytes_ + 5 < kMaxBytes)
      put_character(static_cast<std::uint32_t>(*text++));
    text_[bytes_] = '\0';
  }
  void put_character(std::uint32_t c) {  // as UTF-8
    if (c < 0x80) return put_byte(c);
    if (c < 0x800) return put_byte(0xc0 | c >> 6), put_byte(0x80 | (c & 0x3f));
    if (c < 0x10000) return put_byte(0xe0 | c >> 12), put_byte(0x80 | (c >> 6 & 0x3f)), put_byte(0x80 | (c & 0x3f));
    if (c > 0x10ffff) return put_byte('?');
    put_byte(0xf0 | c >> 18), put_byte(0x80 | (c >> 12 & 0x3f));
    put_byte(0x80 | (c >> 6 & 0x3f)), put_byte(0x80 | (c & 0x3f));
  }
  void put_byte(std::uint32_t byte) { text_[bytes_++] = static_cast<char>(byte); }

  char text_[kMaxBytes] = {};
  std::size_t bytes_ = 0;
};

/// What NVTX holds as a domain or a registered string. They live as long as the process.
char* kept(const char* text) { return text == nullptr ? nullptr : strdup(text); }
char* kept(const wchar_t* text) { return text == nullptr ? nullptr : strdup(Name(text).text()); }

constexpr Kind kDefaultDomain = 2;

Kind kind_of(const char* domain) {
  return domain == nullptr ? kDefaultDomain : static_cast<Kind>(reinterpret_cast<std::uintptr_t>(domain));
}

int push(const char* domain, const char* name) {
  return begin_region({.name = name, .origin = Origin::nvtx, .kind = kind_of(domain)});
}

// ---- The functions that NVTX calls

int push_ascii(const char* message) { return push(nullptr, message); }
int push_wide(const wchar_t* message) { return push(nullptr, Name(message).text()); }
int push_attributes(const EventAttributes* attributes) { return push(nullptr, Name(nullptr, attributes).text()); }
int pop() { return end_region(kDefaultDomain); }
std::uint64_t start_ascii(const char* message) { return begin_range(message); }
std::uint64_t start_wide(const wchar_t* message) { return begin_range(Name(message).text()); }
std::uint64_t start_attributes(const EventAttributes* attributes) {
  return begin_range(Name(nullptr, attributes).text());
}
void end(std::uint64_t id) { end_range(id); }

int domain_push(const char* domain, const EventAttributes* attributes) {
  return push(domain, Name(domain, attributes).text());
}
int domain_pop(const char* domain) { return end_region(kind_of(domain)); }
std::uint64_t domain_start(const char* domain, const EventAttributes* attributes) {
  return begin_range(Name(domain, attributes).text());
}
void domain_end(const char*, std::uint64_t id) { end_range(id); }
const void* register_ascii(const char*, const char* text) { return kept(text); }
const void* register_wide(const char*, const wchar_t* text) { return kept(text); }
const char* create_ascii(const char* name) { return kept(name); }
const char* create_wide(const wchar_t* name) { return kept(name); }

/// The program's function pointers of one module.
class Functions {
 public:
  Functions(const Callbacks& callbacks, Module module) {
    if (callbacks.get_module_functions(module, &table_, &size_) == 0) size_ = 0;
  }
  template <class F>
  void set(unsigned index, F* function) {
    if (index < size_ && table_[index] != nullptr) *table_[index] = reinterpret_cast<Function>(function);
  }

 private:
  Function** table_ = nullptr;
  unsigned size_ = 0;
};

void set_core(Functions core) {
  core.set(kRangeStartEx, start_attributes);
  core.set(kRangeStartA, start_ascii);
  core.set(kRangeStartW, start_wide);
  core.set(kRangeEnd, end);
  core.set(kRangePushEx, push_attributes);
  core.set(kRangePushA, push_ascii);
  core.set(kRangePushW, push_wide);
  core.set(kRangePop, pop);
}

void set_core2(Functions core2) {
  core2.set(kDomainRangeStartEx, domain_start);
  core2.set(kDomainRangeEnd, domain_end);
  core2.set(kDomainRangePushEx, domain_push);
  core2.set(kDomainRangePop, domain_pop);
  core2.set(kDomainRegisterStringA, register_ascii);
  core2.set(kDomainRegisterStringW, register_wide);
  core2.set(kDomainCreateA, create_ascii);
  core2.set(kDomainCreateW, create_wide);
}

}  // namespace
}  // namespace gable::listen::nvtx

/// 1: the functions are set; 0: NVTX does without this library.
extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    gable::listen::nvtx::GetExportTable get_export_table) {
  using namespace gable::listen;
  const auto* callbacks = static_cast<const nvtx::Callbacks*>(get_export_table(nvtx::kCallbacksTable));
  if (callbacks == nullptr || callbacks->struct_size < sizeof(nvtx::Callbacks) || !table.ready()) return 0;
  nvtx::set_core(nvtx::Functions(*callbacks, nvtx::kCore));
  nvtx::set_core2(nvtx::Functions(*callbacks, nvtx::kCore2));
  return 1;
}
