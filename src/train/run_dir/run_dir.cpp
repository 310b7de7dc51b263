#include "train/run_dir/run_dir.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <map>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/new_output.h"
#include "base/temporary.h"
#include "checkpoint/checkpoint.h"
#include "data/readers/dataset_name.h"
#include "device/dtype.h"
#include "models/adapters.h"
#include "models/weight_files.h"
#include "settings/embedding_files.h"
#include "text/gguf_tokenizer.h"
#include "text/new_tokens.h"
#include "text/template_choice.h"
#include "train/rollouts/critic.h"
#include "train/rollouts/rollout_journal.h"
#include "weights/megatron/place.h"
#include "weights/tensor_source.h"

namespace danlu::train {
namespace {

/// Training state, as opposed to the model.
const std::set<std::string>& state_files() {
  static const std::set<std::string> names = {"args.json", "trainer_state.json", "data_state.json",
                                              "DONE"};
  return names;
}

/// By way of `folder`, so that `to` is there as it was or as it is to be.
void link_or_copy(const fs::path& from, const fs::path& folder, const fs::path& to) {
  const fs::path temporary = folder / to.filename();
  std::error_code error;
  fs::create_hard_link(from, temporary, error);
  if (error) {
    error.clear();
    fs::copy_file(from, temporary, error);
    sync_path(temporary);
  }
  if (!error) fs::rename(temporary, to, error);
  if (error) throw IoError(tr("{}: cannot write: {}", to.string(), error.message()));
}

/// The versions a directory holds, by number.
std::map<int64_t, fs::path> versions_below(const fs::path& parent) {
  std::map<int64_t, fs::path> versions;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    const std::string name = entry.path().filename().string();
    int64_t number = 0;
    const char* end = name.data() + name.size();
    if (name.empty() || name[0] != 'v') continue;
    const auto [at, error] = std::from_chars(name.data() + 1, end, number);
    if (error == std::errc() && at != end && *at == '-') versions[number] = entry.path();
  }
  return versions;
}

std::string settings_yaml(const TrainConfig& config) {
  std::string yaml = fmt::format("# danlu {} config.yaml repeats this run\n", config.verb);
  for (const auto& [key, value] : config.settings.items())
    yaml +=
        fmt::format("{}: {}\n", key, value.dump(-1, ' ', false, Json::error_handler_t::replace));
  return yaml;
}

/// Lines of config.yaml that say what is trained, not how the run is begun or where.
std::string trained_settings(const std::string& yaml, const TrainConfig& config) {
  std::istringstream lines(yaml);
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    const std::string key = line.substr(0, line.find(':'));
    if (!config.of_start.contains(key) && !config.of_machine.contains(key)) kept += line + "\n";
  }
  return kept;
}

bool has_resumable(const fs::path& run_dir) {
  const std::vector<checkpoint::Found> found = checkpoint::list(run_dir);
  return std::any_of(found.begin(), found.end(), [](const auto& one) { return one.resumable; });
}

bool is_of_same_line(const fs::path& run_dir, const TrainConfig& config) {
  try {
    return fs::exists(run_dir / "config.yaml") &&
           trained_settings(read_file(run_dir / "config.yaml"), config) ==
               trained_settings(settings_yaml(config), config) &&
           try_lock_contents(run_dir);
  } catch (const Error&) {
    return false;  // damaged, or another user's: nothing of ours to continue
  }
}

bool can_go_on(const fs::path& run_dir, const TrainConfig& config) {
  // Answers that were drawn and judged since the beginning are worth as much as a checkpoint.
  std::error_code unknown;
  const bool has_answers = fs::is_directory(run_dir / kJournalFolder, unknown) &&
                           !fs::is_empty(run_dir / kJournalFolder, unknown);
  return !is_finished(run_dir) && (has_resumable(run_dir) || has_answers) &&
         is_of_same_line(run_dir, config);
}

