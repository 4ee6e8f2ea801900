// See host.h.
#include "perfcounters/cupti/host.h"

#include <utility>

namespace gable::cupti {

Host::Host(const std::string& chip) {
  auto parameters = sized<CUpti_Profiler_Host_Initialize_Params>(CUpti_Profiler_Host_Initialize_Params_STRUCT_SIZE);
  parameters.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
  parameters.pChipName = chip.c_str();
  check(functions().host_initialize(&parameters), ("cuptiProfilerHostInitialize for chip '" + chip + "'").c_str());
  object_ = parameters.pHostObject;
}

Host::~Host() {
  auto parameters = sized<CUpti_Profiler_Host_Deinitialize_Params>(CUpti_Profiler_Host_Deinitialize_Params_STRUCT_SIZE);
  parameters.pHostObject = object_;
  functions().host_deinitialize(&parameters);
}

std::vector<std::string> Host::base_metrics() const {
  std::vector<std::string> names;
  for (const CUpti_MetricType type : {CUPTI_METRIC_TYPE_COUNTER, CUPTI_METRIC_TYPE_RATIO}) {
    auto parameters =
        sized<CUpti_Profiler_Host_GetBaseMetrics_Params>(CUpti_Profiler_Host_GetBaseMetrics_Params_STRUCT_SIZE);
    parameters.pHostObject = object_;
    parameters.metricType = type;
    check(functions().base_metrics(&parameters), "cuptiProfilerHostGetBaseMetrics");
    names.insert(names.end(), parameters.ppMetricNames, parameters.ppMetricNames + parameters.numMetrics);
  }
  return names;
}

void Host::add(const std::vector<std::string>& metrics) {
  std::vector<const char*> names = pointers(metrics);
  auto parameters =
      sized<CUpti_Profiler_Host_ConfigAddMetrics_Params>(CUpti_Profiler_Host_ConfigAddMetrics_Params_STRUCT_SIZE);
  parameters.pHostObject = object_;
  parameters.ppMetricNames = names.data();
  parameters.numMetrics = names.size();
  check(functions().add_metrics(&parameters), "cuptiProfilerHostConfigAddMetrics");
}

std::vector<std::uint8_t> Host::config_image() const {
  auto size =
      sized<CUpti_Profiler_Host_GetConfigImageSize_Params>(CUpti_Profiler_Host_GetConfigImageSize_Params_STRUCT_SIZE);
  size.pHostObject = object_;
  check(functions().config_image_size(&size), "cuptiProfilerHostGetConfigImageSize");
  std::vector<std::uint8_t> image(size.configImageSize);
  auto get = sized<CUpti_Profiler_Host_GetConfigImage_Params>(CUpti_Profiler_Host_GetConfigImage_Params_STRUCT_SIZE);
  get.pHostObject = object_;
  get.configImageSize = image.size();
  get.pConfigImage = image.data();
  check(functions().config_image(&get), "cuptiProfilerHostGetConfigImage");
  return image;
}

std::vector<double> Host::evaluate(std::span<const std::uint8_t> image, std::size_t range,
                                   const std::vector<std::string>& metrics) const {
  std::vector<const char*> names = pointers(metrics);
  std::vector<double> values(metrics.size());
  auto parameters =
      sized<CUpti_Profiler_Host_EvaluateToGpuValues_Params>(CUpti_Profiler_Host_EvaluateToGpuValues_Params_STRUCT_SIZE);
  parameters.pHostObject = object_;
  parameters.pCounterDataImage = image.data();
  parameters.counterDataImageSize = image.size();
  parameters.rangeIndex = range;
  parameters.ppMetricNames = names.data();
  parameters.numMetrics = names.size();
  parameters.pMetricValues = values.data();
  check(functions().evaluate(&parameters), "cuptiProfilerHostEvaluateToGpuValues");
  return values;
}

MetricSet::MetricSet(const std::string& chip, std::vector<std::string> metrics)
    : metrics_(std::move(metrics)), host_(chip) {
  host_.add(metrics_);
  config_ = host_.config_image();
  auto parameters =
      sized<CUpti_Profiler_Host_GetNumOfPasses_Params>(CUpti_Profiler_Host_GetNumOfPasses_Params_STRUCT_SIZE);
  parameters.configImageSize = config_.size();
  parameters.pConfigImage = config_.data();
  check(functions().number_of_passes(&parameters), "cuptiProfilerHostGetNumOfPasses");
  passes_ = parameters.numOfPasses;
}

std::vector<double> MetricSet::values(std::span<const std::uint8_t> image, std::size_t range) const {
  return host_.evaluate(image, range, metrics_);
}

std::vector<const char*> pointers(const std::vector<std::string>& names) {
  std::vector<const char*> all;
  for (const std::string& name : names) all.push_back(name.c_str());
  return all;
}

bool is_sass(const std::string& metric) { return metric.find("__sass_") != std::string::npos; }

}  // namespace gable::cupti
