// Loops and ceilings: a thin, checked face of backend.h's classes, and what a device without them says.
#include <gable/backend.h>
#include <gable/device.h>
#include <gable/error.h>

namespace gable {
namespace {

void check_graph(const PagerankLoop& loop) {
  const auto vertices = static_cast<std::int64_t>(loop.out_degrees.size());
  const auto edges = static_cast<std::int64_t>(loop.sources.size());
  const auto offsets = static_cast<std::int64_t>(loop.offsets.size());
  if (vertices > 0 && vertices < 0x7fffffff && offsets == vertices + 1 && loop.offsets.back() == edges) return;
  throw Error(ErrorCode::invalid_argument, "PageRank: " + std::to_string(vertices) + " vertices, " +
                                               std::to_string(offsets) + " offsets and " + std::to_string(edges) +
                                               " edges: offsets are one more than vertices, and the last is the edges");
}

}  // namespace

LoopImpl::~LoopImpl() = default;
std::vector<float> LoopImpl::result() const { return {}; }

std::vector<Ceiling> DeviceImpl::ceilings(const CeilingRequest&) const { return {}; }

std::shared_ptr<LoopImpl> DeviceImpl::loop(const MemoryLoop&) const {
  throw Error(ErrorCode::unsupported, "device '" + info().uri + "' has no loops that only move bytes");
}

std::shared_ptr<LoopImpl> DeviceImpl::loop(const PagerankLoop&) const {
  throw Error(ErrorCode::unsupported, "device '" + info().uri + "' has no PageRank");
}

const LoopDetails& Loop::details() const { return impl_->details(); }

void Loop::run(int passes, const Stream& stream) const {
  if (passes < 1) {
    throw Error(ErrorCode::invalid_argument, std::to_string(passes) + " passes of a loop: it must be 1 at least");
  }
  impl_->run(passes, stream.native());
}

std::vector<float> Loop::result() const { return impl_->result(); }

std::vector<Ceiling> Device::ceilings(const CeilingRequest& request) const { return impl_->ceilings(request); }

Loop Device::loop(const MemoryLoop& loop) const {
  if (loop.bytes < 1) {
    throw Error(ErrorCode::invalid_argument,
                "a loop over " + std::to_string(loop.bytes) + " bytes: it must be 1 at least");
  }
  return Loop(impl_->loop(loop));
}

Loop Device::loop(const PagerankLoop& loop) const {
  check_graph(loop);
  return Loop(impl_->loop(loop));
}

}  // namespace gable
