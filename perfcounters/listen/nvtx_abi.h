// What NVTX's loader and a tool say to each other, as far as ranges need it: the binary interface of NVTX 3
// (nvtx3/nvtxDetail/nvtxTypes.h), which is fixed. Written out here so that the listener is built without CUDA's
// headers; nvtx_abi_test.cpp compares the two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cwchar>

namespace gable::listen::nvtx {

constexpr std::uint32_t kCallbacksTable = 1;  // NVTX_ETID_CALLBACKS

enum Module : std::int32_t { kCore = 1, kCore2 = 5 };

// Indices into the table of a module.
enum CoreFunction : unsigned {
  kRangeStartEx = 4,
  kRangeStartA = 5,
  kRangeStartW = 6,
  kRangeEnd = 7,
  kRangePushEx = 8,
  kRangePushA = 9,
  kRangePushW = 10,
  kRangePop = 11,
};
enum Core2Function : unsigned {
  kDomainRangeStartEx = 2,
  kDomainRangeEnd = 3,
  kDomainRangePushEx = 4,
  kDomainRangePop = 5,
  kDomainRegisterStringA = 10,
  kDomainRegisterStringW = 11,
  kDomainCreateA = 12,
  kDomainCreateW = 13,
};

using Function = void (*)();

struct Callbacks {
  std::size_t struct_size;
  /// The program's function pointers of a module, by index: a tool writes its own functions there.
  int (*get_module_functions)(Module module, Function*** table, unsigned* size);
};

using GetExportTable = const void* (*)(std::uint32_t table);

enum MessageType : std::int32_t { kAscii = 1, kUnicode = 2, kRegistered = 3 };

struct EventAttributes {
  std::uint16_t version, size;
  std::uint32_t category;
  std::int32_t color_type;
  std::uint32_t color;
  std::int32_t payload_type, reserved;
  std::uint64_t payload;
  std::int32_t message_type;
  union {
    const char* ascii;
    const wchar_t* unicode;
    const void* registered;
  } message;
};

}  // namespace gable::listen::nvtx
