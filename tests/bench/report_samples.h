// Studies like those that a real machine gives, generated: the shapes of the suite `study`, plausible ceilings, times
// from a simple model with a deterministic scatter.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace samples {

using nlohmann::json;

struct Scatter {  // a small generator: the same study each time, on every platform
  uint32_t state = 1;
  double next() {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) / 16777216.0;
  }
  double between(double lo, double hi) { return lo + (hi - lo) * next(); }
};

struct Shape {
  const char* name;
  int mb, ic, ih, oc, oh, kh;
  bool also_pooled;
  double efficiency;  // share of the roof that a good kernel reaches
};

inline const std::vector<Shape>& study_shapes() {
  static const std::vector<Shape> shapes = {
      {"lenet1", 10000, 1, 48, 6, 44, 5, false, 0.35},      {"lenet2", 10000, 6, 22, 16, 18, 5, false, 0.45},
      {"vgg_b1", 1, 64, 224, 64, 224, 3, true, 0.71},       {"vgg_b16", 16, 64, 224, 64, 224, 3, true, 0.74},
      {"vggdeep_b1", 1, 512, 14, 512, 14, 3, true, 0.42},   {"vggdeep_b16", 16, 512, 14, 512, 14, 3, true, 0.69},
      {"fused256", 1, 256, 224, 256, 222, 3, true, 0.83},   {"fused128", 4, 128, 224, 128, 222, 3, true, 0.8},
      {"fused_small", 4, 128, 32, 128, 30, 3, false, 0.57},
  };
  return shapes;
}

inline json machine(const std::string& cpu, int threads, const char* gpu = nullptr) {
  json m = {{"cpu", cpu},
            {"vendor", "AuthenticAMD"},
            {"cores", std::max(1, threads / 2)},
            {"threads", threads},
            {"caches", {{"l1d", 49152}, {"l2", 1048576}, {"l3", 33554432}}},
            {"compiler", "GNU 12.2.0"},
            {"os", "Debian GNU/Linux 12 (bookworm)"},
            {"date", "2025-05-04T10:20:30Z"},
            {"versions", {{"gable", "0.1.0"}, {"highway", "1.0.3"}, {"onednn", "2.6.3"}}},
            {"command", "gable roofline --suite study --out report"}};
  if (gpu) m["gpu"] = gpu, m["driver"] = "550.54.15";
  return m;
}

inline json compute(const char* device, const char* name, const char* isa, const char* dtype, json threads,
                    double value) {
  return {{"device", device},
          {"name", name},
          {"kind", "compute"},
          {"isa", isa},
          {"dtype", dtype},
          {"threads", threads},
          {"value", value},
          {"q1", value * 0.99},
          {"q3", value * 1.005},
          {"runs", 20},
          {"theoretical", value * 1.04},
          {"formula", "2 cores × 4.1 GHz × 16 lanes × 2 × 2"}};
}

inline json bandwidth(const char* device, const char* name, const char* level, json threads, double value) {
  return {{"device", device},   {"name", name},           {"kind", "bandwidth"}, {"level", level},
          {"threads", threads}, {"value", value},         {"q1", value * 0.97},  {"q3", value * 1.01},
          {"runs", 20},         {"theoretical", nullptr}, {"formula", nullptr}};
}

inline json cpu_ceilings() {
  json list = json::array();
  for (int threads : {1, 2}) {
    const double t = threads;
    list.push_back(compute("cpu", "AVX-512 FMA f32", "avx512 fma", "f32", threads, 262e9 * t));
    list.push_back(compute("cpu", "AVX-512 f32", "avx512", "f32", threads, 131e9 * t));
    list.push_back(compute("cpu", "AVX2 FMA f32", "avx2 fma", "f32", threads, 129e9 * t));
    list.push_back(compute("cpu", "AVX2 f32", "avx2", "f32", threads, 65e9 * t));
    list.push_back(compute("cpu", "SSE4 f32", "sse4", "f32", threads, 32.4e9 * t));
    list.push_back(compute("cpu", "scalar f32", "scalar", "f32", threads, 8.2e9 * t));
    list.push_back(compute("cpu", "AVX-512 BF16 dot", "avx512 bf16", "bf16", threads, 518e9 * t));
    list.push_back(bandwidth("cpu", "L1 read", "l1", threads, 520e9 * t));
    list.push_back(bandwidth("cpu", "L2 read", "l2", threads, 240e9 * t));
    list.push_back(bandwidth("cpu", "L3 read", "l3", threads, 105e9 * t));
    list.push_back(bandwidth("cpu", "DRAM read", "dram", threads, 24e9 * std::sqrt(t)));
    list.push_back(bandwidth("cpu", "DRAM triad", "dram", threads, 19e9 * std::sqrt(t)));
  }
  return list;
}

inline json gpu_ceilings() {
  return json::array({compute("cuda:0", "FP32 FMA", "fma", "f32", nullptr, 58e12),
                      compute("cuda:0", "tensor BF16", "wgmma", "bf16", nullptr, 640e12),
                      compute("cuda:0", "tensor FP16", "wgmma", "f16", nullptr, 650e12),
                      compute("cuda:0", "tensor TF32", "wgmma", "tf32", nullptr, 330e12),
                      bandwidth("cuda:0", "HBM read", "dram", nullptr, 2.9e12),
                      bandwidth("cuda:0", "L2 read", "l2", nullptr, 6.1e12)});
}

