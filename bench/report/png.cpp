// Running rsvg-convert: no shell, so no path or name is ever interpreted.
#include "bench/report/png.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bench/common/files.h"

extern char** environ;

namespace gable::bench::report {
namespace {

class SpawnActions {
 public:
  SpawnActions() { posix_spawn_file_actions_init(&actions_); }
  ~SpawnActions() { posix_spawn_file_actions_destroy(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  void open(int descriptor, const char* path, int flags) {
    posix_spawn_file_actions_addopen(&actions_, descriptor, path, flags, 0600);
  }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

std::string first_words(const std::filesystem::path& path) {
  std::ifstream stream(path);
  std::string text(400, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(stream.gcount()));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) throw std::runtime_error(fmt::format("waiting for a child process: {}", std::strerror(errno)));
  }
  return status;
}

// Returns waitpid's status. The child's standard error goes to the file `errors`.
int run(std::vector<std::string> arguments, const std::filesystem::path& errors) {
  SpawnActions actions;
  actions.open(STDIN_FILENO, "/dev/null", O_RDONLY);
  actions.open(STDOUT_FILENO, "/dev/null", O_WRONLY);
  actions.open(STDERR_FILENO, errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv[0], actions.get(), nullptr, argv.data(), environ);
  if (failed == ENOENT) {
    throw NoRenderer(
        fmt::format("no program \"{}\" on PATH to draw the PNG and the PDF: install the package librsvg2-bin "
                    "(apt-get install librsvg2-bin)",
                    arguments[0]));
  }
  if (failed) throw std::runtime_error(fmt::format("could not start \"{}\": {}", arguments[0], std::strerror(failed)));
  return wait_for(child);
}

// `how` are the program's options.
void render(const std::string& svg, const std::filesystem::path& destination, const std::vector<std::string>& how,
            const std::string& program) {
  // An absolute path can't be mistaken for an option.
  const std::filesystem::path target = std::filesystem::absolute(destination);
  TemporaryFile source(target), image(target), errors(target);
  source.write({svg});
  std::vector<std::string> arguments = {program};
  arguments.insert(arguments.end(), how.begin(), how.end());
  arguments.insert(arguments.end(), {"--output=" + image.path().string(), source.path().string()});
  const int status = run(std::move(arguments), errors.path());
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    const std::string end = WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status))
                                                : fmt::format("failed with status {}", WEXITSTATUS(status));
    throw std::runtime_error(fmt::format("\"{}\" {}: {}", program, end, first_words(errors.path())));
  }
  image.rename_to(target);
}

}  // namespace

void write_png(const std::string& svg, const std::filesystem::path& destination, double zoom,
               const std::string& program) {
  render(svg, destination, {"--format=png", fmt::format("--zoom={}", zoom)}, program);
}

void write_pdf(const std::string& svg, const std::filesystem::path& destination, const std::string& program) {
  render(svg, destination, {"--format=pdf"}, program);
}

}  // namespace gable::bench::report
