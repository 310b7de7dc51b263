#include "cli/engine/eval_exam.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/engine/eval_code.h"
#include "cli/engine/eval_mindspeed.h"
#include "cli/engine/eval_needle.h"
#include "eval/benchmarks/rows.h"
#include "eval/data/choose_layout.h"
#include "eval/data/named_files.h"
#include "eval/scoring/metrics.h"
#include "eval/scoring/scores.h"
#include "hub/missing.h"
#include "settings/options/system_message.h"

namespace danlu::cli {
namespace {

bool runs_code(const eval::Task& task) {
  return std::ranges::any_of(task.metrics, eval::runs_answers);
}

void require_allowed(const Options& options, const std::vector<eval::Task>& tasks) {
  if (options.get_bool("allow_code_execution") || options.get_bool("predict_only")) return;
  for (const eval::Task& task : tasks) {
    if (!runs_code(task)) continue;
    throw UsageError(
        tr("[{}] its answers are code, which is not executed unless you allow it", task.name),
        tr("--allow_code_execution runs it in a sandbox (docs/sandbox.md); --predict_only writes "
           "it down alone"));
  }
}

std::optional<std::string> system_of(const Options& options) {
  if (!options.has_value("system")) return std::nullopt;
  return settings::system_message_from(options);
}

bool applies_template(const Options& options) {
  if (options.get_bool_or("no_chat_template", false)) return false;
  if (options.has_value("apply_chat_template"))
    return options.get_string("apply_chat_template") == "true";
  return mindspeed_asks_by_template(options);
}

eval::PromptSettings prompts_of(const Options& options) {
  eval::PromptSettings prompts;
  if (options.has_value("num_fewshot")) prompts.num_fewshot = options.get_int("num_fewshot");
  if (options.has_value("limit")) prompts.limit = options.get_float("limit");
  prompts.seed = seeds_of(options).back();
  prompts.apply_chat_template = applies_template(options);
  if (options.has_value("fewshot_as_multiturn"))
    prompts.fewshot_as_multiturn = options.get_bool("fewshot_as_multiturn");
  prompts.system_instruction = system_of(options);
  prompts.language = options.get_string_or("eval_language", prompts.language);
  if (prompts.fewshot_as_multiturn.value_or(false) && !prompts.apply_chat_template) {
    throw UsageError(tr("[--fewshot_as_multiturn] there are no turns without a chat template"),
                     tr("--apply_chat_template --fewshot_as_multiturn"));
  }
  return prompts;
}

/// A user's own examples are those of every task that takes any.
void take_shots_file(const Options& options, std::vector<eval::Task>& tasks) {
  if (!options.has_value("fewshot_file")) return;
  const std::vector<Json> shots = eval::read_shots_file(options.get_string("fewshot_file"));
  for (eval::Task& task : tasks) {
    task.fixed_shots = shots;
    task.sampler = eval::FewShotSampler::kFirst;
  }
}

/// What is named for several benchmarks is opened, and unpacked, once.
using Trees = std::map<fs::path, eval::DataTree>;

/// Opens as eval::DataTree::open does; where an error has no better hint, it says where the data
/// come from.
const eval::DataTree& open_data(const Options& options, const eval::Benchmark& benchmark,
                                Trees& trees) {
  const fs::path folder = data_folder_of(options, benchmark);
  try {
    const auto known = trees.find(folder);
    if (known != trees.end()) return known->second;
    return trees.emplace(folder, eval::DataTree::open(folder)).first->second;
  } catch (const DataError& error) {
    if (!error.hint().empty() || benchmark.where_from.empty()) throw;
    throw DataError(error.what(), tr("the data of {}: {}", benchmark.name, benchmark.where_from));
  }
}

/// The first question alone, without the model's template: whether its fields are there and its
/// shots are enough is known before a model is loaded.
void make_first_item(const eval::Task& task, const eval::TaskRows& rows,
                     eval::PromptSettings settings) {
  settings.limit = 1;
  settings.apply_chat_template = false;
  settings.fewshot_as_multiturn = std::nullopt;
  (void)eval::make_items(task, rows.test, rows.shots, settings, nullptr);
}

void say_fixed_shots(const std::vector<eval::Task>& tasks, const eval::PromptSettings& prompts) {
  if (prompts.num_fewshot.value_or(0) == 0) return;
  for (const eval::Task& task : tasks) {
    if (!task.is_num_fewshot_fixed) continue;
    log::notice("{} is always asked without shots: --num_fewshot {} is ignored", task.name,
                *prompts.num_fewshot);
  }
}

/// Says it once for each benchmark, whose subjects are all asked in one way.
void say_plain_frames(const std::vector<eval::Task>& tasks, const eval::PromptSettings& prompts) {
  if (!prompts.apply_chat_template) return;
  std::set<std::string> said;
  for (const eval::Task& task : tasks) {
    if (task.chat_frame == eval::ChatFrame::kPlain && said.insert(task.benchmark).second)
      log::notice("{} is asked without a chat template: it is about whole texts", task.benchmark);
  }
}

/// Whether the task file says where its rows lie, and --data_dir need not.
bool names_own_files(const Options& options, const eval::Benchmark& benchmark,
                     const std::vector<std::string>& splits) {
  if (benchmark.layouts.size() != 1 || !benchmark.layouts[0].are_named) return false;
  if (benchmark.huggingface.empty() && !options.has_value("data_dir")) return true;
  return std::ranges::any_of(splits, [&](const std::string& split) {
    const auto paths = benchmark.layouts[0].files.find(split);
    return paths != benchmark.layouts[0].files.end() &&
           std::ranges::any_of(
               paths->second, [](const std::string& path) { return fs::path(path).is_absolute(); });
  });
}

/// A benchmark's files, and those of the subjects asked for that are not there.
struct FilesOfBenchmark {
  eval::NamedFiles named;
  std::vector<std::string> left_out = {}, in_part = {};
};

FilesOfBenchmark files_of(const Options& options, const eval::Benchmark& benchmark,
                          const eval::WantedData& wanted, Trees& trees) {
  if (names_own_files(options, benchmark, wanted.splits)) {
    std::vector<fs::path> folders;
    if (options.has_value("data_dir")) folders.emplace_back(options.get_string("data_dir"));
    folders.push_back(fs::current_path());
    folders.push_back(fs::absolute(benchmark.origin).parent_path());
    return {eval::find_named_files(benchmark.layouts[0], wanted.splits, folders, benchmark.origin)};
  }
  const eval::DataTree& tree = open_data(options, benchmark, trees);
  eval::ChosenLayout chosen = eval::choose_layout(tree, benchmark.layouts, wanted);
  return {{benchmark.layouts[chosen.index], chosen.tree},
          std::move(chosen.left_out),
          std::move(chosen.in_part)};
}

using ByBenchmark = std::map<std::string, std::vector<size_t>>;

/// The leaves below a group, however deep. REQUIRES: members stand before the groups of them.
std::set<std::string> leaves_below(const eval::Group& group, const std::vector<eval::Group>& all) {
  std::set<std::string> leaves;
  for (const std::string& member : group.members) {
    const auto inner =
        std::ranges::find_if(all, [&](const eval::Group& other) { return other.name == member; });
    if (inner == all.end()) {
      leaves.insert(member);
    } else {
      leaves.merge(leaves_below(*inner, all));
    }
  }
  return leaves;
}

/// Whether all of these tasks were named by groups: a subject that is named itself must be there.
bool are_named_by_groups(const std::vector<eval::Task>& tasks, const std::vector<size_t>& which,
                         const std::vector<eval::Group>& groups) {
  std::set<std::string> grouped;
  for (const eval::Group& group : groups) grouped.merge(leaves_below(group, groups));
  return std::ranges::all_of(which, [&](size_t i) { return grouped.contains(tasks[i].name); });
}

void say_left_out(const eval::Benchmark& benchmark, const FilesOfBenchmark& files,
                  size_t num_subjects) {
  const std::vector<std::string>& left_out = files.left_out;
  if (left_out.empty()) return;
  constexpr size_t kShown = 8;
  std::vector<std::string> shown(
      left_out.begin(),
      left_out.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, left_out.size())));
  const std::string more =
      left_out.size() > kShown ? tr(" and {} more", left_out.size() - kShown) : "";
  log::warning(
      "{}: {} of {} subjects are asked, the files of the others are not there: {}{} "
      "(--all_subjects makes that an error)",
      benchmark.name, num_subjects - left_out.size(), num_subjects,
      fmt::format("{}", fmt::join(shown, ", ")), more);
  if (!files.in_part.empty()) {
    const auto end =
        files.in_part.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, files.in_part.size()));
    log::warning("{}: {} of these have files, but not of every split: {}", benchmark.name,
                 files.in_part.size(),
                 fmt::format("{}", fmt::join(files.in_part.begin(), end, ", ")));
  }
}

