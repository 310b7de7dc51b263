#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/rank_place.h"
#include "cli/engine/engine.h"
#include "cli/engine/eval_arguments.h"
#include "cli/engine/eval_exam.h"
#include "cli/engine/eval_mindspeed.h"
#include "cli/engine/eval_model.h"
#include "cli/engine/infer_output.h"
#include "device/select.h"
#include "eval/results/results.h"
#include "eval/results/samples.h"
#include "eval/run/ask.h"
#include "eval/run/journal.h"
#include "parallel/agree.h"
#include "parallel/ranks.h"
#include "settings/options/system_message.h"

namespace danlu::cli {
namespace {

/// "auto", "auto:4" or a number; 0: auto.
int64_t batch_size_of(const Options& options) {
  const std::string text = options.get_string("batch_size");
  if (text == "auto" || text.starts_with("auto:")) return 0;
  char* end = nullptr;
  const long long size = std::strtoll(text.c_str(), &end, 10);
  if (*end != '\0' || size < 1 || size > 65536) {
    throw UsageError(tr("[{}] must be auto or a number from 1 to 65536, got '{}'",
                        options.given_as("batch_size"), text));
  }
  return size;
}

EvalModelSettings model_settings(const Options& options, const ModelArguments& arguments,
                                 const EvalPlan& plan, const InferenceModel& loaded) {
  const arch::ModelConfig& config = loaded.model->config();
  EvalModelSettings settings;
  const int64_t most = options.get_int_or("max_batch_size", 0);
  settings.likelihood.batch_size = batch_size_of(options);
  if (settings.likelihood.batch_size == 0) settings.likelihood.batch_size = most;
  settings.generation_batch = settings.likelihood.batch_size;
  if (options.get_bool("deterministic")) {
    settings.likelihood.batch_size = settings.generation_batch = 1;
    settings.likelihood.share_prefixes = false;
  }
  settings.seed = static_cast<uint64_t>(seeds_of(options).at(2));
  settings.media_folder = options.get_string_or("data_dir", "");
  settings.encoder.window = config.max_positions;
  if (arguments.max_length) {
    if (config.max_positions > 0 && *arguments.max_length > config.max_positions) {
      throw UsageError(tr("[--model_args max_length] {} is more than the model's window of {}",
                          *arguments.max_length, config.max_positions));
    }
    settings.encoder.window = *arguments.max_length;
  }
  settings.encoder.add_special = arguments.add_bos_token;
  if (arguments.prefix_token_id) {
    const auto num_ids = static_cast<int64_t>(loaded.tokenizer->size());
    if (*arguments.prefix_token_id >= num_ids) {
      throw UsageError(tr("[--model_args prefix_token_id] must be below {}, got {}", num_ids,
                          *arguments.prefix_token_id));
    }
    settings.encoder.prefix_id = static_cast<text::TokenId>(*arguments.prefix_token_id);
  }
  settings.applies_template = plan.prompts.apply_chat_template;
  settings.think_end = arguments.think_end;
  settings.think_end_id = arguments.think_end_id;
  return settings;
}

/// The last part of the model's name that says which it is.
std::string short_name(const ModelLocation& where) {
  const fs::path given = where.adapter.empty() ? where.model : where.adapter;
  const fs::path named = fs::absolute(given).lexically_normal();
  const fs::path whole = named.has_filename() ? named : named.parent_path();
  std::string name = whole.filename().string();
  // A snapshot of a hub's cache is called by its commit.
  if (whole.parent_path().filename() == "snapshots")
    name = whole.parent_path().parent_path().filename().string();
  if (name.starts_with("checkpoint-")) name = whole.parent_path().filename().string() + "-" + name;
  return name;
}

fs::path results_directory(const Options& options, const ModelLocation& where) {
  if (!options.has_value("output_path")) return fs::path("eval_result") / short_name(where);
  const fs::path path = options.get_string("output_path");
  // lm-eval takes the name of a results file too.
  return path.extension() == ".json" ? fs::absolute(path).parent_path() : path;
}

/// Before hours of work: whether the results can be written at all. It goes again with what is
/// returned if nothing was.
std::unique_ptr<MadeDirectory> made_output(const fs::path& directory) {
  try {
    return std::make_unique<MadeDirectory>(directory);
  } catch (const IoError& error) {
    throw IoError(tr("[--output_path] {}", error.what()),
                  tr("name another folder with --output_path"));
  }
}

/// What rank 0 makes of the answers to one task.
class LeafReport {
 public:
  LeafReport(Exam& exam, const fs::path& directory, const std::string& time_id, bool log_samples)
      : exam_(exam), directory_(directory), time_id_(time_id) {
    if (log_samples) file_.emplace(directory, exam.task().name, time_id);
  }

