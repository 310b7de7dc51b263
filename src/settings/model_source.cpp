#include "settings/model_source.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "settings/config.h"
#include "settings/options/model_names.h"
#include "weights/hf/value_head.h"
#include "weights/lora/trained_base.h"
#include "weights/megatron/place.h"

namespace danlu::settings {
namespace {

namespace fs = std::filesystem;

weights::CheckpointSource described_only(const ModelSource& source) {
  weights::CheckpointSource opened{.format = weights::Format::kHuggingFace, .path = source.path};
  if (!source.described.is_null()) {
    opened.config = arch::parse_model_config(source.described, tr("the flags"));
    return opened;
  }
  opened.companions = source.path;
  for (const fs::path& directory : {source.fallback_dir, source.path, source.config_dir}) {
    if (!directory.empty() && fs::exists(directory / "config.json")) opened.companions = directory;
  }
  opened.config = arch::load_model_config(
      opened.companions, source.score ? arch::Heads::kAny : arch::Heads::kVocabulary);
  return opened;
}

/// trainer_state.json of the newest checkpoint of a run that has one; null where none has.
Json newest_state(const fs::path& run) {
  Json newest = nullptr;
  std::error_code error;
  for (fs::directory_iterator at(run, error), end; !error && at != end; at.increment(error)) {
    const fs::path file = at->path() / "trainer_state.json";
    std::error_code unknown;
    const bool is_checkpoint = at->path().filename().string().starts_with("checkpoint-");
    if (!is_checkpoint || !fs::exists(file, unknown)) continue;
    try {
      Json state = read_json_file(file);
      const auto step = json_get<int64_t>(state, "global_step").value_or(0);
      if (newest.is_null() || step > json_get<int64_t>(newest, "global_step").value_or(0))
        newest = std::move(state);
    } catch (const Error&) {
      continue;  // damaged: who resumes says so
    }
  }
  return newest;
}

/// `head` in the form in which the adapter that is gone on with has it.
arch::ScoreHead head_with(const fs::path& adapter, arch::ScoreHead head) {
  std::error_code unknown;
  if (adapter.empty()) return head;
  if (weights::has_value_head(adapter)) {
    head.form = arch::ScoreForm::kBeside;
  } else if (fs::exists(adapter / "adapter_config.json", unknown)) {
    const std::string in_adapters = arch::ScoreHead{.form = arch::ScoreForm::kSequence}.module();
    for (const std::string& entry : weights::load_peft_config(adapter).modules_to_save)
      if (entry == in_adapters && !head.is_described()) head.form = arch::ScoreForm::kSequence;
  }
  return head;
}

/// The model with a head that sorts texts: its own, or the one that is asked for.
void open_classifier(const ModelSource& source, weights::CheckpointSource& opened) {
  const arch::ScoreHead& asked = *source.score;
  if (!opened.config.score) {
    if (!asked.seed) {
      throw ModelError(
          tr("{}: no classifier: it has no head that sorts texts", source.path.string()),
          tr("danlu sft --task_type seq_cls makes one of it"));
    }
    if (asked.labels == 0) {
      throw UsageError(tr("[train] --num_labels: {} has no head yet that sorts texts, and nothing "
                          "says how many labels there are",
                          source.path.string()),
                       tr("--num_labels 2"));
    }
    opened.config = arch::with_score(opened.config, asked);
  }
  arch::ScoreHead& head = *opened.config.score;
  if (head.form != arch::ScoreForm::kSequence) {
    throw ModelError(
        tr("{}: its head judges tokens, and does not sort texts", source.path.string()),
        tr("take the model that it was made of"));
  }
  if (asked.labels > 0 && head.labels != asked.labels) {
    throw UsageError(tr("[train] --num_labels {}: the head in {} has {}", asked.labels,
                        source.path.string(), head.labels),
                     tr("leave --num_labels out, or take the model that it was made of"));
  }
  const arch::LabelProblem said = *asked.problem != arch::LabelProblem::kByNumber
                                      ? *asked.problem
                                      : head.problem.value_or(arch::LabelProblem::kByNumber);
  head.problem = arch::settled(said, head.labels);
  if (head.problem == arch::LabelProblem::kOneClass && head.labels < 2) {
    throw UsageError(tr("[train] --problem_type {}: one label is no choice",
                        arch::label_problem_name(*head.problem)),
                     tr("--num_labels 2, or --problem_type regression"));
  }
}

weights::CheckpointSource opened_of(const ModelSource& source) {
  weights::CheckpointSource opened =
      source.from_scratch
          ? described_only(source)
          : weights::open_checkpoint_source(source.path, {.config_dir = source.config_dir,
                                                          .fallback_dir = source.fallback_dir,
                                                          .iteration = source.iteration,
                                                          .all_tensors = true,
                                                          .scores = source.score.has_value(),
                                                          .lora_alpha = source.adapter_alpha});
  if (!source.score) return opened;
  if (source.score->problem) {
    open_classifier(source, opened);
    return opened;
  }
  if (!opened.config.score && !source.score->seed) {
    throw ModelError(
        tr("{}: no reward model: it has no head that gives a number", source.path.string()),
        tr("danlu rlhf --rlhf_type rm makes one of it"));
  }
  if (!opened.config.score)
    opened.config = arch::with_score(opened.config, head_with(source.adapter, *source.score));
  const arch::ScoreHead &head = *opened.config.score, &asked = *source.score;
  // MindSpeed-LLM's head of a reward model has a bias too.
  const bool is_of_tokens =
      head.form == arch::ScoreForm::kTokens && opened.format != weights::Format::kMegatron;
  if (is_of_tokens != (asked.form == arch::ScoreForm::kTokens)) {
    throw ModelError(
        is_of_tokens
            ? tr("{}: its head judges each step of a text, and not the text", source.path.string())
            : tr("{}: its head judges a text, and not each of its steps", source.path.string()),
        tr("--stage prm --step_head class trains the one, --rlhf_type rm the "
           "other"));
  }
  if (head.labels == asked.labels) return opened;
  if (is_of_tokens) {
    throw ModelError(
        tr("{}: its head gives {} numbers for a step, and a step "
           "is right or wrong",
           source.path.string(), head.labels));
  }
  throw ModelError(tr("{}: its head gives {} numbers for a text, and a reward is one",
                      source.path.string(), opened.config.score->labels),
                   tr("config.json's id2label says how many; a classifier is no reward model"));
}

}  // namespace

weights::CheckpointSource open_model(const ModelSource& source) {
  weights::CheckpointSource opened = opened_of(source);
  const bool as_trained = source.as_trained && !source.adapter.empty();
  make_changes(as_trained ? recorded_changes(source.adapter, opened.config) : source.changes,
               opened);
  if (!as_trained || !opened.model) return opened;
  const auto made = weights::recorded_nf4(source.adapter);
  if (weights::is_other_base(made, *opened.model))
    opened.model = weights::through_nf4(opened.model, opened.config, *made);
  return opened;
}

ModelSource reward_model_at(const std::filesystem::path& path) {
  ModelSource source;
  source.path = path;
  source.score.emplace();
  if (weights::detect_format(path) != weights::Format::kPeft) return source;
  const std::string base = weights::load_peft_config(path).base_model;
  source.path = base.empty() ? fs::path() : located_if_named(base);
  source.adapter = path;
  source.as_trained = true;
  if (source.path.empty()) {
    throw ModelError(tr("{}: an adapter that does not name its base model", path.string()),
                     tr("danlu merge joins it with its base"));
  }
  source.score->seed = 0;  // the adapter has the head, if the base has none
  return source;
}

std::string describe_weights(const ModelSource& source, const weights::CheckpointSource& opened,
                             uint64_t seed) {
  return source.from_scratch ? fmt::format("random (seed {})", seed)
                             : fmt::format("{}: {}", opened.description, source.path.string());
}

bool holds_no_weights(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return true;
  return std::filesystem::is_directory(path, error) && !weights::detect_format(path) &&
         weights::weights_like_in(path).empty();
}

bool began_at_random(const std::filesystem::path& run) {
  const Json identity = json_get<Json>(newest_state(run), "identity").value_or(Json::object());
  return json_get<bool>(identity, "from_scratch").value_or(false);
}

std::optional<std::filesystem::path> began_from(const std::filesystem::path& run) {
  std::error_code unknown;
  const std::filesystem::path told = run / "args.json";
  if (newest_state(run).is_null() || !std::filesystem::exists(told, unknown)) return std::nullopt;
  try {
    const Json args = read_json_file(told);
    for (const char* name : {"load", "model"}) {
      const auto first = json_get<std::string>(args, name);
      if (!first || first->empty()) continue;
      if (!std::filesystem::exists(*first, unknown)) return std::nullopt;
      if (std::filesystem::equivalent(*first, run, unknown)) return std::nullopt;
      return *first;
    }
  } catch (const Error&) {  // who resumes says what is damaged
  }
  return std::nullopt;
}

std::filesystem::path kept_in_megatrons_format(const std::filesystem::path& path) {
  const std::filesystem::path kept = path / kMegatronFolder;
  const std::filesystem::path tracker = kept / weights::megatron::kTrackerFile;
  std::error_code unknown;
  if (!std::filesystem::exists(tracker, unknown)) return path;
  const std::string iteration = read_file(tracker);
  const auto newest = json_get<int64_t>(newest_state(path), "global_step");
  if (newest && std::to_string(*newest) != iteration) {
    log::warning("{} is of iteration {}, and the run's newest checkpoint of step {}", kept.string(),
                 iteration, *newest);
  }
  return kept;
}

}  // namespace danlu::settings
