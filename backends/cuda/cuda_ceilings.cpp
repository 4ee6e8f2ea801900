// See cuda_ceilings.h. A launch of every loop takes a few milliseconds between two events, after launches that wake the
// GPU's clock. The vendor's formula takes the clock that the device's properties name; the clock that a loop really ran
// at is in its note, since power limits it under load.
#include "backends/cuda/cuda_ceilings.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>

#include "backends/cuda/cuda_loops.h"
#include "common/number.h"
#include "cuda/studies/bandwidth.h"
#include "cuda/studies/ceilings.h"

namespace gable {
namespace {

using cuda::CeilingLoop;
using cuda::MemoryLoop;
using cuda::MemorySweep;

struct Effort {
  int samples;
  double sample_seconds;
  std::size_t array_bytes;  ///< of one array in device memory
  std::size_t copy_bytes;   ///< from and to the host
};

constexpr std::size_t kMebi = std::size_t{1} << 20;

Effort effort(bool quick) {
  return quick ? Effort{9, 2e-3, 512 * kMebi, 64 * kMebi} : Effort{25, 6e-3, 1024 * kMebi, 256 * kMebi};
}

/// For people.
std::string number(double value) { return short_number(value, 4); }

/// State that all measurements of a device share.
class Bench {
 public:
  Bench(const CudaDevice& device, const CeilingRequest& request)
      : device_(device),
        request_(request),
        effort_(effort(request.quick)),
        start_(device.event()),
        end_(device.event()),
        sink_(device.allocate(sizeof(cuda::CeilingSink))) {
    GABLE_CUDA_CHECK(cudaDeviceGetAttribute(&kilohertz_, cudaDevAttrClockRate, device.index()));
  }

  const CudaDevice& device() const { return device_; }
  const cudaDeviceProp& properties() const { return device_.properties(); }
  const Effort& how() const { return effort_; }
  cuda::CeilingSink* sink() const { return static_cast<cuda::CeilingSink*>(sink_.get()); }
  double multiprocessors() const { return properties().multiProcessorCount; }
  double clock_hz() const { return kilohertz_ * 1e3; }
  /// "132 SMs x 1.98 GHz", the head of every formula.
  std::string clocked() const { return number(multiprocessors()) + " SMs x " + number(clock_hz() * 1e-9) + " GHz"; }
  void next(const std::string& name) const {
    if (request_.next) request_.next(device_.uri() + " " + name);
  }

  /// Lets the caller run a roof's loop for longer. `launch()` does `units` of work.
  void hold(const Ceiling& roof, const std::function<void()>& launch, double units) const {
    if (!request_.hold || roof.kind == Ceiling::Kind::rate) return;
    request_.hold(roof.name, [&] {
      seconds(launch);
      return units;
    });
  }

  /// Measures by events on the default stream.
  double seconds(const std::function<void()>& launch) const {
    start_->record(nullptr);
    launch();
    end_->record(nullptr);
    return end_->seconds_since(*start_);
  }

  /// How many `times` launch(times) must repeat its work for a sample of the wanted length.
  int calibrate(const std::function<void(int)>& launch) const {
    int times = 1;
    double taken = seconds([&] { launch(times); });
    for (; taken < effort_.sample_seconds && times < (1 << 28); times *= 2) taken = seconds([&] { launch(2 * times); });
    const double scaled = times * effort_.sample_seconds / taken;
    return std::max(1, static_cast<int>(std::lround(scaled)));
  }

  /// `units(times)` over the seconds of each of several launches.
  std::vector<double> rates(const std::function<void(int)>& launch, const std::function<double(int)>& units) const {
    const int times = calibrate(launch);
    launch(times);
    std::vector<double> found;
    for (int i = 0; i < effort_.samples; ++i) found.push_back(units(times) / seconds([&] { launch(times); }));
    return found;
  }