/// Exams of the tasks of one benchmark, `which` of plan.exams; none for a subject that is left out.
void read_benchmark(const Options& options, const eval::Benchmark& benchmark,
                    std::vector<eval::Task>& tasks, const std::vector<size_t>& which, Trees& trees,
                    EvalPlan& plan) {
  eval::WantedData wanted{benchmark.name, {}, {}, benchmark.where_from};
  std::set<std::string> splits;
  for (const size_t i : which) {
    const eval::Task& task = tasks[i];
    if (!task.subject.empty()) wanted.subjects.push_back(task.subject);
    const auto needed = eval::needed_splits(task, eval::num_shots_of(task, plan.prompts));
    splits.insert(needed.begin(), needed.end());
  }
  wanted.splits.assign(splits.begin(), splits.end());
  wanted.takes_part =
      !options.get_bool("all_subjects") && are_named_by_groups(tasks, which, plan.groups);
  const FilesOfBenchmark files = files_of(options, benchmark, wanted, trees);
  say_left_out(benchmark, files, wanted.subjects.size());
  for (const size_t i : which) {
    if (std::ranges::find(files.left_out, tasks[i].subject) != files.left_out.end()) continue;
    eval::TaskRows rows = eval::read_rows(benchmark, tasks[i], files.named.layout, files.named.tree,
                                          eval::num_shots_of(tasks[i], plan.prompts));
    make_first_item(tasks[i], rows, plan.prompts);
    plan.exams[i] = runs_code(tasks[i])
                        ? make_code_exam(options, std::move(tasks[i]), std::move(rows), plan)
                        : std::make_unique<RowsExam>(std::move(tasks[i]), std::move(rows), plan);
  }
}

