// Events, and the host's implementation: a run on the host has finished when it returns, so an event is a time.
#include <gable/backend.h>
#include <gable/error.h>
#include <gable/event.h>

#include <chrono>
#include <optional>
#include <typeinfo>

#include "common/there.h"

namespace gable {
namespace {

constexpr const char* kEvent = "this event";

class HostEvent final : public EventImpl {
 public:
  void record(void*) override { at_ = std::chrono::steady_clock::now(); }

  double seconds_since(const EventImpl& start) const override {
    const auto& from = static_cast<const HostEvent&>(start);
    if (!at_ || !from.at_) throw Error(ErrorCode::invalid_argument, "an event was not recorded: record() both first");
    return std::chrono::duration<double>(*at_ - *from.at_).count();
  }

 private:
  std::optional<std::chrono::steady_clock::time_point> at_;
};

}  // namespace

EventImpl::~EventImpl() = default;

std::shared_ptr<EventImpl> DeviceImpl::event() const {
  if (info_.memory.kind != Memory::Kind::host) {
    throw Error(ErrorCode::unsupported, "device '" + info_.uri + "' has no events: its backend makes none");
  }
  return std::make_shared<HostEvent>();
}

void Event::record(const Stream& stream) { there(impl_, kEvent).record(stream.native()); }

double Event::seconds_since(const Event& start) const {
  const EventImpl& to = there(impl_, kEvent);
  const EventImpl& from = there(start.impl_, kEvent);
  if (typeid(to) != typeid(from)) {
    throw Error(ErrorCode::invalid_argument,
                "events of two kinds of devices: time passes between events of one device");
  }
  return to.seconds_since(from);
}

}  // namespace gable
