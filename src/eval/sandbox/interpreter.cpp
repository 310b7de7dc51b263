#include "eval/sandbox/interpreter.h"

#include <elf.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "eval/sandbox/child_process.h"

namespace danlu::eval {
namespace {

constexpr int64_t kPatienceMs = 60'000;
constexpr size_t kMaxAnswerBytes = 4 << 20;

constexpr const char* kQuestion = R"py(
import sys, os, json
own = os.path.realpath(getattr(sys, '_base_executable', None) or sys.executable)
paths = [p for p in sys.path if os.path.isabs(p) and os.path.exists(p)]
modules = [os.path.join(p, f) for p in paths if os.path.isdir(p)
           for f in sorted(os.listdir(p)) if f.endswith('.so')]
print('\n' + json.dumps({'executable': own, 'paths': paths, 'modules': modules,
                         'version': '.'.join(map(str, sys.version_info[:3])),
                         'works': sys.version_info >= (3, 7)}))
)py";

[[noreturn]] void throw_no_interpreter(const std::string& python, const std::string& why) {
  throw UsageError(
      tr("--python {}: not a Python 3.7 or newer that can be started: {}", python, why),
      tr("model-written code is executed by it: install python3, or name another "
         "interpreter"));
}

Json asked_of_interpreter(const std::string& python) {
  const ChildResult result =
      ask_child({python, "-I", "-S", "-c", kQuestion}, "", kPatienceMs, kMaxAnswerBytes);
  if (result.start_error != 0)
    throw_no_interpreter(python, std::string(translated(std::strerror(result.start_error))));
  // What else is said, by a script that starts the interpreter for example, comes before.
  const size_t line = result.output.rfind("\n{");
  if (result.status != 0 || line == result.output.npos) {
    const std::string& text = result.output;
    throw_no_interpreter(python, text.substr(0, std::min<size_t>(text.find('\n'), 200)));
  }
  Json answer = parse_json(result.output.substr(line + 1), python);
  if (!json_get<bool>(answer, "works").value_or(false))
    throw_no_interpreter(python, json_get<std::string>(answer, "version").value_or("?"));
  return answer;
}

/// What the ELF file names as its dynamic loader; empty if nothing.
std::string loader_of(const std::string& executable) {
  const MappedFile file{fs::path(executable)};
  const std::string_view text = file.text();
  Elf64_Ehdr header;
  if (text.size() < sizeof header) return {};
  std::memcpy(&header, text.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
    return {};
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part;
    const uint64_t at = header.e_phoff + i * sizeof part;
    if (at > text.size() || text.size() - at < sizeof part) return {};
    std::memcpy(&part, text.data() + at, sizeof part);
    if (part.p_type != PT_INTERP || part.p_offset > text.size()) continue;
    return std::string(text.substr(part.p_offset, part.p_filesz).data());
  }
  return {};
}

/// "	libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x…)" and "	/lib64/ld-linux-x86-64.so.2
/// (0x…)"
std::string path_in(const std::string& line) {
  const size_t arrow = line.find("=> ");
  const size_t begin = arrow == line.npos ? line.find_first_not_of(" \t") : arrow + 3;
  if (begin == line.npos || line[begin] != '/') return {};
  return line.substr(begin, line.rfind(" (") - begin);
}

void add_once(std::vector<std::string>& list, const std::string& value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

/// The shared libraries that `files` are loaded with. Those that are missing on this system are
/// passed over: a module of the standard library that nobody can import.
std::vector<std::string> libraries_of(const std::vector<std::string>& files) {
  const std::string loader = loader_of(files.front());
  if (loader.empty()) return {};
  std::vector<std::string> libraries = {loader};
  for (const std::string& file : files) {
    const ChildResult result =
        ask_child({loader, "--list", file}, "", kPatienceMs, kMaxAnswerBytes);
    std::istringstream lines(result.output);
    for (std::string line; std::getline(lines, line);) {
      const std::string path = path_in(line);
      if (!path.empty() && fs::exists(path)) add_once(libraries, path);
    }
  }
  return libraries;
}

bool lies_below(const std::string& path, const std::string& folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

std::vector<std::string> without_nested(std::vector<std::string> paths) {
  std::vector<std::string> kept;
  // Shorter ones first: what holds another comes before it.
  std::stable_sort(paths.begin(), paths.end(),
                   [](const auto& a, const auto& b) { return a.size() < b.size(); });
  for (const std::string& path : paths) {
    if (std::none_of(kept.begin(), kept.end(),
                     [&](const auto& other) { return lies_below(path, other); }))
      add_once(kept, path);
  }
  return kept;
}

}  // namespace

Interpreter find_interpreter(const std::string& python) {
  const Json answer = asked_of_interpreter(python);
  Interpreter found;
  found.executable = json_get<std::string>(answer, "executable").value_or("");
  found.version = json_get<std::string>(answer, "version").value_or("");
  const auto paths = answer.at("paths").get<std::vector<std::string>>();
  auto binaries = answer.at("modules").get<std::vector<std::string>>();
  binaries.insert(binaries.begin(), found.executable);
  const std::vector<std::string> libraries = libraries_of(binaries);
  std::vector<std::string> folders;
  for (const std::string& library : libraries) {
    add_once(folders, fs::path(library).parent_path().string());
  }
  for (const std::string& folder : folders)
    found.library_path += (found.library_path.empty() ? "" : ":") + folder;
  std::vector<std::string> files = libraries;
  files.push_back(found.executable);
  files.insert(files.end(), paths.begin(), paths.end());
  found.files = without_nested(std::move(files));
  for (const std::string& path : paths) {
    for (const char* name : {"site-packages", "dist-packages"}) {
      if (fs::is_directory(fs::path(path) / name))
        add_once(found.foreign, (fs::path(path) / name).string());
    }
  }
  return found;
}

}  // namespace danlu::eval
