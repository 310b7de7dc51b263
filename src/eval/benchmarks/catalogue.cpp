#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/yaml.h"
#include "eval/benchmarks/benchmark.h"
#include "eval/benchmarks/built_in_tasks.h"
#include "eval/benchmarks/task_names.h"

namespace danlu::eval {
namespace {

constexpr int kMaxTaskIncludes = 16;

/// `path` with the keys of the file that `include:` names below its own.
Json with_includes(Json file, const std::string& origin,
                   const std::function<Json(const std::string&, int)>& read, int depth) {
  if (!file.is_object() || !file.contains("include")) return file;
  if (!file["include"].is_string())
    throw UsageError(tr("{}: 'include' must be the name of a file", origin));
  if (depth >= kMaxTaskIncludes)
    throw UsageError(tr("{}: more than {} files include one another", origin, kMaxTaskIncludes));
  Json out = read(file["include"].get<std::string>(), depth + 1);
  if (!out.is_object()) throw UsageError(tr("{}: the included file holds no keys", origin));
  file.erase("include");
  for (const auto& [key, value] : file.items()) out[key] = value;
  return out;
}

Json read_task_file(const fs::path& path, int depth) {
  return with_includes(
      read_yaml_file(path, python_in_yaml_hint()), path.string(),
      [&](const std::string& name, int next) {
        return read_task_file((path.parent_path() / name).lexically_normal(), next);
      },
      depth);
}

Json read_built_in(const std::string& name, int depth) {
  for (const BuiltInTask& task : built_in_tasks()) {
    if (name != task.file) continue;
    return with_includes(parse_yaml(task.text, name), name, read_built_in, depth);
  }
  throw InternalError(tr("there is no built-in task file {}", name));
}

bool matches_wildcards(std::string_view name, std::string_view pattern) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    for (size_t i = 0; i <= name.size(); ++i) {
      if (matches_wildcards(name.substr(i), pattern.substr(1))) return true;
    }
    return false;
  }
  return !name.empty() && (pattern[0] == '?' || pattern[0] == name[0]) &&
         matches_wildcards(name.substr(1), pattern.substr(1));
}

/// Whether `word` stands in a text, nothing of a name before or after it.
bool holds_word(std::string_view text, std::string_view word) {
  const auto is_of_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
  };
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !is_of_name(text[at - 1])) && (end == text.size() || !is_of_name(text[end])))
      return true;
  }
  return false;
}

bool has_wildcards(std::string_view name) { return name.find_first_of("*?") != name.npos; }

/// All names in one style, and what was chosen of them.
class Chooser {
 public:
  Chooser(const std::vector<Benchmark>& benchmarks, const std::vector<UnusableFile>& unusable,
          const std::string& style, const std::string& asked_by)
      : benchmarks_(benchmarks), unusable_(unusable), style_(style), asked_by_(asked_by) {
    for (size_t i = 0; i < benchmarks_.size(); ++i) {
      const Benchmark& benchmark = benchmarks_[i];
      for (const std::string& name : names_of(benchmark)) owner_.emplace_back(name, i);
    }
  }

  void choose(const std::string& name) {
    if (has_wildcards(name)) return choose_matching(name);
    const Benchmark* benchmark = owner_of(name);
    if (!benchmark) refuse(name);
    add(*benchmark, name == benchmark->name || is_alias(*benchmark, name) ? "" : name);
    note_name(name);
  }

  Selection take() {
    for (const auto& task : leaves_) selection_.leaves.push_back(task);
    return std::move(selection_);
  }

 private:
  static bool is_alias(const Benchmark& benchmark, const std::string& name) {
    return std::find(benchmark.aliases.begin(), benchmark.aliases.end(), name) !=
           benchmark.aliases.end();
  }

