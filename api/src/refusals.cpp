// why_refused() of gable/backend.h. Where one attribute is at fault, such as the math, the reasons of twenty kernels
// say less than the values of it that would do. These are found by asking for the op with each other value.
#include <gable/backend.h>
#include <gable/error.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace gable {
namespace {

/// The op with another value of one attribute.
struct Other {
  std::string attribute;  ///< "math tf32"
  std::string value;      ///< "strict"
  Op op;
};

template <typename O, typename Value>
void add_others(const O& op, const char* name, Value O::*attribute, std::initializer_list<Value> values,
                std::vector<Other>& all) {
  for (const Value value : values) {
    if (value == op.*attribute) continue;
    O other = op;
    other.*attribute = value;
    all.push_back({name + std::string(to_string(op.*attribute)), std::string(to_string(value)), other});
  }
}

/// By attribute, the one that fails most often first.
std::vector<Other> others_of(const Op& op) {
  std::vector<Other> all;
  std::visit(
      [&]<typename O>(const O& o) {
        if constexpr (requires { o.math; })
          add_others(o, "math ", &O::math, {Math::strict, Math::tf32, Math::split3, Math::split6}, all);
        if constexpr (requires { o.layout; }) add_others(o, "layout ", &O::layout, {Layout::nchw, Layout::nhwc}, all);
        if constexpr (requires { o.dtype; }) add_others(o, "", &O::dtype, {DType::f32, DType::f16, DType::bf16}, all);
      },
      op);
  return all;
}

/// "cpu" of the offer "cpu/direct" of an `auto`; empty for those of a device.
std::string device_of(const KernelOffer& offer) {
  const std::size_t end = offer.kernel.rfind('/');
  return end == std::string::npos ? "" : offer.kernel.substr(0, end);
}

std::vector<KernelOffer> valid_offers(const DeviceImpl& device, const Op& op) {
  try {
    validate(op);
    return device.quick_offers(op);
  } catch (const Error&) {
    return {};  // this math is of another dtype
  }
}

/// What one device says of the op with other values of an attribute.
class Others {
 public:
  Others(const DeviceImpl& device, const Op& op) : others_(others_of(op)) {
    for (const Other& other : others_) offers_.push_back(valid_offers(device, other.op));
  }

  /// "math tf32: it takes strict, split6"; empty where no other value of one attribute would do.
  std::string fault_of(const std::string& device) const {
    std::string text, attribute;
    for (std::size_t i = 0; i < others_.size(); ++i) {
      const bool other_attribute = others_[i].attribute != attribute;
      if (!text.empty() && other_attribute) break;
      const auto takes = [&](const KernelOffer& offer) { return offer.supported() && device_of(offer) == device; };
      if (std::none_of(offers_[i].begin(), offers_[i].end(), takes)) continue;
      attribute = others_[i].attribute;
      text += (text.empty() ? attribute + ": it takes " : ", ") + others_[i].value;
    }
    return text;
  }

 private:
  std::vector<Other> others_;
  std::vector<std::vector<KernelOffer>> offers_;
};

}  // namespace

std::string why_refused(const DeviceImpl& device, const Op& op, const std::vector<KernelOffer>& offers) {
  const Others others(device, op);
  std::string text;
  for (auto first = offers.begin(); first != offers.end();) {
    const std::string name = device_of(*first);
    const auto last = std::find_if(first, offers.end(), [&](const auto& offer) { return device_of(offer) != name; });
    const std::string fault = last - first > 1 ? others.fault_of(name) : "";
    if (!fault.empty()) {
      text += "\n  " + (name.empty() ? device.info().uri : name) + ": " + fault;
    } else {
      for (auto one = first; one != last; ++one) text += "\n  " + one->kernel + ": " + one->refusal;
    }
    first = last;
  }
  return text;
}

}  // namespace gable
