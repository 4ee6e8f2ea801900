// See region_table.h. Nothing here may end or disturb the program: whatever fails turns the listener off.
#include "perfcounters/listen/region_table.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <initializer_list>

#include "perfcounters/listen/names.h"
#include "perfcounters/listen/perf_counts.h"

namespace gable::listen {
namespace {

constexpr std::size_t bytes_of(std::uint32_t slots) { return sizeof(FileHeader) + slots * sizeof(Slot); }

/// Held by one thread of this process. A holder that was another process's thread was lost in a fork.
class Lock {
 public:
  explicit Lock(std::atomic<std::int32_t>& holder) : holder_(holder) {
    const std::int32_t own = getpid();
    for (;;) {
      std::int32_t expected = 0;
      if (holder_.compare_exchange_weak(expected, own, std::memory_order_acquire)) return;
      if (expected != 0 && expected != own && holder_.compare_exchange_weak(expected, own, std::memory_order_acquire))
        return;
      sched_yield();
    }
  }
  ~Lock() { holder_.store(0, std::memory_order_release); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  std::atomic<std::int32_t>& holder_;
};

std::uint32_t hash_of(const char* name, RegionNumber parent, Origin origin) {
  std::uint32_t hash = 2166136261U ^ (parent * 2654435761U) ^ static_cast<std::uint32_t>(origin);  // FNV-1a
  for (; *name != '\0'; ++name) hash = (hash ^ static_cast<unsigned char>(*name)) * 16777619U;
  return hash ^ hash >> 15;
}

/// A process with a small limit of file sizes would be killed by the signal SIGXFSZ.
std::uint32_t slots_within_limits() {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      limit.rlim_cur >= bytes_of(kMaxRegions))
    return kMaxRegions;
  return limit.rlim_cur < bytes_of(1)
             ? 0
             : static_cast<std::uint32_t>((limit.rlim_cur - sizeof(FileHeader)) / sizeof(Slot));
}

/// The descriptor of a new file, whose path it puts into `path`; -1 where there can be none.
template <std::size_t N>
int open_new_file(const char* folder, char (&path)[N]) {
  for (int number = 0; number < 1000; ++number) {
    const int length = snprintf(path, sizeof(path), "%s/regions.%d.%d", folder, static_cast<int>(getpid()), number);
    if (length < 0 || length >= static_cast<int>(sizeof(path))) return -1;
    const int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (file >= 0 || errno != EEXIST) return file;
  }
  return -1;
}

std::uint64_t nanoseconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1000000000U + static_cast<std::uint64_t>(time.tv_nsec);
}

/// PyTorch's emit_nvtx() numbers its calls, "aten::mm, seq = 4, op_id = 17": without that they are one region.
void cut_call_numbers(char* name) {
  for (const char* number : {", seq = ", ", op_id = "})
    if (char* at = strstr(name, number)) *at = '\0';
}

/// Since this process started; 0 where /proc does not say.
std::uint64_t own_age() {
  char text[1024];
  const int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  const ssize_t got = file < 0 ? -1 : read(file, text, sizeof(text) - 1);
  if (file >= 0) close(file);
  if (got <= 0) return 0;
  text[got] = '\0';
  const char* rest = strrchr(text, ')');  // the name before it may hold anything
  for (int field = 2; rest != nullptr && field < 22; ++field) rest = strchr(rest + 1, ' ');
  if (rest == nullptr) return 0;
  const auto ticks = static_cast<std::uint64_t>(strtoull(rest + 1, nullptr, 10));
  const std::uint64_t started = ticks * (1000000000U / static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK)));
  const std::uint64_t now = nanoseconds(CLOCK_BOOTTIME);
  return now > started ? now - started : 0;
}

}  // namespace

RegionTable table;

bool RegionTable::start() {
  const int error = errno;
  {
    const Lock lock(lock_);
    if (state() == kNew) {
      std::uint32_t* page = alive_.load();
      if (page == &never_) {
        const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        void* fresh = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        // Without such pages (Linux before 4.14) a child would write into its parent's file.
        const bool wiped = fresh != MAP_FAILED && madvise(fresh, bytes, MADV_WIPEONFORK) == 0;
        page = wiped ? static_cast<std::uint32_t*>(fresh) : &never_;
      }
      const bool listening = page != &never_ && open_file();
      __atomic_store_n(page, listening ? kListening : kOff, __ATOMIC_RELEASE);
      alive_.store(page, std::memory_order_release);
    }
  }
  errno = error;
  return state() == kListening;
}

