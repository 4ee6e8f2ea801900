// The description of this machine and the parsing behind it.
#include <doctest/doctest.h>

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "perfcounters/machine.h"
#include "perfcounters/machine/files.h"
#include "perfcounters/machine/memory.h"

using namespace gable::perf;

TEST_CASE("CPU lists of the kernel are parsed") {
  CHECK(parse_cpu_list("0-3,8,10-11") == std::vector<int>{0, 1, 2, 3, 8, 10, 11});
  CHECK(parse_cpu_list("5") == std::vector<int>{5});
  CHECK(parse_cpu_list("").empty());
}

TEST_CASE("files in the page cache are no used memory of a cgroup") {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("gable_machine_test_" + std::to_string(getpid()));
  const auto put = [&](const std::string& file, const std::string& text) {
    fs::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text;
  };
  put("proc/meminfo", "MemTotal:  8000000 kB\nMemAvailable:  4000000 kB\n");
  CHECK(available_memory(root.string()) == std::size_t{4000000} << 10);
  put("sys/fs/cgroup/memory.max", "1000000\n");
  put("sys/fs/cgroup/memory.current", "900000\n");
  CHECK(available_memory(root.string()) == 100000);
  put("sys/fs/cgroup/memory.stat", "anon 200000\nactive_file 100000\ninactive_file 600000\n");
  CHECK(available_memory(root.string()) == 700000);
  put("proc/self/cgroup", "0::/user/app\n");
  put("sys/fs/cgroup/user/memory.max", "500000\n");
  put("sys/fs/cgroup/user/memory.current", "200000\n");
  CHECK(available_memory(root.string()) == 300000);  // the least of all that lie around the process
  fs::remove_all(root);
}

TEST_CASE("temporary folders that are made at the same time are no abandoned ones to each other") {
  constexpr int kThreads = 4, kFolders = 500;
  std::atomic<int> lost{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < kFolders; ++i) {
        const TemporaryFolder folder("gable_machine_test_race");
        if (!(std::ofstream(folder.path() + "/profile") << "text" << std::flush)) ++lost;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(lost == 0);
}

TEST_CASE("the machine's description is complete and consistent") {
  const Machine machine = describe_machine();
  CHECK_FALSE(machine.cpu.name.empty());
  CHECK_FALSE(machine.system.kernel.empty());
  CHECK_FALSE(machine.system.compiler.empty());
  CHECK(machine.threads.available >= 1);
  CHECK(machine.threads.available <= machine.threads.online);
  CHECK(machine.threads.cores <= machine.threads.available);
  CHECK(static_cast<int>(machine.threads.cpus.size()) == machine.threads.available);
  CHECK(machine.caches.l1d.bytes >= 8 << 10);
  CHECK(machine.caches.l2.bytes > machine.caches.l1d.bytes);
  CHECK(machine.memory.available_bytes > 0);
  CHECK(machine.memory.available_bytes <= machine.memory.bytes);
  CHECK(machine.system.date.size() == std::string("2025-01-31T12:00:00Z").size());
  CHECK(machine.system.date[10] == 'T');
#if defined(__x86_64__)
  CHECK(machine.cpu.has("sse2"));
  CHECK(machine.cpu.clock_hz > 0);
  CHECK(machine.system.virtual_machine == !machine.system.hypervisor.empty());
#endif
}