bool is_weight_file(const std::string& name) {
  return (name.starts_with("model") || name.starts_with("adapter_model")) &&
         (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json"));
}

bool is_model_file(const std::string& name) {
  return is_weight_file(name) || name == "adapter_config.json" || weights::is_carried_over(name);
}

/// What clearing a directory removes. Where neither a run nor a model is, a config.json or a
/// tokenizer is somebody's own.
std::vector<fs::path> left_by_a_run(const fs::path& run_dir) {
  std::vector<fs::path> old = checkpoint::everything_of(run_dir);
  std::error_code ignored;
  const fs::path copies = run_dir / settings::kMegatronFolder;
  if (fs::exists(copies / weights::megatron::kTrackerFile, ignored)) old.push_back(copies);
  if (!checkpoint::everything_of(run_dir / kCriticFolder).empty() ||
      weights::has_weights(run_dir / kCriticFolder))
    old.push_back(run_dir / kCriticFolder);
  for (const fs::path& journal : journals_of(run_dir)) old.push_back(journal);
  const bool holds_model =
      weights::has_weights(run_dir) || fs::exists(run_dir / "adapter_config.json", ignored);
  if (!holds_model && !fs::exists(run_dir / "args.json", ignored)) return old;
  for (const char* name :
       {"all_results.json", "val_dataset.jsonl", "logging.jsonl", "args.json", "samples.jsonl"}) {
    if (fs::exists(run_dir / name, ignored)) old.push_back(run_dir / name);
  }
  for (const auto& entry : fs::directory_iterator(run_dir, ignored)) {
    if (entry.is_regular_file() && is_model_file(entry.path().filename().string()))
      old.push_back(entry.path());
  }
  for (const auto& entry : fs::directory_iterator(run_dir / "images", ignored)) {
    const std::string name = entry.path().filename().string();
    const bool is_picture = name.ends_with(".png") || name.ends_with(".svg");
    if (is_picture && (name.starts_with("train_") || name.starts_with("eval_")))
      old.push_back(entry.path());
  }
  for (const auto& entry : fs::recursive_directory_iterator(run_dir / "runs", ignored)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents."))
      old.push_back(entry.path());
  }
  return old;
}

/// What a run writes first: a directory without it is not a run's.
constexpr const char* kOfRun = "sft_args.json";

/// Files that a run writes over as it begins and goes on; train.log grows.
bool is_written_by_runs(const std::string& name) {
  static const std::set<std::string> kNames = {
      "README.md",   "args.json", "config.yaml",      "logging.jsonl",
      "memory.json", "DONE",      "all_results.json", "val_dataset.jsonl"};
  return kNames.contains(name) || is_model_file(name);
}

/// Whether removing `path` takes something of `input` away: it is that file, a file of that
/// directory, or holds it.
bool would_lose(const fs::path& input, const fs::path& path) {
  if (would_replace(path, input)) return true;
  std::error_code error;
  return fs::equivalent(path.parent_path(), input, error) && !error;
}

void refuse_to_replace_others(const TrainConfig& config) {
  const fs::path& run_dir = config.output.directory;
  std::error_code ignored;
  if (fs::exists(run_dir / kOfRun, ignored)) return;
  for (const auto& entry : fs::directory_iterator(run_dir, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file(ignored) || !is_written_by_runs(name)) continue;
    throw UsageError(tr("[train] {} {} holds {}, which no run left and this one would write over",
                        config.flag("output_dir"), run_dir.string(), name),
                     tr("choose another directory, or give --overwrite_output_dir"));
  }
}

void refuse_to_clear_inputs(const TrainConfig& config) {
  const std::vector<fs::path> old = left_by_a_run(config.output.directory);
  const auto check = [&](const char* option, const fs::path& input) {
    for (const fs::path& path : old) {
      if (input.empty() || !would_lose(input, path)) continue;
      throw UsageError(
          tr("[train] {} {} is read by this run, and {} would remove {}", config.flag(option),
             input.string(), config.flag("overwrite_output_dir"), path.string()),
          tr("choose another --output_dir"));
    }
  };
  check("model", config.model.path);
  check("tokenizer", config.model.tokenizer);
  check("adapters", config.model.adapter);
  check(config.objective.kind == settings::ObjectiveKind::kDistillation ? "teacher_model"
                                                                        : "ref_model",
        config.objective.reference);
  check("critic_model", config.objective.policy.critic.model);
  for (const fs::path& judge : config.objective.policy.reward_models) check("reward_model", judge);
  check("template", config.data.template_name);
  check("templates_file", config.data.templates_file);
  check("resume", config.output.resume);
  for (const auto* list : {&config.data.train, &config.data.validation}) {
    for (const std::string& dataset : *list)
      check("dataset", data::parse_dataset_name(dataset).path);
  }
}

}  // namespace