 private:
  const CudaDevice& device_;
  const CeilingRequest& request_;
  Effort effort_;
  std::shared_ptr<EventImpl> start_, end_;
  std::shared_ptr<void> sink_;
  int kilohertz_ = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// ---- arithmetic, shared memory and issue slots

/// Fused multiply-adds that a multiprocessor executes a cycle, by the data sheet; 0 if not known.
double f32_lanes(const cudaDeviceProp& device) {
  if (device.major == 7 || (device.major == 8 && device.minor == 0)) return 64;
  return device.major >= 8 ? 128 : 0;
}

double f64_lanes(const cudaDeviceProp& device) {
  if (device.major == 9) return 64;
  if (device.major == 7 || device.major == 8) return device.minor == 0 ? 32 : 2;
  return 0;
}

/// FLOP (for i8: integer operations) that the tensor cores of a multiprocessor do a cycle on dense operands, by the
/// data sheet; 0 if not known.
double tensor_flop_a_cycle(const cudaDeviceProp& device, const std::string& dtype) {
  const double f16 = device.major == 9 ? 4096 : device.major == 8 && device.minor == 0 ? 2048 : 0;
  return dtype == "i8" ? f16 * 2 : dtype == "tf32" ? f16 / 2 : dtype == "f64" ? f16 / 16 : f16;
}

/// The clock that a loop ran at, from the cycles that its last launch counted.
std::string clock_note(const Bench& bench, double seconds) {
  cuda::CeilingSink sink{};
  GABLE_CUDA_CHECK(cudaMemcpy(&sink, bench.sink(), sizeof sink, cudaMemcpyDeviceToHost));
  return "ran at " + number(static_cast<double>(sink.cycles) / seconds * 1e-9) + " GHz";
}

Ceiling loop_ceiling(const Bench& bench, CeilingLoop loop, Ceiling ceiling) {
  bench.next(ceiling.name);
  double seconds = 0;
  const auto units = [&](int iterations) { return cuda::ceiling_units(loop, bench.properties(), iterations); };
  int last = 1;
  ceiling.samples = bench.rates(
      [&](int iterations) {
        last = iterations;
        cuda::run_ceiling_loop(loop, bench.properties(), iterations, bench.sink(), nullptr);
      },
      units);
  seconds = units(last) / ceiling.samples.back();
  const std::string clock = clock_note(bench, seconds);
  ceiling.note = ceiling.note.empty() ? clock : ceiling.note + "; " + clock;
  bench.hold(
      ceiling, [&] { cuda::run_ceiling_loop(loop, bench.properties(), last, bench.sink(), nullptr); }, units(last));
  return ceiling;
}

Ceiling fma_ceiling(const Bench& bench, const std::string& dtype) {
  const bool f64 = dtype == "f64";
  const double lanes = f64 ? f64_lanes(bench.properties()) : f32_lanes(bench.properties());
  Ceiling ceiling{.name = "fma " + dtype, .kind = Ceiling::Kind::compute, .unit = "fma", .dtype = dtype};
  ceiling.theoretical = bench.multiprocessors() * lanes * 2 * bench.clock_hz();
  ceiling.formula = lanes > 0 ? bench.clocked() + " x " + number(lanes) + " " + dtype + " lanes x 2 (FMA)"
                              : "not known: lanes of this compute capability";
  return loop_ceiling(bench, f64 ? CeilingLoop::fma_f64 : CeilingLoop::fma_f32, std::move(ceiling));
}

struct TensorLoops {
  const char* dtype;
  CeilingLoop mma;
  std::optional<CeilingLoop> wgmma;
};

/// The better of the two ways to the tensor cores, with the other in its note.
Ceiling tensor_ceiling(const Bench& bench, const TensorLoops& loops) {
  const char* unit_of_work = std::string(loops.dtype) == "i8" ? "operations" : "FLOP";
  const double flop = tensor_flop_a_cycle(bench.properties(), loops.dtype);
  Ceiling ceiling{.kind = Ceiling::Kind::compute, .dtype = loops.dtype};
  ceiling.theoretical = bench.multiprocessors() * flop * bench.clock_hz();
  ceiling.formula = flop > 0 ? bench.clocked() + " x " + number(flop) + " " + unit_of_work + " a cycle (dense)"
                             : "not known: tensor cores of this compute capability";
  const auto measured = [&](const char* unit, CeilingLoop loop) {
    Ceiling one = ceiling;
    one.name = std::string(unit) + " " + loops.dtype;
    one.unit = unit;
    return loop_ceiling(bench, loop, std::move(one));
  };
  Ceiling mma = measured("mma", loops.mma);
  if (!loops.wgmma || !cuda::has_ceiling_loop(*loops.wgmma, bench.properties())) return mma;
  Ceiling wgmma = measured("wgmma", *loops.wgmma);
  const bool better = median(wgmma.samples) > median(mma.samples);
  Ceiling& best = better ? wgmma : mma;
  const Ceiling& other = better ? mma : wgmma;
  best.note += "; " + other.unit + " reaches " + number(median(other.samples) * 1e-12) + " T" + unit_of_work + "/s, " +
               other.note;
  return std::move(best);
}

Ceiling shared_ceiling(const Bench& bench) {
  constexpr double bytes_a_cycle = 32 * 4;
  return loop_ceiling(bench, CeilingLoop::shared_read,
                      {.name = "shared memory read",
                       .kind = Ceiling::Kind::bandwidth,
                       .level = "l1",
                       .level_bytes = bench.properties().sharedMemPerMultiprocessor *
                                      static_cast<std::size_t>(bench.properties().multiProcessorCount),
                       .theoretical = bench.multiprocessors() * bytes_a_cycle * bench.clock_hz(),
                       .formula = bench.clocked() + " x 32 banks x 4 B",
                       .note = "16 B a thread and load, no conflicts"});
}

Ceiling issue_rate(const Bench& bench) {
  constexpr double schedulers = 4;  // of a multiprocessor, sm_70 and later
  return loop_ceiling(bench, CeilingLoop::issue,
                      {.name = "warp instructions",
                       .unit = "instruction/s",
                       .theoretical = bench.multiprocessors() * schedulers * bench.clock_hz(),
                       .formula = bench.clocked() + " x 4 warp schedulers x 1 instruction a cycle",
                       .note = "f32 multiply-adds and integer operations in turn"});
}

// ---- memory

struct Arrays {
  std::shared_ptr<void> a, b, c;
  std::size_t bytes;
};

std::size_t free_bytes() {
  std::size_t available = 0, total = 0;
  GABLE_CUDA_CHECK(cudaMemGetInfo(&available, &total));
  return available;
}

/// At most a quarter of the free memory, all three together.
Arrays make_arrays(const Bench& bench) {
  const std::size_t bytes = std::min(bench.how().array_bytes, free_bytes() / 12 / kMebi * kMebi);
  return {cuda_noise(bench.device(), bytes), cuda_noise(bench.device(), bytes), cuda_noise(bench.device(), bytes),
          bytes};
}

/// The arrays cut into `blocks` parts.
MemorySweep sweep_of(std::size_t bytes, int blocks) {
  MemorySweep sweep{.blocks = blocks};
  const std::int64_t round = std::int64_t{64} * sweep.threads;
  sweep.block_bytes = std::max(round, static_cast<std::int64_t>(bytes) / blocks / round * round);
  return sweep;
}

/// One pass a launch: in a second pass a block would find its part in a cache.
std::vector<double> memory_rates(const Bench& bench, const Arrays& arrays, MemoryLoop loop, const MemorySweep& sweep) {
  const auto bytes = static_cast<double>(cuda::bytes_moved(loop, sweep));
  return bench.rates(
      [&](int launches) {
        for (int i = 0; i < launches; ++i) {
          cuda::run_memory_loop(loop, sweep, arrays.a.get(), arrays.b.get(), arrays.c.get(), &bench.sink()->value,
                                nullptr);
        }
      },
      [&](int launches) { return launches * bytes; });
}

/// The cut of the work changes the result by a few percent, differently on each GPU, so the best of several counts.
Ceiling memory_ceiling(const Bench& bench, const Arrays& arrays, MemoryLoop loop, Ceiling ceiling) {
  bench.next(ceiling.name);
  double best = 0;
  int blocks_of_best = 0;
  for (const int per_multiprocessor : {1, 2, 8, 32}) {
    const int blocks = per_multiprocessor * bench.properties().multiProcessorCount;
    std::vector<double> rates = memory_rates(bench, arrays, loop, sweep_of(arrays.bytes, blocks));
    if (median(rates) <= best) continue;
    best = median(rates);
    blocks_of_best = blocks;
    ceiling.samples = std::move(rates);
  }
  ceiling.note += ", " + std::to_string(arrays.bytes / kMebi) + " MiB an array in " + std::to_string(blocks_of_best) +
                  " blocks (the best of four)";
  const MemorySweep sweep = sweep_of(arrays.bytes, blocks_of_best);
  bench.hold(
      ceiling,
      [&] {
        cuda::run_memory_loop(loop, sweep, arrays.a.get(), arrays.b.get(), arrays.c.get(), &bench.sink()->value,
                              nullptr);
      },
      static_cast<double>(cuda::bytes_moved(loop, sweep)));
  return ceiling;
}

void add_device_memory(const Bench& bench, std::vector<Ceiling>& found) {
  const Arrays arrays = make_arrays(bench);
  int kilohertz = 0, bits = 0;
  GABLE_CUDA_CHECK(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, bench.device().index()));
  GABLE_CUDA_CHECK(cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, bench.device().index()));
  Ceiling ceiling{.kind = Ceiling::Kind::bandwidth, .level = "dram"};
  ceiling.level_bytes = bench.properties().totalGlobalMem;
  ceiling.theoretical = kilohertz * 1e3 * 2 * bits / 8;
  ceiling.formula = number(kilohertz * 1e-6) + " GHz x 2 (both edges) x " + std::to_string(bits) + " bit / 8";
  struct Kind {
    const char* name;
    MemoryLoop loop;
    const char* note;
  };
  for (const Kind& kind :
       {Kind{"dram read", MemoryLoop::read, "sum of a"}, Kind{"dram copy", MemoryLoop::copy, "c = a"},
        Kind{"dram triad", MemoryLoop::triad, "c = a + s b"}}) {
    Ceiling one = ceiling;
    one.name = kind.name;
    one.note = kind.note;
    found.push_back(memory_ceiling(bench, arrays, kind.loop, std::move(one)));
  }
}

/// Each block reads its own part repeatedly; all parts together take half of the L2.
Ceiling l2_ceiling(const Bench& bench) {
  const auto l2 = static_cast<std::size_t>(bench.properties().l2CacheSize);
  const MemorySweep sweep = sweep_of(l2 / 2, 2 * bench.properties().multiProcessorCount);
  const auto bytes = static_cast<std::size_t>(sweep.block_bytes) * static_cast<std::size_t>(sweep.blocks);
  const std::shared_ptr<void> array = cuda_noise(bench.device(), bytes);
  Ceiling ceiling{.name = "l2 read", .kind = Ceiling::Kind::bandwidth, .level = "l2", .level_bytes = l2};
  ceiling.formula = "not known: the vendor names no rate";
  ceiling.note = "past L1, " + number(static_cast<double>(bytes) / kMebi) + " MiB of " +
                 number(static_cast<double>(l2) / kMebi) + " MiB";
  bench.next(ceiling.name);
  const auto with_passes = [&](int passes) {
    MemorySweep all = sweep;
    all.passes = passes;
    return all;
  };
  ceiling.samples = bench.rates(
      [&](int passes) {
        cuda::run_memory_loop(MemoryLoop::read_past_l1, with_passes(passes), array.get(), nullptr, nullptr,
                              &bench.sink()->value, nullptr);
      },
      [&](int passes) {
        return static_cast<double>(cuda::bytes_moved(MemoryLoop::read_past_l1, with_passes(passes)));
      });
  constexpr int kPasses = 500;  // about 5 ms of an H100
  bench.hold(
      ceiling,
      [&] {
        cuda::run_memory_loop(MemoryLoop::read_past_l1, with_passes(kPasses), array.get(), nullptr, nullptr,
                              &bench.sink()->value, nullptr);
      },
      static_cast<double>(cuda::bytes_moved(MemoryLoop::read_past_l1, with_passes(kPasses))));
  return ceiling;
}

// ---- the host's side

double host_seconds(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void add_launches(const Bench& bench, std::vector<Ceiling>& found) {
  constexpr int kLaunches = 500;
  Ceiling many{.name = "launch, back to back", .unit = "s", .formula = "none: a cost, not a rate of the hardware"};
  many.note = "an empty kernel among many on one stream, as fast as the host puts them there";
  bench.next(many.name);
  const auto launch_many = [] {
    for (int i = 0; i < kLaunches; ++i) cuda::run_empty_kernel(nullptr);
  };
  bench.seconds(launch_many);
  for (int i = 0; i < bench.how().samples; ++i) many.samples.push_back(bench.seconds(launch_many) / kLaunches);
  found.push_back(std::move(many));

  Ceiling one{.name = "launch and wait", .unit = "s", .formula = "none: a cost, not a rate of the hardware"};
  one.note = "an empty kernel, from the call until the host knows its end";
  bench.next(one.name);
  const auto launch_one = [] {
    cuda::run_empty_kernel(nullptr);
    GABLE_CUDA_CHECK(cudaStreamSynchronize(nullptr));
  };
  for (int i = 0; i < 10; ++i) launch_one();
  for (int i = 0; i < 4 * bench.how().samples; ++i) one.samples.push_back(host_seconds(launch_one));
  found.push_back(std::move(one));
}

void add_host_copies(const Bench& bench, std::vector<Ceiling>& found) {
  const std::size_t bytes = std::min(bench.how().copy_bytes, free_bytes() / 4 / kMebi * kMebi);
  const std::shared_ptr<void> device = bench.device().allocate(bytes);
  const std::shared_ptr<void> pinned = pinned_memory(bytes);
  std::vector<char> pageable(bytes, 1);
  std::fill_n(static_cast<char*>(pinned.get()), bytes, char{1});
  const auto add = [&](const std::string& name, void* to, const void* from) {
    Ceiling ceiling{.name = name, .unit = "B/s"};
    ceiling.formula = "not known: generation and width of the link are not among the device's properties";
    ceiling.note = std::to_string(bytes / kMebi) + " MiB a copy, by the host's clock";
    bench.next(name);
    const auto copy = [&] {
      GABLE_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, nullptr));
      GABLE_CUDA_CHECK(cudaStreamSynchronize(nullptr));
    };
    copy();
    for (int i = 0; i < (bench.how().samples + 1) / 2; ++i)
      ceiling.samples.push_back(static_cast<double>(bytes) / host_seconds(copy));
    found.push_back(std::move(ceiling));
  };
  add("host to device, pinned", device.get(), pinned.get());
  add("device to host, pinned", pinned.get(), device.get());
  add("host to device, pageable", device.get(), pageable.data());
  add("device to host, pageable", pageable.data(), device.get());
}

}  // namespace