  void add(const std::vector<eval::Item>& items,
           const std::vector<std::vector<eval::Answer>>& answers) {
    std::vector<std::vector<eval::ItemScore>> scores;
    for (size_t i = 0; i < items.size(); ++i) {
      num_cut_ += std::ranges::any_of(
          answers[i], [](const eval::Answer& answer) { return answer.num_cut_tokens > 0; });
      scores.push_back(eval::score_item(exam_.task(), items[i], answers[i]));
    }
    exam_.measure(items, answers, scores);
    for (size_t i = 0; i < items.size(); ++i) {
      for (const eval::ItemScore& score : scores[i]) {
        const Json record = eval::sample_record(exam_.task(), items[i], answers[i], score);
        hash_.add(record);
        if (file_) file_->add(record);
      }
    }
    std::move(scores.begin(), scores.end(), std::back_inserter(all_scores_));
  }

  eval::TaskResult finish() {
    if (file_) file_->commit();
    exam_.write_pictures(directory_, time_id_);
    eval::TaskResult result = eval::aggregate(exam_.task(), all_scores_);
    result.num_original = exam_.num_original();
    result.num_cut_contexts = num_cut_;
    result.hash = hash_.hex();
    return result;
  }

 private:
  Exam& exam_;
  fs::path directory_;
  std::string time_id_;
  std::optional<eval::SamplesFile> file_;
  eval::TaskHash hash_;
  std::vector<std::vector<eval::ItemScore>> all_scores_;
  int64_t num_cut_ = 0;
};

std::string joined_text(const std::vector<std::string>& elements) {
  return fmt::format("{}", fmt::join(elements, ","));
}

/// The name that torch's Python writes, and lm-eval with it.
std::string name_of_scalar(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return "torch.float64";
    case at::kFloat:
      return "torch.float32";
    case at::kBFloat16:
      return "torch.bfloat16";
    case at::kHalf:
      return "torch.float16";
    default:
      throw InternalError("[eval] a model of an unknown type");
  }
}

Json config_of(const Options& options, const EvalPlan& plan, const InferenceModel& loaded) {
  Json config = {{"model", "danlu"},
                 {"model_args", joined_text(options.get_list("model_args"))},
                 {"model_source", loaded.model_directory.string()},
                 {"adapter", loaded.adapter_directory.string()},
                 {"model_num_parameters", arch::parameter_count(loaded.model->config())},
                 {"model_dtype", name_of_scalar(loaded.model->dtype())},
                 {"quantize", loaded.quantize},
                 {"batch_size", options.get_string("batch_size")},
                 {"device", device::name_of(loaded.model->device())},
                 {"deterministic", options.get_bool("deterministic")},
                 {"limit", plan.prompts.limit ? Json(*plan.prompts.limit) : Json()},
                 {"gen_kwargs", plan.generation.text()}};
  const std::vector<int64_t> seeds = seeds_of(options);
  const char* const names[] = {"random_seed", "numpy_seed", "torch_seed", "fewshot_seed"};
  for (size_t i = 0; i < std::size(names); ++i) config[names[i]] = seeds.at(i);
  return config;
}

Json settings_of_ranks(const Options& options) {
  Json settings = options.to_json();
  for (const OptionScope scope : {OptionScope::kMachine, OptionScope::kStart}) {
    for (const std::string& name : options.names(scope)) settings.erase(name);
  }
  return settings;
}

/// Examines; what it holds is of one rank.
class Evaluator {
 public:
  Evaluator(const Options& options, EvalPlan& plan, EvalModel& model, const InferenceModel& loaded,
            const fs::path& directory, const parallel::Ranks& ranks)
      : options_(options),
        plan_(plan),
        model_(model),
        loaded_(loaded),
        directory_(directory),
        ranks_(ranks),
        start_s_(steady_now_s()),
        start_time_s_(std::time(nullptr)) {}

  void run() {
    const std::unique_ptr<eval::Journal> journal = open_journal();
    if (journal->size() > 0)
      log::info("{} answers were there from a run that was broken off", journal->size());
    try {
      examine(*journal);
    } catch (...) {
      tidy_if_empty(*journal);
      throw;
    }
    ranks_.wait_for_all();
    tidy(*journal);
  }

