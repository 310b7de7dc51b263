// eval/benchmarks/benchmark.h: a benchmark's file: where its rows lie, its subjects and groups, and
// how it is asked in each style.
#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "eval/data/data_tree.h"
#include "eval/needle/needle_plan.h"
#include "eval/task.h"

namespace danlu::eval {

/// One part of a benchmark with rows of its own.
struct Subject {
  std::string name;   ///< as files have it: "aqua-rat"
  std::string title;  ///< as prompts have it; the name with spaces where the file gives none
  std::string kind;   ///< which of a style's `kinds` it is asked as; empty: as the style says
};

/// How tasks of one benchmark are asked, by a style's name.
struct Style {
  std::string name;                        ///< "lm-eval"; empty: the benchmark has one way
  Task task;                               ///< what all subjects share; names still hold {subject}
  std::map<std::string, Task> kinds;       ///< the same of a kind of subjects
  bool weight_by_size = true;              ///< of its groups
  std::vector<std::string> group_metrics;  ///< what groups add up
};

struct Benchmark {
  std::string name, title;
  std::string origin;                   ///< its file, for messages
  std::string where_from;               ///< how to get the rows; empty: the file does not say
  std::string huggingface, modelscope;  ///< the data set on these hubs; empty: nothing to fetch
  std::vector<std::string> aliases;
  std::vector<Layout> layouts;
  /// NeedleBench: makes its rows itself, from texts. Unset: rows lie in files.
  std::optional<NeedlePlan> needle;
  /// Uniform field -> what it must be: "text", "integer", "boolean", "texts", "any"; a "?" after
  /// it lets it be null or absent.
  std::vector<std::pair<std::string, std::string>> row;
  std::vector<Subject> subjects;  ///< none: one leaf with the benchmark's name
  std::vector<Group> groups;      ///< `weight_by_size` is the style's, and `metrics` mostly
  std::vector<Style> styles;

  /// The style of that name. Errors: UsageError naming those that there are, and `asked_by`, the
  /// flag as typed or the file that asks for it.
  const Style& style(const std::string& style_name, const std::string& asked_by = "--style") const;
};

/// All leaves in one style, in the file's order. Errors: as Benchmark::style.
std::vector<Task> leaves(const Benchmark& benchmark, const std::string& style);
/// Its groups in that style, in the file's order.
std::vector<Group> groups(const Benchmark& benchmark, const std::string& style);

/// Reads what a file says (docs/formats/task_file.md), `include:` already followed.
/// Errors: UsageError "<origin>: …": a key nobody knows (with the nearest), of a wrong type or
/// missing, Python code, a template that does not parse, a subject or member that is not there.
Benchmark parse_benchmark(const Json& file, const std::string& origin);

/// The hint for tags such as `!function`.
std::string python_in_yaml_hint();

/// What was chosen on a command line: leaves, and the groups above them.
struct Selection {
  std::vector<Task> leaves;
  std::vector<Group> groups;  ///< members first
};

/// A task file below an included directory that cannot be used.
struct UnusableFile {
  std::filesystem::path path;
  std::string text;  ///< as far as it can be read
  Error why;
};

/// Every benchmark that is known: built in, or read from a user's files.
class Catalogue {
 public:
  /// The benchmarks that come with the program.
  static Catalogue built_in();
  /// Adds a file, or all *.yaml and *.yml below a directory, of which those that cannot be used are
  /// passed over with a warning. Errors: of a file that is named itself as parse_benchmark;
  /// UsageError of a name that another file defines, naming both.
  void include(const std::filesystem::path& path);
  /// Errors: UsageError of a name that another file defines.
  void add(Benchmark benchmark);

  /// Names: of benchmarks, groups and leaves in that style, their aliases, and patterns (mmlu_*).
  /// What is named twice is taken once, with a notice. `asked_by`: the flag that chose the style.
  /// Errors: UsageError of a name that there is not, with likely ones, of a style that a benchmark
  /// does not have; that of the file that was passed over, where the name stands in one.
  Selection select(const std::vector<std::string>& names, const std::string& style,
                   const std::string& asked_by = "--style") const;

  const std::vector<Benchmark>& benchmarks() const { return benchmarks_; }
  /// Errors: InternalError if there is none of that name.
  const Benchmark& benchmark(const std::string& name) const;

 private:
  std::vector<Benchmark> benchmarks_;
  std::map<std::string, std::string> origins_;  ///< of every name
  std::vector<UnusableFile> unusable_;
};

}  // namespace danlu::eval
