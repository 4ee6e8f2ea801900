// nvtx_abi.h is what NVTX's own header says. A test by compiling.
#include "perfcounters/listen/nvtx_abi.h"

#include <cstddef>

#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>

namespace ours = gable::listen::nvtx;

static_assert(ours::kCallbacksTable == NVTX_ETID_CALLBACKS);
static_assert(int{ours::kCore} == NVTX_CB_MODULE_CORE && int{ours::kCore2} == NVTX_CB_MODULE_CORE2);
static_assert(int{ours::kRangeStartEx} == NVTX_CBID_CORE_RangeStartEx);
static_assert(int{ours::kRangeStartA} == NVTX_CBID_CORE_RangeStartA);
static_assert(int{ours::kRangeStartW} == NVTX_CBID_CORE_RangeStartW);
static_assert(int{ours::kRangeEnd} == NVTX_CBID_CORE_RangeEnd);
static_assert(int{ours::kRangePushEx} == NVTX_CBID_CORE_RangePushEx);
static_assert(int{ours::kRangePushA} == NVTX_CBID_CORE_RangePushA);
static_assert(int{ours::kRangePushW} == NVTX_CBID_CORE_RangePushW);
static_assert(int{ours::kRangePop} == NVTX_CBID_CORE_RangePop);
static_assert(int{ours::kDomainRangeStartEx} == NVTX_CBID_CORE2_DomainRangeStartEx);
static_assert(int{ours::kDomainRangeEnd} == NVTX_CBID_CORE2_DomainRangeEnd);
static_assert(int{ours::kDomainRangePushEx} == NVTX_CBID_CORE2_DomainRangePushEx);
static_assert(int{ours::kDomainRangePop} == NVTX_CBID_CORE2_DomainRangePop);
static_assert(int{ours::kDomainRegisterStringA} == NVTX_CBID_CORE2_DomainRegisterStringA);
static_assert(int{ours::kDomainRegisterStringW} == NVTX_CBID_CORE2_DomainRegisterStringW);
static_assert(int{ours::kDomainCreateA} == NVTX_CBID_CORE2_DomainCreateA);
static_assert(int{ours::kDomainCreateW} == NVTX_CBID_CORE2_DomainCreateW);
static_assert(sizeof(ours::Callbacks) == sizeof(NvtxExportTableCallbacks));
static_assert(sizeof(ours::EventAttributes) == sizeof(nvtxEventAttributes_t));
static_assert(offsetof(ours::EventAttributes, message_type) == offsetof(nvtxEventAttributes_t, messageType));
static_assert(offsetof(ours::EventAttributes, message) == offsetof(nvtxEventAttributes_t, message));
static_assert(sizeof(nvtxRangeId_t) == sizeof(std::uint64_t));
static_assert(int{ours::kAscii} == NVTX_MESSAGE_TYPE_ASCII && int{ours::kUnicode} == NVTX_MESSAGE_TYPE_UNICODE &&
              int{ours::kRegistered} == NVTX_MESSAGE_TYPE_REGISTERED);
