// Stands in for the kernel's perf events and for sysfs, in tests of what counts mean.
#pragma once

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "perfcounters/machine.h"
#include "perfcounters/sources/perf_event.h"

namespace gable::perf {

/// A folder that looks like /sys/bus/event_source/devices.
class FakeDevices {
 public:
  FakeDevices() : root_(std::filesystem::temp_directory_path() / ("gable_devices_" + unique())) {}
  ~FakeDevices() { std::filesystem::remove_all(root_); }
  FakeDevices(const FakeDevices&) = delete;
  FakeDevices& operator=(const FakeDevices&) = delete;
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << '\n';
  }
  /// An Intel memory controller on two sockets.
  void write_box(const std::string& box, const char* read, const char* write_) const {
    write(box + "/type", "14");
    write(box + "/cpumask", "0,48");
    write(box + "/events/cas_count_read", read);
    write(box + "/events/cas_count_write", write_);
  }
  std::string path() const { return root_.string(); }

 private:
  static std::string unique() { return std::to_string(std::chrono::steady_clock::now().time_since_epoch().count()); }
  std::filesystem::path root_;
};

inline Machine cpu_of(const std::string& vendor, int family, std::vector<std::string> simd) {
  Machine machine;
  machine.cpu.vendor = vendor;
  machine.cpu.family = family;
  machine.cpu.simd = std::move(simd);
  return machine;
}

inline Machine icelake() { return cpu_of("GenuineIntel", 6, {"avx512f"}); }
inline Machine sapphire_rapids() {
  return cpu_of("GenuineIntel", 6, {"avx512f", "avx512_bf16", "avx512_fp16", "amx_tile"});
}
inline Machine zen(int family, bool bf16) {
  return cpu_of("AuthenticAMD", family, bf16 ? std::vector<std::string>{"avx512_bf16"} : std::vector<std::string>{});
}
inline Machine neoverse() { return cpu_of("0x41", 0, {"neon", "sve"}); }

}  // namespace gable::perf
