#include "train/start/begin_rollouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <tuple>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "settings/answers_at_a_time.h"
#include "settings/model_source.h"
#include "train/rollouts/model_reward.h"
#include "train/rollouts/reward_settings.h"
#include "train/rollouts/rollout_stream.h"
#include "train/start/begin_critic.h"

namespace danlu::train {
namespace {

std::vector<text::TokenId> stop_ids_of(const Prepared& run) {
  std::vector<text::TokenId> ids =
      infer::load_generation_defaults(run.source.config, run.source.companions).stop_ids;
  if (run.text.encoder) {
    const auto of_template = run.text.encoder->stop_ids();
    ids.insert(ids.end(), of_template.begin(), of_template.end());
  }
  if (const auto eos = run.text.tokenizer->eos_id()) ids.push_back(*eos);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

/// What the template puts after the token that ends an answer.
std::vector<text::TokenId> tail_of(const Prepared& run) {
  if (!run.text.encoder) return {};
  text::Conversation talk;
  for (const char* role : {"user", "assistant"}) {
    text::Message& message = talk.messages.emplace_back();
    message.role = role;
    message.content = "a";
  }
  const std::vector<text::TokenId> ids = run.text.encoder->encode(talk).ids;
  const std::vector<text::TokenId> stops = stop_ids_of(run);
  const auto end = std::find_first_of(ids.rbegin(), ids.rend(), stops.begin(), stops.end());
  return end == ids.rend() ? std::vector<text::TokenId>() : std::vector(end.base(), ids.end());
}

/// The last part of its path, or as many as no other judge has.
std::string name_of_judge(const std::vector<std::filesystem::path>& judges, size_t own) {
  std::filesystem::path rest = judges[own].lexically_normal(), name;
  const auto ends_alike = [&](const std::filesystem::path& other) {
    return ("/" + other.lexically_normal().string()).ends_with("/" + name.string());
  };
  while (rest.has_filename()) {
    name = name.empty() ? rest.filename() : rest.filename() / name;
    rest = rest.parent_path();
    if (std::count_if(judges.begin(), judges.end(), ends_alike) == 1) break;
  }
  return name.string();
}

/// The model in `path`, which judges on the mesh of the policy. Collective.
std::unique_ptr<eval::Reward> judge_at(const Prepared& run, const Begun& begun,
                                       const std::string& name, const std::filesystem::path& path) {
  const settings::ModelSource source = settings::reward_model_at(path);
  const weights::CheckpointSource opened = settings::open_model(source);
  // Answers are judged as the ids that were drawn.
  require_same_tokens(run, "--reward_model " + path.string(),
                      source.adapter.empty() ? opened.companions : source.adapter);
  return model_reward(name, load_frozen(run, opened, source.adapter), *begun.state.model,
                      *begun.state.links, tail_of(run));
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

/// The lines of steps that are not taken again; one that was cut is the last, and of such a step.
void keep_earlier(const std::filesystem::path& file, int64_t step) {
  std::ifstream lines(file);
  if (!lines) return;
  std::string kept;
  for (std::string line; std::getline(lines, line) && line.ends_with('}');) {
    const Json json = parse_json(line, file.string());
    if (json_get<int64_t>(json, "step").value_or(0) <= step) kept += line + "\n";
  }
  write_file_atomic(file, kept);
}

}  // namespace

std::unique_ptr<RolloutStream> rollout_stream_of(const Prepared& run, Begun& begun, Critic* critic,
                                                 const data::BatchStreamOptions& options) {
  const settings::Reinforcement& told = run.config.objective.policy;
  models::CausalLM& policy = *begun.state.model;
  const parallel::Mesh& mesh = run.ranks.mesh();
  const auto ranks = run.ranks.size() > 1
                         ? std::make_shared<const DrawingRanks>(run.ranks.world(), mesh)
                         : std::make_shared<const DrawingRanks>(mesh);
  const Drawing drawing = drawing_of(policy, ranks, settings::kAnswersAtATime);
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
  RolloutSettings settings;
  settings.told = told;
  settings.batches = options;
  settings.stop_ids = stop_ids_of(run);
  settings.seed = run.config.seed;
  settings.run_directory = run.config.output.directory;
  settings.origin = fmt::format("{} {:016x} {:016x}", DANLU_VERSION, run.data.content_hash,
                                hash_bytes(dump_text(run.steps.identity)));
  say_when_saved(run.config);
  if (told.logs_completions && run.ranks.is_first()) {
    settings.samples_file = run.config.output.directory / "samples.jsonl";
    keep_earlier(settings.samples_file, begun.state.step);
  }
  return std::make_unique<RolloutStream>(std::move(parts), std::move(settings),
                                         begun.consumed_samples);
}

}  // namespace danlu::train
