// See verify.h.
#include "bench/verify.h"

#include <fmt/format.h>

#include <new>
#include <optional>

#include "bench/conv_runner.h"
#include "bench/problem.h"

namespace gable::bench {
namespace {

/// The oracle keeps an exact value and a magnitude an output, in f64, and f64 weights.
double oracle_bytes(const Conv2d& conv) {
  const double outputs = static_cast<double>(output_shape(conv).elements());
  return 16 * outputs + 8 * static_cast<double>(conv.weights.elements());
}

std::vector<ConstTensorView> inputs_of(const ConvData& data) {
  std::vector<ConstTensorView> inputs{data.x, data.weights};
  if (data.bias.data() != nullptr) inputs.emplace_back(data.bias);
  return inputs;
}

void verify_case(const Case& one, const std::vector<OpenDevice>& devices, Outcome& outcome,
                 const std::function<void(const VerifyResult&)>& report) {
  validate(one.conv);
  require_memory(bytes_needed(one.conv, 2) + oracle_bytes(one.conv), fmt::format("'{}'", descriptor(one.conv)));
  std::optional<ConvData> data;
  std::optional<OracleResult> expected;
  for (const OpenDevice& device : devices) {
    try {
      ConvRunner runner(device, one.conv);
      if (!data) {
        data = random_data(one.conv);
        expected = oracle(one.conv, inputs_of(*data));
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
      outcome.refuse(one, device.uri, error);
    }
  }
}

}  // namespace

void verify(const std::vector<Case>& cases, const std::vector<OpenDevice>& devices, Outcome& outcome,
            const std::function<void(const VerifyResult&)>& report) {
  for (const Case& one : cases) {
    try {
      verify_case(one, devices, outcome, report);
    } catch (const Error& error) {
      outcome.refuse(one, "", error);
    } catch (const std::bad_alloc&) {
      outcome.refuse(one, "", Error(ErrorCode::out_of_memory, "host memory ran out"));
    }
  }
}

}  // namespace gable::bench