fs::path choose_version(const TrainConfig& config) {
  const fs::path& parent = config.output.directory;
  const std::map<int64_t, fs::path> versions = versions_below(parent);
  if (config.output.resume == "auto" && !config.output.overwrite) {
    for (auto it = versions.rbegin(); it != versions.rend(); ++it) {
      if (!can_go_on(it->second, config)) continue;
      log::info(
          "going on with {}, an unfinished run of the same settings; --resume none begins anew",
          it->second.string());
      return it->second;
    }
  }
  const int64_t next = versions.empty() ? 0 : versions.rbegin()->first + 1;
  return parent / fmt::format("v{}-{:%Y%m%d-%H%M%S}", next, fmt::localtime(std::time(nullptr)));
}

OwnRun own_run(const TrainConfig& config) {
  const OutputConfig& output = config.output;
  if (!output.begins_anew || output.versioned || output.overwrite) return OwnRun::kNone;
  if (!is_of_same_line(output.directory, config)) return OwnRun::kNone;
  const bool resumable = has_resumable(output.directory);
  if (is_finished(output.directory)) return resumable ? OwnRun::kFinished : OwnRun::kModelAlone;
  return resumable ? OwnRun::kUnfinished : OwnRun::kNone;
}

OwnRun find_own_run(const TrainConfig& config) {
  const OwnRun own = config.place.rank == 0 ? own_run(config) : OwnRun::kNone;
  const std::string directory = config.output.directory.string();
  if (own == OwnRun::kModelAlone) {
    log::info("this run is complete: {} holds what this very line left at its end", directory);
  }
  if (own == OwnRun::kUnfinished) {
    log::info("{}: an unfinished run of this very line is there, and {} goes on with it", directory,
              config.flag("finetune"));
  }
  return own;
}

void write_run_settings(const TrainConfig& config) {
  const fs::path& run_dir = config.output.directory;
  write_json_file(run_dir / kOfRun, config.args);
  write_json_file(run_dir / "args.json", config.args);
  write_file_atomic(run_dir / "config.yaml", settings_yaml(config));
}

FileLock lock_run_directory(const fs::path& directory) {
  if (auto lock = try_lock_contents(directory)) return std::move(*lock);
  throw IoError(tr("[train] {}: {} is training in this directory", directory.string(),
                   holder_of_contents(directory)),
                tr("wait until it has finished, or choose another --output_dir"));
}

uint64_t model_file_bytes(const models::CausalLM& model, bool adapter_only) {
  int64_t common = 0, of_experts = 0;
  for (const auto& parameter : adapter_only ? model.adapter_parameters() : model.parameters()) {
    if (model.stage().is_copy(parameter.spec)) continue;
    (parameter.spec.expert < 0 ? common : of_experts) +=
        parameter.whole_numel() * static_cast<int64_t>(parameter.tensor.element_size());
  }
  return static_cast<uint64_t>(model.mesh().sum_over_stages(common, of_experts));
}

namespace {

/// A tokenizer in two files that have a name before theirs, as Megatron's scripts name them, under
/// the names by which a directory is read. False: it is in other files.
bool carry_two_files(const fs::path& vocab, const fs::path& directory) {
  constexpr std::string_view kVocab = "vocab.json", kMerges = "merges.txt";
  const std::string name = vocab.filename().string();
  if (!fs::is_regular_file(vocab) || !name.ends_with(kVocab) || name == kVocab) return false;
  const std::string before = name.substr(0, name.size() - kVocab.size());
  write_file_atomic(directory / kVocab, read_file(vocab));
  write_file_atomic(directory / kMerges,
                    read_file(vocab.parent_path() / (before + std::string(kMerges))));
  return true;
}

}  // namespace

void write_embedding_files(const TrainConfig& config, const arch::ModelConfig& model,
                           const fs::path& directory) {
  const bool embeds = config.objective.kind == settings::ObjectiveKind::kEmbedding;
  if (!embeds || config.tuner == Tuner::kLora || config.data.uses_template) return;
  settings::write_sentence_files(directory, model, config.model.companions);
}