  /// The names of groups and leaves, which are the same in all styles.
  static std::vector<std::string> names_of(const Benchmark& benchmark) {
    std::vector<std::string> names = {benchmark.name};
    names.insert(names.end(), benchmark.aliases.begin(), benchmark.aliases.end());
    for (const Group& group : benchmark.groups) names.push_back(group.name);
    const std::string style = benchmark.styles.empty() ? "" : benchmark.styles.front().name;
    for (const Task& task : leaves(benchmark, style)) names.push_back(task.name);
    return names;
  }

  const Benchmark* owner_of(const std::string& name) const {
    for (const auto& [known, index] : owner_) {
      if (known == name) return &benchmarks_[index];
    }
    return nullptr;
  }

  [[noreturn]] void refuse(const std::string& name) const {
    refuse_unusable(name);
    std::vector<std::string> known;
    for (const auto& [other, index] : owner_) known.push_back(other);
    const std::vector<std::string> likely = likely_names(name, known);
    throw UsageError(tr("there is no task '{}'", name),
                     likely.empty()
                         ? tr("danlu eval --tasks list shows all; --include_path adds your own")
                         : tr("did you mean '{}'?", fmt::format("{}", fmt::join(likely, "', '"))));
  }

  /// If a file that was passed over is about it.
  void refuse_unusable(const std::string& name) const {
    for (const UnusableFile& file : unusable_) {
      if (matches_wildcards(file.path.stem().string(), name) || holds_word(file.text, name))
        throw_as_kind(file.why);
    }
  }

  void choose_matching(const std::string& pattern) {
    bool found = false;
    for (const auto& [name, index] : owner_) {
      const Benchmark& benchmark = benchmarks_[index];
      if (!matches_wildcards(name, pattern) || is_alias(benchmark, name)) continue;
      const bool is_whole = name == benchmark.name && !has_group(benchmark, name);
      add(benchmark, is_whole ? "" : name);
      found = true;
    }
    if (!found) refuse(pattern);
    note_name(pattern);
  }

  static bool has_group(const Benchmark& benchmark, const std::string& name) {
    return std::any_of(benchmark.groups.begin(), benchmark.groups.end(),
                       [&](const Group& group) { return group.name == name; });
  }

  void note_name(const std::string& name) {
    if (!named_.insert(name).second) log::notice("{} is named twice; it is taken once", name);
  }

  /// `name` empty: the benchmark as a whole.
  void add(const Benchmark& benchmark, std::string name) {
    if (!benchmark.styles.empty()) (void)benchmark.style(style_, asked_by_);
    if (name.empty()) {
      if (!has_group(benchmark, benchmark.name)) {
        for (const Task& task : leaves(benchmark, style_)) add_leaf(task);
        return;
      }
      name = benchmark.name;
    }
    for (const Group& group : groups(benchmark, style_)) {
      if (group.name == name) return add_group(benchmark, group);
    }
    for (const Task& task : leaves(benchmark, style_)) {
      if (task.name == name) add_leaf(task);
    }
  }

  void add_group(const Benchmark& benchmark, const Group& group) {
    for (const Group& there : selection_.groups) {
      if (there.name == group.name) return;
    }
    if (!open_.insert(group.name).second)
      throw UsageError(tr("{}: the group {} holds itself", benchmark.origin, group.name));
    for (const std::string& member : group.members) {
      const Benchmark* owner = owner_of(member);
      if (!owner) {
        refuse_unusable(member);
        throw UsageError(tr("{}: the group {} names '{}', which there is not", benchmark.origin,
                            group.name, member));
      }
      add(*owner, member == owner->name && !has_group(*owner, member) ? "" : member);
    }
    open_.erase(group.name);
    selection_.groups.push_back(group);
  }

  void add_leaf(const Task& task) {
    for (const Task& there : leaves_) {
      if (there.name == task.name) return;
    }
    leaves_.push_back(task);
  }

  const std::vector<Benchmark>& benchmarks_;
  const std::vector<UnusableFile>& unusable_;
  const std::string &style_, &asked_by_;
  std::vector<std::pair<std::string, size_t>> owner_;
  std::vector<Task> leaves_;
  std::set<std::string> open_, named_;
  Selection selection_;
};

