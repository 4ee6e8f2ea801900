// See perf_counts.h. One file descriptor for each event and thread: the kernel reads no groups of inherited events.
#include "perfcounters/listen/perf_counts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gable::listen {
namespace {

constexpr int kMaxOpened = 1024;

struct Opened {
  int file;
  std::uint32_t event;
};
Opened opened[kMaxOpened];
int opened_count = 0;
std::uint32_t event_count = 0;

std::uint32_t parse(const char* text, EventInfo (&events)[kMaxEvents]) {
  std::uint32_t count = 0;
  while (text != nullptr && *text != '\0' && count < kMaxEvents) {
    char* end = nullptr;
    EventInfo& event = events[count++];
    event.cpu = -1;
    event.error = EINVAL;  // until it is opened
    event.type = static_cast<std::uint32_t>(strtoull(text, &end, 0));
    if (*end != ':') return count;
    event.config = strtoull(end + 1, &end, 0);
    if (*end != ':') return count;
    end += 1 + strcspn(end + 1, ":,");  // the scale, which the reader knows
    if (*end == ':') event.cpu = static_cast<std::int32_t>(strtol(end + 1, &end, 0));
    event.error = 0;
    text = *end == ',' ? end + 1 : nullptr;
  }
  return count;
}

int open_event(const EventInfo& event, int thread, int leader) {
  perf_event_attr attributes{};
  attributes.size = sizeof(attributes);
  attributes.type = event.type;
  attributes.config = event.config;
  attributes.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  if (event.cpu < 0) {  // a memory controller cannot tell user from kernel
    attributes.inherit = 1;
    attributes.exclude_kernel = 1;
    attributes.exclude_hv = 1;
  }
  return static_cast<int>(
      syscall(SYS_perf_event_open, &attributes, event.cpu < 0 ? thread : -1, event.cpu, leader, PERF_FLAG_FD_CLOEXEC));
}

/// The descriptor, which is kept for read_events(); -1, with the event's error, where it can't be opened.
int keep(EventInfo& event, std::uint32_t index, int thread, int leader) {
  const int file = opened_count < kMaxOpened ? open_event(event, thread, leader) : -1;
  if (file < 0) {
    if (errno != ESRCH) event.error = opened_count < kMaxOpened ? errno : EMFILE;  // ESRCH: the thread has ended
    return -1;
  }
  opened[opened_count++] = {file, index};
  return file;
}

/// The thread's events are one group, which the kernel schedules as a whole.
void open_for_thread(EventInfo (&events)[kMaxEvents], int thread) {
  int leader = -1;
  for (std::uint32_t i = 0; i < event_count; ++i) {
    if (events[i].cpu >= 0 || events[i].error != 0) continue;
    const int file = keep(events[i], i, thread, leader);
    if (leader < 0) leader = file;
  }
}

}  // namespace

std::uint32_t open_events(EventInfo (&events)[kMaxEvents]) {
  for (int i = 0; i < opened_count; ++i) close(opened[i].file);
  opened_count = 0;
  event_count = parse(secure_getenv("GABLE_SESSION_EVENTS"), events);
  if (event_count == 0) return 0;
  for (std::uint32_t i = 0; i < event_count; ++i)
    if (events[i].cpu >= 0 && events[i].error == 0) keep(events[i], i, -1, -1);
  DIR* threads = opendir("/proc/self/task");
  if (threads == nullptr) {
    open_for_thread(events, 0);
    return event_count;
  }
  while (const dirent* entry = readdir(threads))
    if (const int thread = atoi(entry->d_name); thread > 0) open_for_thread(events, thread);
  closedir(threads);
  return event_count;
}

void read_events(EventValue* values) {
  memset(values, 0, event_count * sizeof(values[0]));
  for (int i = 0; i < opened_count; ++i) {
    EventValue now{};  // count, enabled, running: the kernel's order
    if (read(opened[i].file, &now, sizeof(now)) != static_cast<ssize_t>(sizeof(now))) continue;
    EventValue& sum = values[opened[i].event];
    sum.count += now.count;
    sum.enabled += now.enabled;
    sum.running += now.running;
  }
}

}  // namespace gable::listen