struct Place {
  std::string device, device_name, kernel;
  double skill;  // times the shape's efficiency
  json threads;
};

struct Roof {
  double flops, bytes;
};

inline json measurement(const Shape& s, bool pool, const std::string& dtype, const std::string& cache,
                        const Place& place, Roof roof, Scatter& scatter) {
  const double element = dtype == "f32" ? 4 : 2;
  const double flop = 2.0 * s.mb * s.oc * s.oh * s.oh * s.ic * s.kh * s.kh;
  const double out = static_cast<double>(s.mb) * s.oc * s.oh * s.oh / (pool ? 4 : 1);
  const double bytes = element * (1.0 * s.mb * s.ic * s.ih * s.ih + 1.0 * s.oc * s.ic * s.kh * s.kh + out);
  const double ideal = std::max(flop / roof.flops, bytes / roof.bytes);
  const double seconds =
      ideal / (s.efficiency * place.skill) * scatter.between(0.9, 1.2) * (cache == "cold" ? 1.25 : 1);
  const double roof_flops = flop / ideal;
  return {
      {"suite", "study"},
      {"name", s.name},
      {"op", "conv2d"},
      {"problem", "mb" + std::to_string(s.mb) + "ic" + std::to_string(s.ic) + "ih" + std::to_string(s.ih) + "oc" +
                      std::to_string(s.oc) + "oh" + std::to_string(s.oh) + "kh" + std::to_string(s.kh)},
      {"dtype", dtype},
      {"layout", "nhwc"},
      {"epilogue", {{"bias", true}, {"activation", "relu"}, {"max_pool", pool ? json::array({2, 2}) : json(nullptr)}}},
      {"device", place.device},
      {"device_name", place.device_name},
      {"kernel", place.kernel},
      {"fused", true},
      {"cache", cache},
      {"threads", place.threads},
      {"T",
       {{"source", place.threads.is_null() ? "event" : "clock"},
        {"seconds", seconds},
        {"q1", seconds * scatter.between(0.94, 0.995)},
        {"q3", seconds * scatter.between(1.005, 1.2)},
        {"runs", 50}}},
      {"W", {{"source", "analytic"}, {"flop", flop}, {"analytic", flop}}},
      {"Q", {{"dram", {{"source", "analytic"}, {"bytes", bytes}, {"analytic", bytes}}}}},
      {"intensity", flop / bytes},
      {"gflops", flop / seconds / 1e9},
      {"bound", flop / roof.flops > bytes / roof.bytes ? "compute" : "memory:dram"},
      {"percent_of_roof", 100 * flop / seconds / roof_flops},
      {"max_error", 2.1e-6},
      {"error_bound", 1.2e-5}};
}

inline void measure_all(json& list, const std::vector<Place>& places, const std::vector<std::string>& dtypes,
                        const std::vector<std::string>& caches, double f32_flops, double half_flops, double bytes) {
  Scatter scatter;
  for (const Shape& s : study_shapes()) {
    for (bool pool : {false, true}) {
      if (pool && !s.also_pooled) continue;
      for (const std::string& dtype : dtypes) {
        for (const Place& place : places) {
          for (const std::string& cache : caches) {
            list.push_back(
                measurement(s, pool, dtype, cache, place, {dtype == "f32" ? f32_flops : half_flops, bytes}, scatter));
          }
        }
      }
    }
  }
}

inline json study(json machine, json ceilings) {
  return {{"schema_version", 1},
          {"machine", std::move(machine)},
          {"ceilings", std::move(ceilings)},
          {"measurements", json::array()},
          {"refused", json::array()}};
}

// `dtypes` × {cpu, onednn} × `caches` on the suite's 15 problems: 30 points for each pair of the two.
inline json cpu_study(const std::vector<std::string>& dtypes = {"f32", "bf16"},
                      const std::vector<std::string>& caches = {"warm"}) {
  json s = study(machine("AMD EPYC 9R45", 2), cpu_ceilings());
  measure_all(
      s["measurements"],
      {{"cpu", "AMD EPYC 9R45", "avx3_zen4 8x6 nhwc", 0.95, 2}, {"onednn", "oneDNN 2.6.3", "jit:avx512_core", 0.85, 2}},
      dtypes, caches, 524e9, 1036e9, 34e9);
  s["refused"].push_back({{"suite", "study"},
                          {"name", "fused256"},
                          {"problem", "mb1ic256ih224oc256oh222kh3"},
                          {"dtype", "f16"},
                          {"device", "onednn"},
                          {"reason", "oneDNN 2.6 has no f16 convolution on CPU; use f32 or bf16"}});
  return s;
}

inline json gpu_study() {
  json s = study(machine("Intel Xeon Platinum 8481C", 52, "NVIDIA H100 80GB HBM3"), gpu_ceilings());
  measure_all(s["measurements"],
              {{"cuda:0", "NVIDIA H100 80GB HBM3", "wgmma_128x128", 0.7, nullptr},
               {"cudnn:0", "NVIDIA H100 80GB HBM3", "heuristic 0", 0.75, nullptr}},
              {"f32", "f16"}, {"warm"}, 58e12, 650e12, 2.9e12);
  return s;
}

}  // namespace samples