/// Takes out what is not asked, and says so of the groups.
void count_asked(EvalPlan& plan) {
  const bool is_whole = std::erase(plan.exams, nullptr) == 0;
  if (is_whole) return;
  for (eval::Group& group : plan.groups) {
    const std::set<std::string> leaves = leaves_below(group, plan.groups);
    const auto num_asked = std::ranges::count_if(
        plan.exams, [&](const auto& exam) { return leaves.contains(exam->task().name); });
    if (num_asked == std::ssize(leaves)) continue;
    group.num_asked = num_asked;
    group.num_leaves = std::ssize(leaves);
  }
}

}  // namespace

int64_t RowsExam::num_original() const { return std::ssize(rows_.test.rows); }

int64_t RowsExam::size() const { return eval::num_items(num_original(), plan_.prompts.limit); }

std::vector<eval::Item> RowsExam::items(int64_t from, const eval::Model& model) {
  // Examples are drawn row after row, so all are made at once; neighbours share their beginnings.
  if (from != 0) throw InternalError("[eval] the rows of a task are asked at once");
  return eval::make_items(task_, rows_.test, rows_.shots, plan_.prompts, &model);
}

void Exam::measure(const std::vector<eval::Item>&, const std::vector<std::vector<eval::Answer>>&,
                   std::vector<std::vector<eval::ItemScore>>&) {}

void Exam::write_pictures(const fs::path&, const std::string&) {}

