#include "train/start/begin_rollouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "infer/end_ids.h"
#include "settings/answers_at_a_time.h"
#include "settings/model_source.h"
#include "text/encoder_tools.h"
#include "train/rollouts/judges.h"
#include "train/rollouts/model_reward.h"
#include "train/rollouts/reward_settings.h"
#include "train/rollouts/rollout_stream.h"

namespace danlu::train {
namespace {

std::vector<text::TokenId> stop_ids_of(const Prepared& run) {
  return infer::end_ids(
      infer::load_generation_defaults(run.source.config, run.source.companions).stop_ids,
      *run.text.tokenizer, run.text.encoder.get());
}

/// The model in `path`, which judges on the mesh of the policy. Collective.
std::unique_ptr<eval::Reward> judge_at(const Prepared& run, const Begun& begun,
                                       const std::string& name, const std::filesystem::path& path) {
  const settings::ModelSource source = settings::reward_model_at(path);
  const weights::CheckpointSource opened = settings::open_model(source);
  // Answers are judged as the ids that were drawn.
  require_same_tokens(*run.text.tokenizer, "--reward_model " + path.string(),
                      source.adapter.empty() ? opened.companions : source.adapter);
  say_trained_base(source.adapter);
  return model_reward(name, load_frozen(run, opened, source.adapter), *begun.state.model,
                      *begun.state.links,
                      tail_of_answers(run.text.encoder.get(), stop_ids_of(run)));
}

/// How answers are talked on with an environment.
std::shared_ptr<const Conversations> conversations_of(const Prepared& run) {
  const settings::Reinforcement& told = run.config.objective.policy;
  const PreparedText& text = run.text;
  Conversations::Parts parts{eval::make_environment(told.environment, environment_settings(told)),
                             text.choice.required(),
                             text.tokenizer,
                             stop_ids_of(run),
                             std::nullopt,
                             run.source.config.max_positions};
  parts.tool_format = text::tool_format_of_encoder(*parts.encoder, *text.tokenizer,
                                                   text.choice.name, text.choice.templates_file);
  return std::make_shared<const Conversations>(std::move(parts), told);
}

/// Checkpoints and evaluations that a line asks for in the midst of rollouts come after them.
void say_when_saved(const TrainConfig& config) {
  const settings::Reinforcement& told = config.objective.policy;
  const settings::OutputConfig& output = config.output;
  const int64_t steps = told.steps * told.iterations;
  const std::tuple<const char*, Interval, int64_t> flags[] = {
      {"save_steps", output.save, output.save_steps},
      {"eval_steps", output.evaluate, output.eval_steps}};
  for (const auto& [flag, interval, every] : flags) {
    if (interval != Interval::kSteps || every % steps == 0) continue;
    log::info("{}: a rollout has {} steps, whose end is waited for", config.said(flag, every),
              steps);
  }
}

/// An answer ends where the model's positions do. Errors: DataError where a prompt takes all.
void say_room_of_answers(const Prepared& run) {
  const int64_t positions = run.source.config.max_positions;
  const int64_t wanted = run.config.objective.policy.max_new_tokens;
  const int64_t room = positions - run.data.longest_prompt;
  if (positions <= 0 || wanted <= room) return;
  if (room <= 0) {
    throw DataError(
        tr("[train] a prompt has {} tokens and the model {} positions: no room for an answer",
           run.data.longest_prompt, positions),
        tr("a smaller {} leaves out or cuts longer rows", run.config.flag("max_length")));
  }
  log::warning(
      "{}: prompts have up to {} tokens and the model {} positions, so that such an answer "
      "is cut at {}",
      run.config.said("max_completion_length", wanted), run.data.longest_prompt, positions, room);
}

/// The lines of steps and evaluations that are not done again; one that was cut is the last, and of
/// such a step.
void keep_earlier(const std::filesystem::path& file, int64_t step, bool evaluates_again) {
  std::ifstream lines(file);
  if (!lines) return;
  std::string kept;
  for (std::string line; std::getline(lines, line) && line.ends_with('}');) {
    const Json json = parse_json(line, file.string());
    const int64_t of = json_get<int64_t>(json, "step").value_or(0);
    const bool is_evaluated_again = evaluates_again && of == step && json.value("held_out", false);
    if (of <= step && !is_evaluated_again) kept += line + "\n";
  }
  write_file_atomic(file, kept);
}

}  // namespace

std::unique_ptr<DistillationStream> distillation_stream_of(
    const Prepared& run, Begun& begun, const data::BatchStreamOptions& options) {
  const TrainConfig& config = run.config;
  const settings::Reinforcement& told = config.objective.policy;
  const parallel::Mesh& mesh = run.ranks.mesh();
  const auto ranks = run.ranks.size() > 1
                         ? std::make_shared<const DrawingRanks>(run.ranks.world(), mesh)
                         : std::make_shared<const DrawingRanks>(mesh);
  say_room_of_answers(run);
  return std::make_unique<DistillationStream>(
      DistillationParts{run.data.train, run.data.order,
                        drawing_of(*begun.state.model, ranks, settings::kAnswersAtATime,
                                   {told.stop_words, run.text.tokenizer}),
                        ranks},
      DistillationSettings{told, config.objective.distillation.lmbda, options, stop_ids_of(run),
                           static_cast<int64_t>(run.text.tokenizer->size()), config.seed},
      begun.consumed_samples);
}

std::unique_ptr<RolloutStream> rollout_stream_of(const Prepared& run, Begun& begun, Critic* critic,
                                                 const data::BatchStreamOptions& options) {
  const settings::Reinforcement& told = run.config.objective.policy;
  models::CausalLM& policy = *begun.state.model;
  const parallel::Mesh& mesh = run.ranks.mesh();
  const auto ranks = run.ranks.size() > 1
                         ? std::make_shared<const DrawingRanks>(run.ranks.world(), mesh)
                         : std::make_shared<const DrawingRanks>(mesh);
  const Drawing drawing =
      drawing_of(policy, ranks, settings::kAnswersAtATime, {told.stop_words, run.text.tokenizer});
  RolloutParts parts{policy,
                     *begun.state.links,
                     run.data.train,
                     run.data.order,
                     run.text.tokenizer,
                     drawing.generate,
                     {},
                     begun.reference,
                     critic,
                     ranks,
                     drawing.with_weights};
  for (const std::string& name : told.rewards)
    parts.rewards.push_back(
        reward_of_first_rank(eval::make_reward(name, reward_settings(told)), ranks->model()));
  for (size_t i = 0; i < told.reward_models.size(); ++i) {
    parts.rewards.push_back(
        judge_at(run, begun, name_of_judge(told.reward_models, i), told.reward_models[i]));
  }
  if (!told.environment.empty()) parts.conversations = conversations_of(run);
  RolloutSettings settings;
  settings.told = told;
  settings.batches = options;
  settings.stop_ids = stop_ids_of(run);
  settings.answer_end =
      end_of_answers(run.text.encoder.get(), settings.stop_ids, *run.text.tokenizer);
  settings.seed = run.config.seed;
  settings.run_directory = run.config.output.directory;
  settings.origin = fmt::format("{} {:016x} {:016x}", DANLU_VERSION, run.data.content_hash,
                                hash_bytes(dump_text(run.steps.identity)));
  const int64_t steps_of_rollout = told.steps * told.iterations;
  settings.steps = run.steps.plan.total_steps;
  settings.rollouts = (run.steps.plan.total_steps + steps_of_rollout - 1) / steps_of_rollout;
  settings.state = begun.stream_state;
  say_when_saved(run.config);
  say_room_of_answers(run);
  if (told.logs_completions && run.ranks.is_first()) {
    settings.samples_file = run.config.output.directory / "samples.jsonl";
    keep_earlier(settings.samples_file, begun.state.step, begun.evaluation_is_due);
  }
  return std::make_unique<RolloutStream>(std::move(parts), std::move(settings),
                                         begun.consumed_samples);
}

}  // namespace danlu::train