std::vector<Ceiling> measure_cuda_ceilings(const CudaDevice& device, const CeilingRequest& request) {
  return reporting(device.uri() + ": ceilings", [&] {
    const CurrentDevice current(device.index());
    const Bench bench(device, request);
    std::vector<Ceiling> found;
    found.push_back(fma_ceiling(bench, "f32"));
    found.push_back(fma_ceiling(bench, "f64"));
    for (const TensorLoops& loops : {TensorLoops{"f16", CeilingLoop::mma_f16, CeilingLoop::wgmma_f16},
                                     TensorLoops{"bf16", CeilingLoop::mma_bf16, CeilingLoop::wgmma_bf16},
                                     TensorLoops{"tf32", CeilingLoop::mma_tf32, CeilingLoop::wgmma_tf32},
                                     TensorLoops{"f64", CeilingLoop::mma_f64, std::nullopt},
                                     TensorLoops{"i8", CeilingLoop::mma_i8, CeilingLoop::wgmma_i8}}) {
      if (cuda::has_ceiling_loop(loops.mma, device.properties())) found.push_back(tensor_ceiling(bench, loops));
    }
    found.push_back(shared_ceiling(bench));
    found.push_back(l2_ceiling(bench));
    add_device_memory(bench, found);
    found.push_back(issue_rate(bench));
    add_launches(bench, found);
    add_host_copies(bench, found);
    return found;
  });
}

}  // namespace gable
