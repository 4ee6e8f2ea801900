/* A program that NVTX annotates, with its C header alone. */
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <string.h>

static nvtxEventAttributes_t attributes(void) {
  nvtxEventAttributes_t event;
  memset(&event, 0, sizeof event);
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  return event;
}

static void* end_elsewhere(void* id) {
  nvtxRangeEnd(*(nvtxRangeId_t*)id);
  return NULL;
}

int main(void) {
  nvtxDomainHandle_t domain = nvtxDomainCreateA("lib");
  nvtxEventAttributes_t event = attributes();
  nvtxRangeId_t range;
  pthread_t thread;
  int i;

  nvtxRangePushA("step");
  for (i = 0; i < 3; ++i) {
    nvtxRangePushW(L"w\u00efde");
    nvtxRangePop();
  }
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = "in the library";
  nvtxDomainRangePushEx(domain, &event);
  nvtxRangePop(); /* ends "step": each domain has its own stack */
  nvtxDomainRangePop(domain);

  event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  event.message.registered = nvtxDomainRegisterStringA(domain, "registered");
  range = nvtxDomainRangeStartEx(domain, &event);
  nvtxDomainRangeEnd(domain, range);

  range = nvtxRangeStartA("async");
  pthread_create(&thread, NULL, end_elsewhere, &range);
  pthread_join(thread, NULL);
  nvtxRangePushA("after");
  nvtxRangePop();
  nvtxRangePushA("aten::mm, seq = 3, op_id = 17"); /* as PyTorch's emit_nvtx() */
  nvtxRangePop();
  nvtxRangePushA("aten::mm, op_id = 18");
  nvtxRangePop();
  nvtxRangePop(); /* unbalanced */
  return 0;
}