 private:
  /// Whatever goes wrong here, what went wrong before is what is said.
  void tidy_if_empty(eval::Journal& journal) const {
    try {
      if (journal.size() == 0) tidy(journal);
    } catch (const Error&) {
    }
  }

  void examine(eval::Journal& journal) {
    eval::Evaluation evaluation;
    time_id_ = ranks_.from_first(ranks_.is_first() ? kept_time() : "");
    int64_t num_items = 0;
    for (const auto& exam : plan_.exams) num_items += exam->size();
    eval::Asker asker(model_, &journal, division(), num_items);
    for (const auto& exam : plan_.exams) {
      evaluation.results.push_back(ask(*exam, asker));
      evaluation.tasks.push_back(reported(exam->task()));
    }
    asker.finish();
    const auto of_all = [&](int64_t number) { return parallel::sum_of(ranks_.all(), number); };
    tokens_.given_tokens = of_all(model_.counts().likelihood.given_tokens);
    tokens_.computed_tokens = of_all(model_.counts().likelihood.computed_tokens);
    if (ranks_.is_first()) report(evaluation);
  }

  /// Takes away what is kept of a run that is not done: it is, or has no answer yet.
  void tidy(eval::Journal& journal) const {
    journal.remove();
    std::error_code ignored;  // not empty: another rank's, or somebody else's
    if (ranks_.is_first()) fs::remove(time_file(), ignored);
    fs::remove(unfinished(), ignored);
  }

  fs::path unfinished() const { return directory_ / "unfinished"; }
  fs::path time_file() const { return unfinished() / "time.json"; }

  /// What tasks that are done left in unfinished().
  std::vector<fs::path> finished_files() const {
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(unfinished())) {
      const std::string name = entry.path().filename();
      if (name.starts_with("samples_") || name.starts_with("heat_map_") ||
          name.starts_with("results_"))
        files.push_back(entry.path());
    }
    return files;
  }

  /// All files of the run get their place when the last of them is written: samples without their
  /// results could be taken for those of another run. The results come last.
  fs::path publish(const fs::path& results) const {
    for (const fs::path& file : finished_files()) {
      if (file != results) fs::rename(file, directory_ / file.filename());
    }
    sync_path(directory_);
    const fs::path path = directory_ / results.filename();
    fs::rename(results, path);
    sync_path(directory_);  // before the answers go
    return path;
  }

  /// What the files of this run are called by. A run that goes on has the time of the one that was
  /// broken off: what that one had written is written again, and not left over beside it.
  std::string kept_time() const {
    const Json settings = settings_of_ranks(options_);
    if (options_.get_bool("resume") && fs::exists(time_file())) {
      const std::optional<Json> kept = try_parse_json(read_file(time_file()));
      if (kept && kept->is_object() && kept->value("settings", Json()) == settings &&
          kept->contains("time") && (*kept)["time"].is_string())
        return (*kept)["time"];
    }
    for (const fs::path& file : finished_files()) fs::remove(file);  // of another command
    std::string time = eval::make_time_id(std::chrono::system_clock::now());
    write_json_file(time_file(), {{"settings", settings}, {"time", time}});
    return time;
  }

  std::unique_ptr<eval::Journal> open_journal() const {
    const fs::path path = unfinished() / "answers.jsonl";
    auto journal = std::make_unique<eval::Journal>(
        path, model_.identity(),
        eval::JournalRank{static_cast<int>(ranks_.rank()), static_cast<int>(ranks_.size()),
                          options_.get_bool("resume")},
        [this](const std::string& image) { return model_.picture_content(image); });
    ranks_.wait_for_all();  // nobody adds before all have read
    return journal;
  }

  eval::Division division() const {
    eval::Division division{.rank = ranks_.rank(), .size = ranks_.size()};
    division.everybodys = [this](const std::string& text) {
      // Some may have more to do than others: waited for without a limit.
      for (int64_t rank = 0; rank < ranks_.size(); ++rank) ranks_.wait_for(rank);
      return parallel::texts_of_all(ranks_.all(), text);
    };
    return division;
  }

  /// The shots that were really given.
  eval::Task reported(eval::Task task) const {
    task.num_fewshot = eval::num_shots_of(task, plan_.prompts);
    return task;
  }

