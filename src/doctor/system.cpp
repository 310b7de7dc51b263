#include "doctor/system.h"

#include <fmt/format.h>
#include <sys/timex.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <ctime>
#include <fstream>
#include <sstream>

#include "base/own_library.h"

namespace danlu::doctor {
namespace {

/// Folders of `list`, which ':' divides; empty ones, which mean the working directory, are left
/// out.
void append_paths(std::vector<fs::path>& paths, const std::string& list) {
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ':');) {
    if (!part.empty()) paths.emplace_back(part);
  }
}

/// Where interpreters below `prefix` keep what was installed for them.
void append_packages(std::vector<fs::path>& packages, const fs::path& prefix) {
  for (const char* library : {"lib", "lib64"}) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(prefix / library, none)) {
      if (!entry.path().filename().string().starts_with("python3")) continue;
      packages.push_back(entry.path() / "site-packages");
      packages.push_back(entry.path() / "dist-packages");
    }
  }
}

}  // namespace

SystemRoots SystemRoots::of_this_machine() {
  SystemRoots roots;
  for (char** line = environ; *line; ++line) {
    const std::string text = *line;
    const size_t end = text.find('=');
    if (end != text.npos) roots.environment.try_emplace(text.substr(0, end), text.substr(end + 1));
  }
  append_paths(roots.programs, roots.variable("PATH"));
  // Drivers put their tools there, and a container's PATH need not have it.
  for (const char* folder : {"/usr/local/sbin", "/usr/local/bin", "/usr/bin"})
    roots.programs.emplace_back(folder);
  append_paths(roots.packages, roots.variable("PYTHONPATH"));
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const std::string prefix = roots.variable(name); !prefix.empty())
      append_packages(roots.packages, prefix);
  }
  append_packages(roots.packages, "/usr/local");
  append_packages(roots.packages, "/usr");
  roots.engine = own_library("libdanlu_engine.so");
  roots.now_s = std::time(nullptr);
  timex clock{};
  if (::adjtimex(&clock) >= 0) roots.clock_is_synchronised = !(clock.status & STA_UNSYNC);
  return roots;
}

SystemRoots SystemRoots::below(const fs::path& folder) {
  SystemRoots roots;
  roots.proc = folder / "proc";
  roots.sys = folder / "sys";
  roots.dev = folder / "dev";
  roots.etc = folder / "etc";
  roots.run = folder / "run";
  roots.ascend = folder / "Ascend";
  roots.programs = {folder / "bin"};
  roots.packages = {folder / "packages"};
  roots.asks_network = false;
  roots.now_s = std::time(nullptr);
  return roots;
}

std::string SystemRoots::variable(const std::string& name) const {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

SystemFiles SystemRoots::control_group() const {
  return {
      .groups = sys / "fs/cgroup", .membership = proc / "self/cgroup", .memory = proc / "meminfo"};
}

std::optional<std::string> text_in(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return std::nullopt;
  // What the system says is small; a file of another kind under that name is not read whole.
  constexpr size_t kMost = size_t{4} << 20;
  std::string text;
  std::array<char, 1 << 16> block;
  while (text.size() < kMost && (in.read(block.data(), block.size()) || in.gcount() > 0))
    text.append(block.data(), static_cast<size_t>(in.gcount()));
  return text;
}

std::string trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == text.npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(kBlank) - begin + 1));
}

std::optional<std::string> line_in(const fs::path& file) {
  const auto text = text_in(file);
  if (!text) return std::nullopt;
  return trimmed(std::string_view(*text).substr(0, text->find('\n')));
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::optional<std::string> value_of(std::string_view text, std::string_view key) {
  for (const std::string& line : lines_of(text)) {
    const std::string bare = trimmed(line);
    if (!bare.starts_with(key)) continue;
    const std::string rest = trimmed(std::string_view(bare).substr(key.size()));
    if (rest.starts_with(':') || rest.starts_with('=')) return trimmed(rest.substr(1));
  }
  return std::nullopt;
}

std::optional<int64_t> number_of(std::string_view text) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return number;
}

std::optional<std::vector<int>> processors_of(std::string_view list) {
  constexpr int64_t kMost = 65535;
  std::vector<int> processors;
  std::istringstream parts{trimmed(list)};
  for (std::string part; std::getline(parts, part, ',');) {
    part = trimmed(part);
    const size_t dash = part.find('-');
    const auto first = number_of(std::string_view(part).substr(0, dash));
    const auto last =
        dash == part.npos ? first : number_of(std::string_view(part).substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last > kMost) return std::nullopt;
    for (int64_t i = *first; i <= *last; ++i) processors.push_back(static_cast<int>(i));
  }
  return processors;
}

std::string processor_list(const std::vector<int>& processors) {
  std::string text;
  for (size_t i = 0; i < processors.size();) {
    size_t end = i + 1;
    while (end < processors.size() && processors[end] == processors[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", processors[i]);
    if (end - i > 1) text += fmt::format("-{}", processors[end - 1]);
    i = end;
  }
  return text;
}

std::vector<int> allowed_processors(const SystemRoots& roots) {
  const auto status = text_in(roots.proc / "self/status");
  if (!status) return {};
  const auto list = value_of(*status, "Cpus_allowed_list");
  return list ? processors_of(*list).value_or(std::vector<int>()) : std::vector<int>();
}

std::string binary_size(uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double size = static_cast<double>(bytes);
  size_t unit = 0;
  while (size >= 1024 && unit + 1 < kUnits.size()) {
    size /= 1024;
    ++unit;
  }
  const bool is_whole = size >= 100 || size == static_cast<double>(static_cast<uint64_t>(size));
  return is_whole ? fmt::format("{:.0f} {}", size, kUnits[unit])
                  : fmt::format("{:.1f} {}", size, kUnits[unit]);
}

}  // namespace danlu::doctor
