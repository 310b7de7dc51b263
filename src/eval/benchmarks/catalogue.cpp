#include <algorithm>
#include <functional>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "base/yaml.h"
#include "eval/benchmarks/benchmark.h"
#include "eval/benchmarks/built_in_tasks.h"

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

bool has_wildcards(std::string_view name) { return name.find_first_of("*?") != name.npos; }

/// All names in one style, and what was chosen of them.
class Chooser {
 public:
  Chooser(const std::vector<Benchmark>& benchmarks, const std::string& style)
      : benchmarks_(benchmarks), style_(style) {
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

  /// Of groups and leaves, whatever the style: names are the same in all.
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
    std::vector<std::string> known;
    for (const auto& [other, index] : owner_) known.push_back(other);
    const std::optional<std::string> nearest = nearest_name(name, known);
    throw UsageError(tr("there is no task '{}'", name),
                     nearest
                         ? tr("did you mean '{}'?", *nearest)
                         : tr("danlu eval --tasks list shows all; --include_path adds your own"));
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
    if (std::find(selection_.names.begin(), selection_.names.end(), name) !=
        selection_.names.end()) {
      log::notice("{} is named twice; it is taken once", name);
      return;
    }
    selection_.names.push_back(name);
  }

  /// `name` empty: the benchmark as a whole.
  void add(const Benchmark& benchmark, std::string name) {
    if (!benchmark.styles.empty()) (void)benchmark.style(style_);
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
  const std::string& style_;
  std::vector<std::pair<std::string, size_t>> owner_;
  std::vector<Task> leaves_;
  std::set<std::string> open_;
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
  for (const fs::path& file : files) include(file);
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

Selection Catalogue::select(const std::vector<std::string>& names, const std::string& style) const {
  Chooser chooser(benchmarks_, style);
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