  eval::TaskResult ask(Exam& exam, eval::Asker& asker) {
    std::optional<LeafReport> report;
    if (ranks_.is_first()) {
      report.emplace(exam, unfinished(), time_id_, options_.get_bool("log_samples"));
    }
    const bool whole = eval::wants_whole(exam.task());
    for (int64_t from = 0; from < exam.size();) {
      std::vector<eval::Item> items = exam.items(from, model_);
      for (eval::Item& item : items) {
        for (eval::Call& call : item.calls) call.wants_whole = whole;
      }
      if (from == 0 && ranks_.is_first() && options_.get_bool("write_out"))
        show_first(exam.task(), items.front());
      from += std::ssize(items);
      const std::vector<std::vector<eval::Answer>> answers = ask_about(exam.task(), items, asker);
      if (report) report->add(items, answers);
      // What is timed is not disturbed by those who would go on.
      if (exam.wants_quiet()) ranks_.wait_for(0);
    }
    return report ? report->finish() : eval::TaskResult{};
  }

  static std::vector<std::vector<eval::Answer>> ask_about(const eval::Task& task,
                                                          const std::vector<eval::Item>& items,
                                                          eval::Asker& asker) {
    try {
      return asker.ask(items);
    } catch (const NumericError& error) {
      throw NumericError(fmt::format("{}: {}", task.name, error.what()), error.hint());
    }
  }

  static void show_first(const eval::Task& task, const eval::Item& item) {
    print_text(fmt::format("--- {} ---\n", task.name));
    for (const eval::Call& call : item.calls) {
      print_text(call.context + "[" + call.continuation + "]\n");
      if (call.kind == eval::CallKind::kLikelihood) continue;
      break;
    }
  }

  void report(eval::Evaluation& evaluation) {
    const bool is_scored = !options_.get_bool("predict_only");
    if (is_scored) add_groups(evaluation);
    eval::RunInfo& run = evaluation.run;
    run.time_id = time_id_;
    run.model_name = options_.get_string_or(
        "model", options_.get_string_or("adapters", loaded_.model_directory.string()));
    run.style = options_.get_string("style");
    run.version = DANLU_VERSION;
    run.commit = eval::kSourceCommit;
    run.config = config_of(options_, plan_, loaded_);
    run.system_instruction = plan_.prompts.system_instruction.value_or("");
    if (plan_.prompts.apply_chat_template && loaded_.encoder)
      run.chat_template = loaded_.encoder->description();
    run.fewshot_as_multiturn = std::ranges::any_of(plan_.exams, [&](const auto& exam) {
      return eval::asks_in_turns(exam->task(), plan_.prompts);
    });
    run.start_time_s = start_time_s_;
    run.duration_s = steady_now_s() - start_s_;
    const fs::path path = publish(eval::write_results(unfinished(), evaluation));
    if (is_scored) print_text(eval::results_table(evaluation));
    warn_of_doubts(evaluation);
    log::info("results: {}", path.string());
    log_speed(evaluation);
  }

  void add_groups(eval::Evaluation& evaluation) const {
    // Members stand before the groups that hold them; results want them the other way round.
    std::vector<eval::TaskResult> made = evaluation.results;
    for (const eval::Group& group : plan_.groups) {
      eval::Group asked = group;  // without members of whose subjects no file is there
      asked.members.clear();
      asked.weights.clear();
      std::vector<eval::TaskResult> members;
      for (size_t i = 0; i < group.members.size(); ++i) {
        const auto found = std::ranges::find_if(
            made, [&](const auto& result) { return result.name == group.members[i]; });
        if (found == made.end()) continue;
        members.push_back(*found);
        asked.members.push_back(group.members[i]);
        if (!group.weights.empty()) asked.weights.push_back(group.weights[i]);
      }
      if (members.empty()) continue;
      made.push_back(eval::aggregate_group(asked, members));
      say_part(asked, made.back());
      evaluation.groups.insert(evaluation.groups.begin(), asked);
      evaluation.group_results.insert(evaluation.group_results.begin(), made.back());
    }
  }

