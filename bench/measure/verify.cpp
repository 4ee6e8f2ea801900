// See verify.h.
#include "bench/measure/verify.h"

#include <fmt/format.h>

#include <new>
#include <optional>

#include "bench/measure/op_runner.h"
#include "bench/workloads/identity.h"
#include "bench/workloads/problem.h"
#include "perfcounters/interrupt.h"

namespace gable::bench {
namespace {

void verify_case(const Case& one, const std::vector<OpenDevice>& devices, Outcome& outcome,
                 const std::function<void(const VerifyResult&)>& report) {
  validate(one.op);
  require_memory(bytes_needed(one.op, 2) + oracle_bytes(one.op), fmt::format("'{}'", descriptor(one.op)));
  std::optional<OpData> data;
  std::optional<OracleResult> expected;
  for (const OpenDevice& device : devices) {
    try {
      OpRunner runner(device, one.op);
      if (!data) {
        data = random_data(one.op);
        expected = oracle(one.op, data->inputs());
      }
      runner.prepare(*data);
      runner.run();
      const Tensor y = runner.result();
      const VerifyResult result{&one, device.uri, runner.plan().kernel(),
                                compare(y, *expected, runner.plan().error_bound()), runner.plan().error_bound()};
      ++outcome.ran;
      outcome.mismatched += result.comparison.passed ? 0 : 1;
      report(result);
    } catch (const Error& error) {
      outcome.refuse(identity_of(one), device.uri, error);
    }
  }
}

}  // namespace

void verify(const std::vector<Case>& cases, const std::vector<OpenDevice>& devices, Outcome& outcome,
            const std::function<void(const VerifyResult&)>& report) {
  for (const Case& one : cases) {
    perf::throw_if_interrupted();
    try {
      verify_case(one, devices, outcome, report);
    } catch (const Error& error) {
      outcome.refuse(identity_of(one), "", error);
    } catch (const std::bad_alloc&) {
      outcome.refuse(identity_of(one), "", Error(ErrorCode::out_of_memory, "host memory ran out"));
    }
  }
}

}  // namespace gable::bench
