// See loader.h.
#include "backends/registry/loader.h"

#include <gable/error.h>

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "common/names_in.h"

namespace gable::loader {
namespace {

constexpr std::string_view kPrefix = "libgable_";
constexpr std::string_view kSuffix = ".so";
constexpr std::string_view kMeasure = "measure";  // libgable_measure.so is a library for programs, no plugin
constexpr std::uint64_t kMaxAbi = 1'000'000;      // beyond: an address, from an entry without the number

std::filesystem::path library_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&library_folder), &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(info.dli_fname, error);
  return error ? std::filesystem::path() : file.parent_path();
}

std::string backend_of(const std::string& file) {
  if (file.size() <= kPrefix.size() + kSuffix.size() || !file.starts_with(kPrefix) || !file.ends_with(kSuffix))
    return "";
  return file.substr(kPrefix.size(), file.size() - kPrefix.size() - kSuffix.size());
}

[[noreturn]] void refuse(const PluginFile& plugin, const std::string& reason) {
  throw Error(ErrorCode::unavailable, plugin.path.string() + ": " + reason);
}

/// Closes the file at the end of a scope.
struct Descriptor {
  int number;
  explicit Descriptor(const std::filesystem::path& path)
      : number(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {}
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

/// True if the file is as long as its headers say. Files that are not ELF of this machine's width are left to the
/// dynamic loader.
bool is_whole(int file, std::uint64_t size) {
  ElfW(Ehdr) header;
  if (::pread(file, &header, sizeof(header), 0) != static_cast<ssize_t>(sizeof(header))) return true;
  constexpr unsigned char kClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != kClass) return true;
  const auto fits = [&](std::uint64_t begin, std::uint64_t bytes) { return begin <= size && bytes <= size - begin; };
  if (!fits(header.e_shoff, std::uint64_t{header.e_shnum} * header.e_shentsize)) return false;
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment;
    const std::uint64_t at = header.e_phoff + i * sizeof(segment);
    if (!fits(at, sizeof(segment)) ||
        ::pread(file, &segment, sizeof(segment), static_cast<off_t>(at)) != static_cast<ssize_t>(sizeof(segment)))
      return false;
    if (segment.p_type == PT_LOAD && !fits(segment.p_offset, segment.p_filesz)) return false;
  }
  return true;
}

/// dlopen() would wait for ever on a FIFO, and a file that ends too early would raise SIGBUS.
void require_whole_file(const PluginFile& plugin) {
  struct stat status {};
  if (::stat(plugin.path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) refuse(plugin, "is no regular file");
  const Descriptor file(plugin.path);
  if (file.number < 0 || ::fstat(file.number, &status) != 0) return;  // dlopen() says why
  if (!is_whole(file.number, static_cast<std::uint64_t>(status.st_size)))
    refuse(plugin, "the file is truncated: its headers speak of more than its " + std::to_string(status.st_size) +
                       " bytes; copy it again");
}

}  // namespace

SearchPath search_path() {
  SearchPath result;
  // secure_getenv: a privileged program must not load files that its caller names.
  if (const char* variable = secure_getenv("GABLE_BACKEND_PATH")) {
    std::string_view rest = variable;
    while (!rest.empty()) {
      const std::string_view entry = rest.substr(0, rest.find(':'));
      rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
      if (entry.empty()) continue;
      if (entry.front() == '/') {
        result.folders.emplace_back(entry);
        std::error_code error;
        if (!std::filesystem::is_directory(result.folders.back(), error)) result.missing.emplace_back(entry);
      } else {
        result.refused.emplace_back(entry);
      }
    }
  }
  if (const std::filesystem::path own = library_folder(); !own.empty()) {
    result.folders.push_back(own);
    result.folders.push_back(own / "gable");
  }
  return result;
}

std::vector<PluginFile> find_plugins(const SearchPath& path) {
  std::vector<PluginFile> plugins;
  for (const std::filesystem::path& folder : path.folders) {
    std::vector<PluginFile> here;
    for (const std::string& name : names_in(folder)) {  // a folder that does not exist holds no plugins
      const std::string backend = backend_of(name);
      if (!backend.empty() && backend != kMeasure) here.push_back({backend, folder / name});
    }
    std::sort(here.begin(), here.end(), [](const auto& a, const auto& b) { return a.backend < b.backend; });
    plugins.insert(plugins.end(), here.begin(), here.end());
  }
  return plugins;
}

std::unique_ptr<Backend> load(const PluginFile& plugin) {
#if !GABLE_SHARED
  // The plugin would load libgable.so: a second registry, whose classes this one does not know.
  refuse(plugin, "this program has gable as a static library, which takes no plugins: build it with GABLE_SHARED=ON");
#endif
  require_whole_file(plugin);
  void* library = dlopen(plugin.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    throw Error(ErrorCode::unavailable, reason != nullptr ? reason : plugin.path.string() + ": dlopen failed");
  }
  const auto entry = reinterpret_cast<const PluginEntry* (*)()>(dlsym(library, "gable_plugin"));
  if (entry == nullptr) refuse(plugin, "no entry gable_plugin: this is not a gable plugin");
  const PluginEntry* answer = entry();
  if (answer == nullptr || answer->version == nullptr) refuse(plugin, "its entry gable_plugin gives no version");
  if (std::string_view(answer->version) != GABLE_VERSION_STRING) {
    refuse(plugin, "built for gable " + std::string(answer->version) +
                       "; this is gable " GABLE_VERSION_STRING ": rebuild the plugin");
  }
  if (answer->abi != GABLE_PLUGIN_ABI) {
    refuse(plugin, "built with other headers of gable " GABLE_VERSION_STRING " (its ABI number is " +
                       (answer->abi < kMaxAbi ? std::to_string(answer->abi) : "missing") + ", this gable's is " +
                       std::to_string(GABLE_PLUGIN_ABI) + "): rebuild the plugin");
  }
  std::unique_ptr<Backend> backend(answer->make());
  if (backend == nullptr || backend->name() != plugin.backend) {
    refuse(plugin, backend == nullptr ? "it made no backend"
                                      : "it holds the backend '" + backend->name() + "', not '" + plugin.backend + "'");
  }
  return backend;
}

}  // namespace gable::loader