  /// A score over some subjects is called that, and given in both ways: which one reports mean
  /// where all subjects are there makes less of a difference.
  static void say_part(const eval::Group& group, eval::TaskResult& result) {
    if (group.num_asked == 0) return;
    const auto weighted = [&](bool by_size) {
      eval::Group other = group;
      other.weights.clear();
      other.weight_by_size = by_size;
      return eval::aggregate_group(other, result.leaves);
    };
    const eval::TaskResult micro = weighted(true), macro = weighted(false);
    for (size_t i = 0; i < micro.metrics.size(); ++i) {
      log::info(
          "{}: {} of {} subjects; {} over questions (micro) {:.4f}, over subjects (macro) {:.4f}",
          result.alias, group.num_asked, group.num_leaves, micro.metrics[i].metric,
          micro.metrics[i].value, macro.metrics[i].value);
    }
    result.alias += fmt::format(" ({} of {})", group.num_asked, group.num_leaves);
  }

  static void warn_of_doubts(const eval::Evaluation& evaluation) {
    int64_t near_ties = 0, cut = 0;
    for (const eval::TaskResult& result : evaluation.results) {
      near_ties += result.num_near_ties;
      cut += result.num_cut_contexts;
    }
    if (near_ties > 0) {
      log::info(
          "{} items hang on less than rounding: --deterministic gives the same for any batch size",
          near_ties);
    }
    if (cut > 0)
      log::warning("{} items did not fit the model's window: their left side was cut off", cut);
  }

  void log_speed(const eval::Evaluation& evaluation) const {
    int64_t items = 0;
    for (const eval::TaskResult& result : evaluation.results) items += result.num_items;
    std::string shared;
    if (tokens_.given_tokens > 0) {
      shared = tr("; {} of {} tokens computed, the rest shared",
                  format_count(static_cast<uint64_t>(tokens_.computed_tokens)),
                  format_count(static_cast<uint64_t>(tokens_.given_tokens)));
    }
    log::info("questions: {} in {}, {:.1f} a second{}", items,
              format_duration(evaluation.run.duration_s),
              static_cast<double>(items) / std::max(1e-9, evaluation.run.duration_s), shared);
  }

  const Options& options_;
  EvalPlan& plan_;
  EvalModel& model_;
  const InferenceModel& loaded_;
  fs::path directory_;
  const parallel::Ranks& ranks_;
  double start_s_;
  int64_t start_time_s_;
  infer::LikelihoodStats tokens_;  ///< of all ranks
  std::string time_id_;
};

void say_what_is_asked(const EvalPlan& plan, const Options& options, const fs::path& directory) {
  int64_t items = 0;
  for (const auto& exam : plan.exams) items += exam->size();
  const std::string tasks =
      plan.exams.size() == 1 ? plan.exams[0]->task().name : tr("{} tasks", plan.exams.size());
  log::info("eval: questions of {}: {}, style {}; results go to {}", tasks, items,
            options.get_string("style"), directory.string());
}

}  // namespace

int run_eval(const Options& given) {
  if (given.get_list("tasks") == std::vector<std::string>{"list"}) {
    print_text(list_of_tasks(catalogue_of(given), given.get_string("style")));
    return 0;
  }
  ModelArguments arguments;
  const Options options =
      as_mindspeed_means(with_model_args(with_named_template(given), &arguments));
  (void)batch_size_of(options);
  const RankPlace place = rank_place_from_environment();
  constexpr double kTimeoutSeconds = 1800;
  const parallel::Ranks ranks(place, {.data = place.size}, kTimeoutSeconds,
                              settings_of_ranks(options));
  if (!ranks.is_first()) log::set_level(log::Level::kError);
  ranks.do_or_give_up([&] {
    const std::unique_ptr<EvalPlan> plan = make_eval_plan(options);
    const std::string system = plan->prompts.system_instruction.value_or("");
    ranks.require_same("system message", settings::short_form(system), host_name());
    const ModelLocation where = locate_model(options);
    const fs::path directory = ranks.from_first(results_directory(options, where).string());
    const std::unique_ptr<MadeDirectory> made = made_output(directory);
    say_what_is_asked(*plan, options, directory);
    // The plan has the system message: a file that holds it is read once.
    const InferenceModel loaded =
        load_for_inference(options.with("system", "", options.given_as("system")), where,
                           !plan->prompts.apply_chat_template);
    check_rope_scaling(options, loaded.model->config());
    EvalModel model(loaded, model_settings(options, arguments, *plan, loaded));
    if (plan->prompts.apply_chat_template) (void)model.chat_text({{"user", "?"}});
    watch_interrupts();
    Evaluator(options, *plan, model, loaded, directory, ranks).run();
  });
  return 0;
}

}  // namespace danlu::cli