fs::path data_folder_of(const Options& options, const eval::Benchmark& benchmark) {
  if (options.has_value("data_dir")) return options.get_string("data_dir");
  const hub::NamesOnHubs names{benchmark.huggingface, benchmark.modelscope};
  std::vector<std::string> looked;
  if (!names.huggingface.empty() || !names.modelscope.empty()) {
    if (const auto found = hub::find_or_fetch(hub::Kind::kDataset, names, looked)) {
      log::info("{}: {}", benchmark.name, found->string());
      return *found;
    }
  }
  const std::string fetch =
      looked.empty() ? "" : hub::how_to_fetch(hub::Kind::kDataset, names) + "; ";
  throw DataError(
      looked.empty() ? tr("[--data_dir] where is the data of {}?", benchmark.name)
                     : tr("[--data_dir] the data of {} is not named, and in no cache; looked in {}",
                          benchmark.name, fmt::format("{}", fmt::join(looked, ", "))),
      fetch + (benchmark.where_from.empty()
                   ? tr("--data_dir DIR")
                   : tr("--data_dir DIR; its data: {}", benchmark.where_from)));
}

eval::Catalogue catalogue_of(const Options& options) {
  eval::Catalogue catalogue = eval::Catalogue::built_in();
  for (const std::string& path : options.get_list("include_path")) catalogue.include(path);
  return catalogue;
}

std::string list_of_tasks(const eval::Catalogue& catalogue, const std::string& style) {
  std::string text;
  for (const eval::Benchmark& benchmark : catalogue.benchmarks()) {
    std::string styles;
    for (const eval::Style& own : benchmark.styles)
      styles += (styles.empty() ? "" : ", ") + own.name;
    text += fmt::format("{:<20} {}{}\n", benchmark.name, benchmark.title,
                        styles.empty() ? "" : " [" + styles + "]");
    std::vector<std::string> names;
    for (const eval::Group& group : benchmark.groups) names.push_back(group.name);
    const bool has_style = std::ranges::any_of(benchmark.styles, [&](const eval::Style& own) {
      return own.name.empty() || own.name == style;
    });
    if (has_style || benchmark.needle) {
      for (const eval::Task& task : eval::leaves(benchmark, style)) names.push_back(task.name);
    }
    std::erase(names, benchmark.name);
    for (const std::string& name : names) text += "  " + name + "\n";
  }
  return text;
}

std::unique_ptr<EvalPlan> make_eval_plan(const Options& options) {
  const eval::Catalogue catalogue = catalogue_of(options);
  const std::vector<std::string> names = options.get_list("tasks");
  if (names.empty()) {
    throw UsageError(tr("[--tasks] which benchmarks? none is named"),
                     tr("--tasks mmlu,gsm8k; --tasks list shows all"));
  }
  eval::Selection selection =
      catalogue.select(names, options.get_string("style"), options.given_as("style"));
  require_allowed(options, selection.leaves);
  auto plan = std::make_unique<EvalPlan>(
      EvalPlan{.prompts = prompts_of(options), .generation = GenerationOverrides(options)});
  plan->groups = std::move(selection.groups);
  const std::vector<eval::Task>& leaves = selection.leaves;
  say_fixed_shots(leaves, plan->prompts);
  Trees trees;
  ByBenchmark by_benchmark;
  for (size_t i = 0; i < leaves.size(); ++i) {
    eval::check_scoring(leaves[i]);
    by_benchmark[leaves[i].benchmark].push_back(i);
  }
  for (eval::Task& task : selection.leaves) plan->generation.apply(task.generation);
  take_shots_file(options, selection.leaves);
  take_instruction_template(options, selection.leaves);
  say_language(options, selection.leaves);
  say_plain_frames(selection.leaves, plan->prompts);
  if (plan->prompts.apply_chat_template) say_template_differences(options, selection.leaves);
  say_backend_differences(options, selection.leaves);
  plan->exams.resize(leaves.size());
  for (const auto& [name, which] : by_benchmark) {
    const eval::Benchmark& benchmark = catalogue.benchmark(name);
    if (!benchmark.needle) {
      read_benchmark(options, benchmark, selection.leaves, which, trees, *plan);
    } else {
      for (const size_t i : which)
        plan->exams[i] =
            make_needle_exam(options, benchmark, std::move(selection.leaves[i]), *plan);
    }
  }
  count_asked(*plan);
  if (options.get_bool("predict_only")) {
    for (const auto& exam : plan->exams) exam->leave_unscored();
  }
  return plan;
}

}  // namespace danlu::cli