void write_model_files(const models::CausalLM& model, const TrainConfig& config, DType dtype,
                       const fs::path& directory) {
  if (model.mesh().rank() > 0)  // gives its pieces
    return config.tuner == Tuner::kLora ? models::save_adapter(model, {}, {})
                                        : models::save(model, {}, dtype, {});
  // A file may be named, and its name may be that of the one in whose place another is read.
  const fs::path tokenizer = text::directory_of_model(config.model.tokenizer);
  const bool is_in_model = text::is_gguf(config.model.tokenizer);
  const std::vector<text::NewToken>& new_tokens = config.model.changes.tokens;
  const auto carry_tokenizer = [&] {
    if (carry_two_files(config.model.tokenizer, directory)) return;
    is_in_model ? void(text::write_gguf_tokenizer(config.model.tokenizer, directory))
                : weights::carry_over_files(tokenizer, directory);
  };
  if (config.tuner == Tuner::kLora) {
    models::save_adapter(model, directory,
                         fs::absolute(config.model.path).lexically_normal().string());
    // An adapter directory carries the tokenizer too, but not the base model's config.json.
    carry_tokenizer();
    std::error_code ignored;
    fs::remove(directory / "config.json", ignored);
    if (!new_tokens.empty()) text::write_new_tokens(directory, new_tokens);
    return;
  }
  models::save(model, directory, dtype, config.model.companions);
  write_embedding_files(config, model.config(), directory);
  if (is_in_model || tokenizer != config.model.companions) carry_tokenizer();
  if (!new_tokens.empty()) text::write_new_tokens(directory, new_tokens);
}

namespace {

std::set<std::string> model_files_of(const fs::path& checkpoint) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && !state_files().count(name)) names.insert(name);
  }
  return names;
}

/// The index goes last: without it shards are no model to any reader.
void link_model_files(const fs::path& checkpoint, const std::set<std::string>& names,
                      const fs::path& run_dir) {
  const Temporary folder(run_dir / "model", Temporary::Kind::kDirectory);
  if (folder.fd() < 0)
    throw IoError(tr("{}: cannot write: {}", run_dir.string(), std::strerror(errno)));
  for (const bool is_index : {false, true}) {
    for (const std::string& name : names) {
      if (name.ends_with(".index.json") == is_index)
        link_or_copy(checkpoint / name, folder.path(), run_dir / name);
    }
  }
}

}  // namespace

void publish_model(const fs::path& checkpoint, const fs::path& run_dir) {
  const std::set<std::string> names = model_files_of(checkpoint);
  // Weights of an earlier model would be read in place of, or along with, the new ones.
  std::vector<fs::path> stale;
  for (const auto& entry : fs::directory_iterator(run_dir)) {
    const std::string name = entry.path().filename().string();
    if (is_weight_file(name) && !names.count(name)) stale.push_back(entry.path());
  }
  for (const fs::path& file : stale) fs::remove(file);
  link_model_files(checkpoint, names, run_dir);
}

void publish_model_in_type(const fs::path& checkpoint, const arch::ModelConfig& config, DType dtype,
                           const fs::path& run_dir) {
  models::save_in_type(checkpoint, config, dtype, run_dir);
  std::set<std::string> beside = model_files_of(checkpoint);
  std::erase_if(beside, [](const std::string& name) {
    return is_weight_file(name) || name == "config.json";
  });
  link_model_files(checkpoint, beside, run_dir);
}

void clear_run_directory(const fs::path& run_dir) {
  mark_unfinished(run_dir);
  for (const fs::path& path : left_by_a_run(run_dir)) {
    if (fs::is_directory(fs::symlink_status(path))) {
      remove_directory_atomic(path);
    } else {
      fs::remove(path);
    }
  }
}

void refuse_other_format(const fs::path& run_dir) {
  const auto format = weights::detect_format(run_dir);
  const bool is_other = format == weights::Format::kMegatron || format == weights::Format::kNative;
  if (!is_other) return;
  throw UsageError(tr("[train] {}: holds a {} checkpoint, which would be read in place of "
                      "the model that this run leaves there",
                      run_dir.string(), weights::format_name(*format)),
                   tr("choose another --output_dir (--save)"));
}

void refuse_to_lose_files(const TrainConfig& config) {
  config.output.overwrite ? refuse_to_clear_inputs(config) : refuse_to_replace_others(config);
}

void mark_finished(const fs::path& run_dir, int64_t step) {
  // What grew line by line: DONE may not outlive a loss of power that they do not.
  for (const char* name : {"logging.jsonl", "samples.jsonl", "train.log"})
    sync_path(run_dir / name);
  std::error_code none;
  for (const auto& entry : fs::recursive_directory_iterator(run_dir / "runs", none))
    sync_path(entry.path());
  sync_path(run_dir / "runs");
  sync_path(run_dir);
  write_json_file(run_dir / "DONE", {{"step", step}});
}

void mark_unfinished(const fs::path& run_dir) { fs::remove(run_dir / "DONE"); }

bool is_finished(const fs::path& run_dir) { return fs::exists(run_dir / "DONE"); }

}  // namespace danlu::train
