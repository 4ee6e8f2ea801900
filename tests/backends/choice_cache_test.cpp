// The cache of choices on disk against what a disk can do: other processes, full and read-only folders, files that are
// damaged, foreign or hostile.
#include "backends/registry/choice_cache.h"

#include <doctest/doctest.h>

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/registry/log.h"

namespace gable {
namespace {

namespace fs = std::filesystem;

std::string& words() {
  static std::string text;
  return text;
}

}  // namespace

void log_word(std::string_view message) noexcept {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  words() += std::string(message) + "\n";
}

namespace {

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "gable_cache_XXXXXX").string();
    path_ = mkdtemp(name.data());
    words().clear();
  }
  ~Folder() {
    std::error_code error;
    fs::permissions(path_, fs::perms::owner_all, error);
    fs::remove_all(path_, error);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

bool says(const std::string& part) { return words().find(part) != std::string::npos; }

Ranking ranking(double seconds) {
  return {.candidates =
              {{.device = "cpu", .kernel = "direct", .predicted = 1e-3, .measured = seconds, .program = "engine\t38"},
               {.device = "onednn", .kernel = "winograd", .refusal = "no\twinograd\nhere"}},
          .source = ChoiceSource::measured};
}

std::string read(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void write(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
}

/// Runs `work` in a process of its own; its exit code.
template <typename Work>
pid_t start(const Work& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  return child;
}

int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("what one cache stores another finds, with every field; another identity finds nothing") {
  const Folder folder;
  ChoiceCache one(folder.path() / "made" / "here", "machine A");
  CHECK(one.find("op") == nullptr);
  one.store("op", ranking(1.25e-5));
  ChoiceCache two(folder.path() / "made" / "here", "machine A");
  const std::shared_ptr<const Ranking> found = two.find("op");
  REQUIRE(found != nullptr);
  CHECK(found->source == ChoiceSource::measured);
  REQUIRE(found->candidates.size() == 2);
  CHECK(found->candidates[0].device == "cpu");
  CHECK(found->candidates[0].kernel == "direct");
  CHECK(found->candidates[0].measured.value() == 1.25e-5);
  CHECK(found->candidates[0].predicted.value() == 1e-3);
  CHECK(found->candidates[0].program == "engine 38");
  CHECK_FALSE(found->candidates[1].measured.has_value());
  CHECK(found->candidates[1].refusal == "no winograd here");
  CHECK(ChoiceCache(folder.path() / "made" / "here", "machine B").find("op") == nullptr);
  struct stat status {};
  REQUIRE(stat(two.file().c_str(), &status) == 0);
  CHECK((status.st_mode & 077) == 0);
  CHECK(words().empty());
}

TEST_CASE("a cache sees what another process stores later") {
  const Folder folder;
  ChoiceCache mine(folder.path(), "m");
  mine.store("first", ranking(1));
  CHECK(mine.find("second") == nullptr);
  CHECK(wait_for(start([&] {
          ChoiceCache(folder.path(), "m").store("second", ranking(2));
          return 0;
        })) == 0);
  CHECK(mine.find("second") != nullptr);
  CHECK(mine.find("first") != nullptr);
}

TEST_CASE("processes that store at once lose nothing") {
  const Folder folder;
  constexpr int kProcesses = 4, kEach = 40;
  pid_t children[kProcesses];
  for (int p = 0; p < kProcesses; ++p) {
    children[p] = start([&] {
      ChoiceCache cache(folder.path(), "m");
      for (int i = 0; i < kEach; ++i) cache.store("op " + std::to_string(p * kEach + i), ranking(1));
      return words().empty() ? 0 : 1;
    });
  }
  for (const pid_t child : children) CHECK(wait_for(child) == 0);
  ChoiceCache cache(folder.path(), "m");
  int found = 0;
  for (int i = 0; i < kProcesses * kEach; ++i) found += cache.find("op " + std::to_string(i)) != nullptr ? 1 : 0;
  CHECK(found == kProcesses * kEach);
  CHECK(words().empty());
}

TEST_CASE("threads that share a cache, and others with the same file, store and find at once") {
  const Folder folder;
  constexpr int kThreads = 4, kEach = 20;
  ChoiceCache shared(folder.path(), "m");
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      ChoiceCache own(folder.path(), "m");
      for (int i = 0; i < kEach; ++i) {
        (i % 2 == 0 ? own : shared).store("op " + std::to_string(t * kEach + i), ranking(1));
        shared.find("op " + std::to_string(i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  int found = 0;
  for (int i = 0; i < kThreads * kEach; ++i) found += shared.find("op " + std::to_string(i)) != nullptr ? 1 : 0;
  CHECK(found == kThreads * kEach);
}

TEST_CASE("damaged lines are left out, whole ones are used") {
  const Folder folder;
  ChoiceCache writer(folder.path(), "m");
  for (int i = 0; i < 5; ++i) writer.store("op " + std::to_string(i), ranking(1 + i));
  const std::string text = read(writer.file());
  // Truncated anywhere: never a crash, never a wrong entry.
  for (std::size_t length = 0; length < text.size(); length += 7) {
    write(writer.file(), text.substr(0, length));
    ChoiceCache reader(folder.path(), "m");
    for (int i = 0; i < 5; ++i) {
      const auto found = reader.find("op " + std::to_string(i));
      if (found) CHECK(found->candidates.front().measured.value() == 1 + i);
    }
  }
  // A flipped character in each line.
  for (std::size_t at = 0; at < text.size(); at += 13) {
    std::string changed = text;
    changed[at] = changed[at] == 'x' ? 'y' : 'x';
    write(writer.file(), changed);
    ChoiceCache reader(folder.path(), "m");
    for (int i = 0; i < 5; ++i) {
      const auto found = reader.find("op " + std::to_string(i));
      if (found) CHECK(found->candidates.front().measured.value() == 1 + i);
    }
  }
  CHECK(says("damaged"));
  CHECK(says("no cache of this gable"));
}

/// A line with a right checksum.
std::string line(const std::string& content) {
  std::uint64_t hash = 14695981039346656037ull;
  for (const char c : content) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  char hex[20];
  std::snprintf(hex, sizeof(hex), "%016llx", static_cast<unsigned long long>(hash));
  return std::string(hex) + "\t" + content + "\n";
}

TEST_CASE("lines that are well signed and make no sense are left out") {
  const Folder folder;
  ChoiceCache probe(folder.path(), "m");
  const std::string begin = "gable choices 2\nm\n";
  for (const std::string& content :
       {std::string("op"), std::string("op\tcpu\tdirect"), std::string(), std::string("op\tcpu\tdirect\tnan\t1\t0\t\t"),
        std::string("op\tcpu\tdirect\t1\tinf\t0\t\t"), std::string("op\tcpu\tdirect\t1\t-1\t0\t\t"),
        std::string("op\tcpu\tdirect\t1\t1e300\t0\t\t"), std::string("op\tcpu\tdirect\t1\t1x\t0\t\t"),
        std::string("op\tcpu\tdirect\t\t\t\t\t")}) {
    CAPTURE(content);
    write(probe.file(), begin + line(content));
    CHECK(ChoiceCache(folder.path(), "m").find("op") == nullptr);
  }
  std::string many = "op";
  for (int i = 0; i < 1000; ++i) many += "\tcpu\tdirect\t1\t1\t0\t\t";
  write(probe.file(), begin + line(many));
  CHECK(ChoiceCache(folder.path(), "m").find("op") == nullptr);
  write(probe.file(), begin + line("op\tcpu\tdirect\t0\t1\t0\t\t"));
  CHECK(ChoiceCache(folder.path(), "m").find("op") != nullptr);
}

TEST_CASE("a damaged line replaces no whole one of its op, in the file or in memory, and is not written again") {
  const Folder folder;
  ChoiceCache writer(folder.path(), "m");
  writer.store("op", ranking(1));
  const std::string text = read(writer.file());
  std::string damaged = text.substr(text.find('\n', text.find('\n') + 1) + 1);
  damaged[damaged.find("direct")] = 'x';
  write(writer.file(), text + damaged);
  CHECK(ChoiceCache(folder.path(), "m").find("op") != nullptr);
  write(writer.file(), text.substr(0, text.size() - damaged.size()) + damaged);
  CHECK(writer.find("an op that makes it read the file") == nullptr);
  CHECK(writer.find("op") != nullptr);
  ChoiceCache reader(folder.path(), "m");
  CHECK(reader.find("op") == nullptr);
  CHECK(says("damaged"));
  reader.store("other", ranking(2));
  CHECK(read(writer.file()).find("xirect") == std::string::npos);
}

TEST_CASE("files that are not to be trusted are ignored with a word: too large, writable by others, no files") {
  const Folder folder;
  ChoiceCache writer(folder.path(), "m");
  writer.store("op", ranking(1));
  const std::string text = read(writer.file());
  const auto ignored = [&](const std::string& why) {
    words().clear();
    CHECK(ChoiceCache(folder.path(), "m").find("op") == nullptr);
    CHECK_MESSAGE(says(why), words());
  };
  fs::permissions(writer.file(), fs::perms::others_write, fs::perm_options::add);
  ignored("other users may write it");
  write(writer.file(), text + std::string(std::size_t{5} << 20, 'x'));
  ignored("larger than 4 MiB");
  fs::remove(writer.file());
  write(folder.path() / "elsewhere", text);
  fs::create_symlink(folder.path() / "elsewhere", writer.file());
  ignored("ignored");
  fs::remove(writer.file());
  REQUIRE(mkfifo(writer.file().c_str(), 0600) == 0);
  ignored("no regular file");
  fs::remove(writer.file());
  fs::create_directory(writer.file());
  ignored("no regular file");
  // A choice is kept in memory where its file can't be replaced.
  ChoiceCache cache(folder.path(), "m");
  cache.store("op", ranking(2));
  CHECK(cache.find("op") != nullptr);
  CHECK(says("in memory alone"));
}

TEST_CASE("a full disk loses nothing that was stored before") {
  const Folder folder;
  ChoiceCache(folder.path(), "m").store("before", ranking(1));
  CHECK(wait_for(start([&] {
          // No file of this process may grow beyond 60 bytes.
          signal(SIGXFSZ, SIG_IGN);
          const rlimit limit{60, 60};
          setrlimit(RLIMIT_FSIZE, &limit);
          ChoiceCache cache(folder.path(), "m");
          cache.store("after", ranking(2));
          return cache.find("after") != nullptr && says("in memory alone") ? 0 : 1;
        })) == 0);
  ChoiceCache cache(folder.path(), "m");
  CHECK(cache.find("before") != nullptr);
  CHECK(cache.find("after") == nullptr);
  for (const auto& entry : fs::directory_iterator(folder.path())) CHECK(entry.path().extension() != ".tmp");
}

TEST_CASE("a folder that can't be written is ignored with a word, and what is in it is read") {
  const Folder folder;
  ChoiceCache(folder.path(), "m").store("op", ranking(1));
  fs::remove(folder.path() / "lock");
  fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
  // Root may write everywhere: it becomes another user, who owns nothing here.
  if (geteuid() != 0) {
    ChoiceCache cache(folder.path(), "m");
    CHECK(cache.find("op") != nullptr);
    cache.store("more", ranking(2));
    CHECK(cache.find("more") != nullptr);
    CHECK(says("Permission denied"));
  } else {
    CHECK(wait_for(start([&] {
            fs::permissions(folder.path(), fs::perms::others_exec | fs::perms::others_read, fs::perm_options::add);
            if (setuid(65534) != 0) return 2;
            ChoiceCache cache(folder.path(), "m");
            if (cache.find("op") != nullptr) return 3;  // another user's
            cache.store("more", ranking(2));
            return cache.find("more") != nullptr && says("Permission denied") ? 0 : 1;
          })) == 0);
  }
}

TEST_CASE("a folder that can't be made is ignored, with the reason for the folder") {
  const Folder folder;
  std::ofstream(folder.path() / "file").put('x');
  ChoiceCache cache(folder.path() / "file" / "gable", "m");
  cache.store("op", ranking(1));
  CHECK(cache.find("op") != nullptr);
  CHECK(says("its folder can't be made: Not a directory"));
}

TEST_CASE("a lock that is a link is not followed, and named") {
  const Folder folder;
  fs::create_symlink(folder.path() / "elsewhere", folder.path() / "lock");
  ChoiceCache cache(folder.path(), "m");
  cache.store("op", ranking(1));
  CHECK(cache.find("op") != nullptr);
  CHECK(says("its lock: it is a symbolic link"));
  CHECK_FALSE(fs::exists(folder.path() / "elsewhere"));
}

TEST_CASE("the cache stays small: entries of a file, files of a folder") {
  const Folder folder;
  for (int i = 0; i < 40; ++i) {
    ChoiceCache(folder.path(), "machine " + std::to_string(i)).store("op", ranking(1));
  }
  int files = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) files += entry.path().extension() == ".txt" ? 1 : 0;
  CHECK(files == 32);
  CHECK(ChoiceCache(folder.path(), "machine 8").find("op") != nullptr);
  CHECK(ChoiceCache(folder.path(), "machine 7").find("op") == nullptr);
  // 4 MiB of entries; the newest stay.
  Ranking large = ranking(1);
  large.candidates.resize(64, {.device = "cpu", .kernel = "direct", .refusal = std::string(250, 'r')});
  ChoiceCache filler(folder.path(), "m");
  const std::string begin = "gable choices 2\nm\n";
  std::string content = begin;
  std::string rest;
  for (int i = 0; i < 64; ++i) rest += "\tcpu\tdirect\t1\t1\t0\t" + std::string(250, 'r') + "\t";
  for (int i = 0; content.size() < (std::size_t{4} << 20) - 20000; ++i)
    content += line("op " + std::to_string(i) + rest);
  write(filler.file(), content);
  filler.store("newest", large);
  CHECK(fs::file_size(filler.file()) <= std::size_t{4} << 20);
  filler.store("newer yet", large);
  CHECK(fs::file_size(filler.file()) <= std::size_t{4} << 20);
  ChoiceCache reader(folder.path(), "m");
  CHECK(reader.find("newest") != nullptr);
  CHECK(reader.find("newer yet") != nullptr);
  CHECK(reader.find("op 0") == nullptr);
}

TEST_CASE("without a folder choices stay in memory") {
  ChoiceCache cache({}, "m");
  CHECK(cache.file().empty());
  cache.store("op", ranking(1));
  CHECK(cache.find("op") != nullptr);
}

}  // namespace
}  // namespace gable
