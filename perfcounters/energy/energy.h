// Energy of a device, from counters that the machine keeps itself: RAPL of CPUs (Linux' powercap), NVML of NVIDIA's
// GPUs. Both count the whole package or board, including its idle power and everything else that runs there. A counter
// is refreshed every millisecond (RAPL) or every 20 to 100 ms (NVML), so a call is repeated until that no longer
// matters; otherwise its energy is refused with the reason.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gable::perf {

/// One counter as its owner gives it out.
struct EnergyCounter {
  std::string name;                ///< "package-0", "GPU 0"
  std::function<double()> joules;  ///< its reading; throws std::runtime_error with the reason
  double range = 0;                ///< joules after which the counter wraps to 0; 0: never
};

/// The counters of a device, whose sum is its energy, or the reason why it has none.
struct EnergySource {
  std::string by{};  ///< "rapl", "nvml"
  std::vector<EnergyCounter> counters{};
  std::string reason{}, cure{};  ///< set if there are no counters
  std::string note{};            ///< what is counted

  bool available() const { return !counters.empty(); }
};

/// A file's content, or the error number of opening or reading it.
struct FileRead {
  std::string text{};
  int error = 0;
};
using FileReader = std::function<FileRead(const std::string& path)>;
FileRead read_whole_file(const std::string& path);

/// All CPU packages with their DRAM where it has a counter of its own.
EnergySource rapl_energy(const std::string& folder = "/sys/class/powercap", const FileReader& read = read_whole_file);

/// NVML's answers; codes are nvmlReturn_t (0: success).
struct NvmlReader {
  std::string reason{}, cure{};  ///< why there is no NVML; empty: there is
  std::function<int(int gpu, unsigned long long& millijoules)> read{};
  std::function<std::string(int code)> error_text{};
};
/// Opens libnvidia-ml.so.1 and the driver; nothing links with them.
NvmlReader open_nvml();
EnergySource nvml_energy(int gpu, const NvmlReader& nvml);

/// Adds up what the counters of a source counted, across their ends.
class EnergyMeter {
 public:
  explicit EnergyMeter(const EnergySource& source);
  /// Joules since the meter was made. Call it at least once in each range of a counter.
  double read();

 private:
  struct State {
    const EnergyCounter* counter;
    double last;
  };
  std::vector<State> states_;
  double joules_ = 0;
};

struct EnergyProtocol {
  double seconds = 1;                         ///< of repetition between two refreshes of the counter
  std::function<double()> clock{};            ///< seconds; empty: the host's steady clock
  std::function<void(double seconds)> nap{};  ///< waits while the device is idle; empty: sleeps
};

/// Energy of one call, or the reason why it is not known.
struct Energy {
  std::optional<double> joules{};  ///< of one call
  std::string reason{};
  double watts = 0;        ///< mean power
  double seconds = 0;      ///< that the calls took
  std::int64_t calls = 0;  ///< within these seconds
  int updates = 0;         ///< how often the counter was seen to move
  double uncertainty = 0;  ///< share of `joules` that the refreshes at both ends leave open
};

/// `run(n)` makes n calls and waits for their end; a call takes about `seconds_per_call`.
Energy measure_energy(const EnergySource& source, const std::function<void(int calls)>& run, double seconds_per_call,
                      const EnergyProtocol& protocol = {});

}  // namespace gable::perf
