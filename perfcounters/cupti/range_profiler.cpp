// See range_profiler.h.
#include "perfcounters/cupti/range_profiler.h"

#include "perfcounters/cupti/host.h"
#include "perfcounters/sources/gpu_profiler.h"

namespace gable::cupti {

RangeProfiler::RangeProfiler(CUcontext context) {
  auto parameters = sized<CUpti_RangeProfiler_Enable_Params>(CUpti_RangeProfiler_Enable_Params_STRUCT_SIZE);
  parameters.ctx = context;
  check(functions().range_enable(&parameters), "cuptiRangeProfilerEnable");
  object_ = parameters.pRangeProfilerObject;
}

RangeProfiler::~RangeProfiler() {
  auto parameters = sized<CUpti_RangeProfiler_Disable_Params>(CUpti_RangeProfiler_Disable_Params_STRUCT_SIZE);
  parameters.pRangeProfilerObject = object_;
  functions().range_disable(&parameters);
}

std::vector<std::uint8_t> RangeProfiler::counter_image(const std::vector<std::string>& metrics,
                                                       std::size_t ranges) const {
  std::vector<const char*> names = pointers(metrics);
  auto size =
      sized<CUpti_RangeProfiler_GetCounterDataSize_Params>(CUpti_RangeProfiler_GetCounterDataSize_Params_STRUCT_SIZE);
  size.pRangeProfilerObject = object_;
  size.pMetricNames = names.data();
  size.numMetrics = names.size();
  size.maxNumOfRanges = ranges;
  size.maxNumRangeTreeNodes = static_cast<std::uint32_t>(ranges);
  check(functions().counter_data_size(&size), "cuptiRangeProfilerGetCounterDataSize");
  std::vector<std::uint8_t> image(size.counterDataSize);
  auto initialize = sized<CUpti_RangeProfiler_CounterDataImage_Initialize_Params>(
      CUpti_RangeProfiler_CounterDataImage_Initialize_Params_STRUCT_SIZE);
  initialize.pRangeProfilerObject = object_;
  initialize.pCounterData = image.data();
  initialize.counterDataSize = image.size();
  check(functions().counter_data_initialize(&initialize), "cuptiRangeProfilerCounterDataImageInitialize");
  return image;
}

void RangeProfiler::configure(const std::vector<std::uint8_t>& config, std::vector<std::uint8_t>& counters,
                              RangeMode mode, std::size_t ranges) {
  auto parameters = sized<CUpti_RangeProfiler_SetConfig_Params>(CUpti_RangeProfiler_SetConfig_Params_STRUCT_SIZE);
  parameters.pRangeProfilerObject = object_;
  parameters.pConfig = config.data();
  parameters.configSize = config.size();
  parameters.pCounterDataImage = counters.data();
  parameters.counterDataImageSize = counters.size();
  parameters.range = mode.range;
  parameters.replayMode = mode.replay;
  parameters.maxRangesPerPass = ranges;
  parameters.numNestingLevels = 1;
  parameters.minNestingLevel = 1;
  parameters.targetNestingLevel = 1;
  check(functions().range_set_config(&parameters), "cuptiRangeProfilerSetConfig");
}

void RangeProfiler::start() {
  auto parameters = sized<CUpti_RangeProfiler_Start_Params>(CUpti_RangeProfiler_Start_Params_STRUCT_SIZE);
  parameters.pRangeProfilerObject = object_;
  check(functions().range_start(&parameters), "cuptiRangeProfilerStart");
}

bool RangeProfiler::stop() {
  auto parameters = sized<CUpti_RangeProfiler_Stop_Params>(CUpti_RangeProfiler_Stop_Params_STRUCT_SIZE);
  parameters.pRangeProfilerObject = object_;
  check(functions().range_stop(&parameters), "cuptiRangeProfilerStop");
  return parameters.isAllPassSubmitted != 0;
}

void RangeProfiler::push(const std::string& name) {
  auto parameters = sized<CUpti_RangeProfiler_PushRange_Params>(CUpti_RangeProfiler_PushRange_Params_STRUCT_SIZE);
  parameters.pRangeProfilerObject = object_;
  parameters.pRangeName = name.c_str();
  check(functions().range_push(&parameters), "cuptiRangeProfilerPushRange");
}

void RangeProfiler::pop() {
  auto parameters = sized<CUpti_RangeProfiler_PopRange_Params>(CUpti_RangeProfiler_PopRange_Params_STRUCT_SIZE);
  parameters.pRangeProfilerObject = object_;
  check(functions().range_pop(&parameters), "cuptiRangeProfilerPopRange");
}

std::size_t RangeProfiler::decode(const std::vector<std::uint8_t>& counters) {
  auto parameters = sized<CUpti_RangeProfiler_DecodeData_Params>(CUpti_RangeProfiler_DecodeData_Params_STRUCT_SIZE);
  parameters.pRangeProfilerObject = object_;
  check(functions().range_decode(&parameters), "cuptiRangeProfilerDecodeData");
  if (parameters.numOfRangeDropped > 0) {
    throw perf::GpuProfilerError(perf::kUntrusted,
                                 "CUPTI dropped " + std::to_string(parameters.numOfRangeDropped) + " ranges");
  }
  auto info =
      sized<CUpti_RangeProfiler_GetCounterDataInfo_Params>(CUpti_RangeProfiler_GetCounterDataInfo_Params_STRUCT_SIZE);
  info.pCounterDataImage = counters.data();
  info.counterDataImageSize = counters.size();
  check(functions().counter_data_info(&info), "cuptiRangeProfilerGetCounterDataInfo");
  return info.numTotalRanges;
}

}  // namespace gable::cupti
