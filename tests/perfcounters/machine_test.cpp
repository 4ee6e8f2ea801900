// The description of this machine and the parsing behind it.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "perfcounters/machine.h"

using namespace gable::perf;

TEST_CASE("CPU lists of the kernel are parsed") {
  CHECK(parse_cpu_list("0-3,8,10-11") == std::vector<int>{0, 1, 2, 3, 8, 10, 11});
  CHECK(parse_cpu_list("5") == std::vector<int>{5});
  CHECK(parse_cpu_list("").empty());
}

TEST_CASE("the machine's description is complete and consistent") {
  const Machine machine = describe_machine();
  CHECK_FALSE(machine.cpu_model.empty());
  CHECK_FALSE(machine.kernel.empty());
  CHECK_FALSE(machine.compiler.empty());
  CHECK(machine.threads_available >= 1);
  CHECK(machine.threads_available <= machine.threads_online);
  CHECK(machine.cores_available <= machine.threads_available);
  CHECK(static_cast<int>(machine.cpus.size()) == machine.threads_available);
  CHECK(machine.l1d_bytes >= 8 << 10);
  CHECK(machine.l2_bytes > machine.l1d_bytes);
  CHECK(machine.memory_available_bytes > 0);
  CHECK(machine.memory_available_bytes <= machine.memory_bytes);
  CHECK(machine.date.size() == std::string("2025-01-31T12:00:00Z").size());
  CHECK(machine.date[10] == 'T');
#if defined(__x86_64__)
  CHECK(machine.has("sse2"));
  CHECK(machine.clock_hz > 0);
  CHECK(machine.virtual_machine == !machine.hypervisor.empty());
#endif
}
