// A program with regions, for program_test: what it does is its argument.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "gable/region.h"

extern "C" void from_c();

namespace {

void sleep_ms(int milliseconds) { usleep(static_cast<useconds_t>(milliseconds) * 1000); }

void nested() {
  for (int i = 0; i < 3; ++i) {
    GABLE_REGION("outer", 100, 10);
    sleep_ms(2);
    for (int k = 0; k < 2; ++k) {
      GABLE_REGION("inner", 7);
      sleep_ms(1);
    }
  }
  GABLE_REGION("inner");
}

void million() {
  for (int i = 0; i < 1000000; ++i) {
    GABLE_REGION("tiny");
  }
}

void threads() {
  { GABLE_REGION("alone"); }
  GABLE_REGION("team");
  std::vector<std::thread> team;
  for (int t = 0; t < 4; ++t)
    team.emplace_back([t] {
      for (int i = 0; i < 1000; ++i) {
        GABLE_REGION("work");
      }
      // Names that no thread has used before: all come to the table at once.
      for (int i = 0; i < 50; ++i) {
        const std::string shared = "shared " + std::to_string(i), own = "own " + std::to_string(t);
        const GableRegion outer(shared.c_str(), 1, 2);
        const GableRegion inner(own.c_str());
      }
      sleep_ms(5);
    });
  for (std::thread& thread : team) thread.join();
}

void forks() {
  GABLE_REGION("around");
  { GABLE_REGION("before"); }
  const pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 5; ++i) {
      GABLE_REGION("child");
    }
    std::exit(0);  // its open region "around" is its parent's
  }
  waitpid(child, nullptr, 0);
  GABLE_REGION("after");
}

// A fork that no library is told of.
void raw_fork() {
  { GABLE_REGION("before"); }
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (child == 0) {
    { GABLE_REGION("before"); }
    _exit(0);
  }
  waitpid(child, nullptr, 0);
}

void unbalanced() {
  gable_region_end();
  gable_region_begin("left open");
  { GABLE_REGION("inside"); }
  gable_region_end();
  gable_region_end();
  gable_region_begin("never ended");
}

void names() {
  for (const char* name : {"a/b", "tab\there\nand line", "", "sch\xc3\xb6n", "bad \xff utf8"}) {
    gable_region_begin(name);
    gable_region_end();
  }
  for (int turn = 0; turn < 2; ++turn) {  // the second one finds it in the thread's cache
    gable_region_begin(nullptr);
    gable_region_end();
  }
  const std::string longest(1000, 'x');
  gable_region_begin(longest.c_str());
  gable_region_end();
  std::string buffer = "first";
  gable_region_begin(buffer.data());
  gable_region_end();
  std::strcpy(buffer.data(), "other");  // the same address
  gable_region_begin(buffer.data());
  gable_region_end();
}

void impossible() {
  for (const double flop : {5.0, -1.0, 5.0}) {
    gable_region_begin_work("negative", flop, 7);
    gable_region_end();
  }
  gable_region_begin_work("none", 0.0 / 0.0, 0);
  gable_region_end();
}

void deep(int levels) {
  if (levels == 0) return;
  GABLE_REGION("d");
  deep(levels - 1);
}

void many() {
  for (int i = 0; i < 5000; ++i) {
    const std::string name = "region " + std::to_string(i);
    gable_region_begin(name.c_str());
    gable_region_end();
  }
}

void plugin(const char* file) {
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) std::exit(2);
  GABLE_REGION("host");
  reinterpret_cast<void (*)()>(dlsym(library, "work"))();
}

// As daemons do.
void closes_everything() {
  { GABLE_REGION("before"); }
  for (int file = 3; file < 1024; ++file) close(file);
  const int own = open("own", O_RDWR | O_CREAT | O_TRUNC, 0600);  // with a number that the listener may have had
  if (own < 0 || write(own, "12345", 5) != 5) std::exit(2);
  lseek(own, 0, SEEK_SET);
  for (int i = 0; i < 200; ++i) {
    const std::string name = "after " + std::to_string(i);
    gable_region_begin(name.c_str());
    gable_region_end();
  }
  struct stat state {};
  if (lseek(own, 0, SEEK_CUR) != 0 || fstat(own, &state) != 0 || state.st_size != 5 || state.st_blocks > 8)
    std::exit(3);
}

void before_the_end() {
  for (int i = 0; i < 10; ++i) {
    GABLE_REGION("done");
  }
  gable_region_begin("open");
}

int end_by(const std::string& how) {
  before_the_end();
  if (how == "segv") {
    raise(SIGSEGV);
  } else if (how == "abort") {
    std::abort();
  } else if (how == "kill") {
    kill(getpid(), SIGKILL);
  } else if (how == "_exit") {
    _exit(5);
  } else if (how == "exec") {
    execl("/proc/self/exe", "again", "nested", nullptr);
  }
  return 3;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "nested")
    nested();
  else if (what == "million")
    million();
  else if (what == "threads")
    threads();
  else if (what == "fork")
    forks();
  else if (what == "raw_fork")
    raw_fork();
  else if (what == "unbalanced")
    unbalanced();
  else if (what == "names")
    names();
  else if (what == "impossible")
    impossible();
  else if (what == "deep")
    deep(100);
  else if (what == "many")
    many();
  else if (what == "closes")
    closes_everything();
  else if (what == "c")
    from_c();
  else if (what == "plugin")
    plugin(argv[2]);
  else
    return end_by(what);
  return 0;
}