/// The parent process's slots, if there is one, are taken over with their numbers and without their counts.
bool RegionTable::open_file() {
  const char* folder = secure_getenv("GABLE_SESSION_FOLDER");
  if (folder == nullptr || *folder != '/') return false;
  const char* mode = secure_getenv("GABLE_SESSION_MODE");
  mode_ = mode == nullptr                  ? Mode::time
          : strcmp(mode, "simulated") == 0 ? Mode::simulated
          : strcmp(mode, "counters") == 0  ? Mode::counters
                                           : Mode::time;
  slot_limit_ = slots_within_limits();
  const FileHeader* parents_header = header_;
  const Slot* parents_slots = slots_;
  const std::uint32_t taken_over = parents_header == nullptr ? 0 : parents_header->used.load(std::memory_order_acquire);
  if (slot_limit_ == 0 || taken_over > slot_limit_) return false;
  const int file = open_new_file(folder, file_);
  if (file < 0) return false;
  reserved_ = 0;
  void* mapped = MAP_FAILED;
  if (ftruncate(file, static_cast<off_t>(bytes_of(slot_limit_))) == 0 && reserve(taken_over))
    mapped = mmap(nullptr, bytes_of(slot_limit_), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return false;
  header_ = static_cast<FileHeader*>(mapped);
  slots_ = reinterpret_cast<Slot*>(static_cast<char*>(mapped) + sizeof(FileHeader));
  for (std::uint32_t i = 0; i < taken_over; ++i) {
    slots_[i].parent = parents_slots[i].parent;
    slots_[i].origin = parents_slots[i].origin;
    slots_[i].cut = parents_slots[i].cut;
    memcpy(slots_[i].name, parents_slots[i].name, sizeof(slots_[i].name));
    slots_[i].fastest = UINT64_MAX;
  }
  header_->header_bytes = sizeof(FileHeader);
  header_->slot_bytes = sizeof(Slot);
  header_->slots = slot_limit_;
  header_->used.store(taken_over, std::memory_order_release);
  describe_process();
  header_->events = open_events(header_->event);
  memcpy(header_->magic, kMagic, sizeof(kMagic));
  if (parents_header != nullptr) munmap(const_cast<FileHeader*>(parents_header), bytes_of(parents_header->slots));
  ++process_;
  return true;
}

/// Disk blocks for so many slots and some more: a full disk must not become a SIGBUS of the program. Few more at first,
/// since a slot has 10 KB and a program may have thousands of processes with a region or two.
bool RegionTable::reserve(std::uint32_t slots) {
  constexpr std::uint32_t kFewest = 4, kMost = 64;
  if (slots < reserved_ || reserved_ == slot_limit_) return true;
  const std::uint32_t more = slots < kFewest ? kFewest : slots > kMost ? kMost : slots;
  const std::uint32_t wanted = slots + more < slot_limit_ ? slots + more : slot_limit_;
  const int file = open(file_, O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  const bool there = fallocate(file, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes_of(wanted))) == 0 ||
                     errno == EOPNOTSUPP || errno == ENOSYS;
  close(file);
  if (!there) return false;
  reserved_ = wanted;
  return true;
}

void RegionTable::describe_process() {
  header_->pid = getpid();
  header_->parent = getppid();
  const int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  ssize_t got = read(file, header_->command, sizeof(header_->command) - 1);
  close(file);
  while (got > 0 && header_->command[got - 1] == '\0') --got;
  for (ssize_t i = 0; i < got; ++i)
    if (header_->command[i] == '\0') header_->command[i] = ' ';
}

RegionNumber RegionTable::look_up(std::uint32_t hash, RegionNumber parent, const char* name, Origin origin) const {
  for (RegionNumber at = buckets_[hash % kBuckets].load(std::memory_order_acquire); at != 0; at = nodes_[at - 1].next) {
    const Slot& slot = slots_[at - 1];
    if (nodes_[at - 1].hash == hash && slot.parent == parent && slot.origin == origin && strcmp(slot.name, name) == 0)
      return at;
  }
  return 0;
}

RegionNumber RegionTable::find(RegionNumber parent, const char* name, Origin origin) {
  char clean[kMaxNameBytes + 1];
  if (name == nullptr || *name == '\0') name = "(no name)";
  const bool cut = !copy_name(name, clean, kMaxNameBytes);
  if (origin == Origin::nvtx) cut_call_numbers(clean);
  const std::uint32_t hash = hash_of(clean, parent, origin);
  if (const RegionNumber found = look_up(hash, parent, clean, origin)) return found;
  const int error = errno;
  RegionNumber region = 0;
  {
    const Lock lock(lock_);
    region = look_up(hash, parent, clean, origin);
    if (region == 0) region = add(hash, parent, clean, origin, cut);
  }
  errno = error;
  return region;
}

RegionNumber RegionTable::add(std::uint32_t hash, RegionNumber parent, const char* name, Origin origin, bool cut) {
  const std::uint32_t index = header_->used.load(std::memory_order_relaxed);
  const std::uint32_t parent_bytes = parent == 0 ? 0 : nodes_[parent - 1].path_bytes + 1;
  const std::size_t path_bytes = parent_bytes + strlen(name);
  if (path_bytes > kMaxPathBytes) {
    header_->too_deep.fetch_add(1, std::memory_order_relaxed);
    return 0;
  }
  char* path = index < header_->slots && reserve(index + 1) ? static_cast<char*>(malloc(path_bytes + 1)) : nullptr;
  if (path == nullptr) {
    header_->no_slot.fetch_add(1, std::memory_order_relaxed);
    return 0;
  }
  if (parent != 0) {
    memcpy(path, nodes_[parent - 1].path, parent_bytes - 1);
    path[parent_bytes - 1] = '/';
  }
  strcpy(path + parent_bytes, name);
  Slot& added = slots_[index];
  added.parent = parent;
  added.origin = origin;
  added.cut = cut ? 1 : 0;
  strcpy(added.name, name);
  added.fastest = UINT64_MAX;
  std::atomic<RegionNumber>& bucket = buckets_[hash % kBuckets];
  nodes_[index] = {path, static_cast<std::uint32_t>(path_bytes), hash, bucket.load(std::memory_order_relaxed)};
  header_->used.store(index + 1, std::memory_order_release);
  bucket.store(index + 1, std::memory_order_release);
  return index + 1;
}

void RegionTable::end_well() {
  if (state() != kListening) return;
  header_->nanoseconds = own_age();
  header_->cpu_nanoseconds = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
  header_->ended_well = 1;
}

}  // namespace gable::listen