/// Names that a benchmark defines: its own, its groups' and leaves'.
std::set<std::string> defined_names(const Benchmark& benchmark) {
  std::set<std::string> names = {benchmark.name};
  names.insert(benchmark.aliases.begin(), benchmark.aliases.end());
  for (const Group& group : benchmark.groups) names.insert(group.name);
  if (benchmark.needle) {
    for (const Task& task : leaves(benchmark, "")) names.insert(task.name);
  }
  for (const Style& style : benchmark.styles) {
    std::set<std::string> own;
    for (const Task& task : leaves(benchmark, style.name)) {
      if (!own.insert(task.name).second)
        throw UsageError(tr("{}: two tasks have the name {}", benchmark.origin, task.name));
      names.insert(task.name);
    }
  }
  return names;
}

/// What a file below a directory defines; nothing, and why in `unusable`, if it cannot be used.
std::optional<Benchmark> readable(const fs::path& file, std::vector<UnusableFile>& unusable) {
  try {
    return parse_benchmark(read_task_file(file, 0), file.string());
  } catch (const Error& error) {
    UnusableFile& one = unusable.emplace_back(UnusableFile{file, "", error});
    try {
      one.text = read_file(file);
    } catch (const IoError&) {
      // `error` says that it cannot be read.
    }
    return std::nullopt;
  }
}

/// A directory of another program may hold hundreds that ask for its code.
void say_unusable(const std::vector<UnusableFile>& files, size_t from) {
  constexpr size_t kSaidOfFiles = 5;
  const size_t end = log::verbose() ? files.size() : std::min(files.size(), from + kSaidOfFiles);
  for (size_t i = from; i < end; ++i)
    log::warning("a task file is passed over: {}", files[i].why.what());
  if (end < files.size())
    log::warning("{} more task files are passed over (-v names them)", files.size() - end);
}

}  // namespace

Catalogue Catalogue::built_in() {
  Catalogue catalogue;
  for (const BuiltInTask& task : built_in_tasks())
    catalogue.add(parse_benchmark(read_built_in(task.file, 0), task.file));
  return catalogue;
}

void Catalogue::include(const std::filesystem::path& path) {
  std::error_code none;
  if (!fs::is_directory(path, none)) {
    add(parse_benchmark(read_task_file(path, 0), path.string()));
    return;
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    const std::string ending = entry.path().extension().string();
    if (entry.is_regular_file() && (ending == ".yaml" || ending == ".yml"))
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) throw UsageError(tr("{}: holds no *.yaml file", path.string()));
  const size_t before = unusable_.size();
  for (const fs::path& file : files) {
    if (std::optional<Benchmark> benchmark = readable(file, unusable_)) add(*std::move(benchmark));
  }
  say_unusable(unusable_, before);
}

void Catalogue::add(Benchmark benchmark) {
  const std::set<std::string> names = defined_names(benchmark);
  for (const std::string& name : names) {
    const auto known = origins_.find(name);
    if (known == origins_.end()) continue;
    throw UsageError(tr("the task '{}' is defined twice: in {} and in {}", name, known->second,
                        benchmark.origin),
                     tr("give one of them another name"));
  }
  for (const std::string& name : names) origins_[name] = benchmark.origin;
  benchmarks_.push_back(std::move(benchmark));
}

Selection Catalogue::select(const std::vector<std::string>& names, const std::string& style,
                            const std::string& asked_by) const {
  Chooser chooser(benchmarks_, unusable_, style, asked_by);
  for (const std::string& name : names) chooser.choose(name);
  return chooser.take();
}

const Benchmark& Catalogue::benchmark(const std::string& name) const {
  for (const Benchmark& benchmark : benchmarks_) {
    if (benchmark.name == name) return benchmark;
  }
  throw InternalError(tr("there is no benchmark {}", name));
}

}  // namespace danlu::eval
