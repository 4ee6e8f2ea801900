// Loops and ceilings: checks the request, then calls the device's StudyImpl.
#include <gable/backend.h>
#include <gable/error.h>
#include <gable/study_backend.h>

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

/// `what` names the loops that the device lacks, for the message.
const StudyImpl& studies_of(const Device& device, const std::string& what) {
  const StudyImpl* studies = device.impl().studies();
  if (studies != nullptr) return *studies;
  throw Error(ErrorCode::unsupported, "device '" + device.info().uri + "' has no " + what);
}

}  // namespace

LoopImpl::~LoopImpl() = default;
std::vector<float> LoopImpl::result() const { return {}; }
StudyImpl::~StudyImpl() = default;

const LoopDetails& Loop::details() const { return impl_->details(); }

void Loop::run(int passes, const Stream& stream) const {
  if (passes < 1) {
    throw Error(ErrorCode::invalid_argument, std::to_string(passes) + " passes of a loop: it must be 1 at least");
  }
  impl_->run(passes, stream.native());
}

std::vector<float> Loop::result() const { return impl_->result(); }

std::vector<Ceiling> device_ceilings(const Device& device, const CeilingRequest& request) {
  const StudyImpl* studies = device.impl().studies();
  return studies == nullptr ? std::vector<Ceiling>{} : studies->ceilings(request);
}

Loop device_loop(const Device& device, const MemoryLoop& loop) {
  if (loop.bytes < 1) {
    throw Error(ErrorCode::invalid_argument,
                "a loop over " + std::to_string(loop.bytes) + " bytes: it must be 1 at least");
  }
  return Loop(studies_of(device, "loops that only move bytes").loop(loop));
}

Loop device_loop(const Device& device, const PagerankLoop& loop) {
  check_graph(loop);
  return Loop(studies_of(device, "PageRank").loop(loop));
}

}  // namespace gable
