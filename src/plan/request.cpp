#include "plan/request.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "data/media_settings.h"
#include "settings/answers_at_a_time.h"
#include "settings/model_source.h"
#include "settings/options/media_flags.h"
#include "settings/run_plan.h"

namespace danlu::plan {

int64_t Request::sent_rows() const {
  if (mesh.expert == 1) return expert_rows();
  const int64_t senders = mesh.expert_dealers * row_senders();
  return (routed_rows() + senders - 1) / senders;
}

int64_t Request::expert_rows() const {
  if (expert_owners() == 1) return routed_rows();
  // A token goes to an expert once.
  const int64_t picks = std::min(model.experts.per_token, model.experts.count / expert_owners());
  const auto most = static_cast<double>(mesh.expert * pass_tokens() * picks);
  const double mean = static_cast<double>(routed_rows()) / static_cast<double>(mesh.expert_dealers);
  return static_cast<int64_t>(std::min(most, std::ceil(mean * expert_imbalance)));
}

double Request::busiest_rank() const {
  return static_cast<double>(expert_rows() * mesh.expert_dealers) /
         static_cast<double>(routed_rows());
}

int64_t visual_tokens_of(const settings::TrainConfig& config, const arch::ModelConfig& model,
                         int64_t longest) {
  if (!model.vision) return 0;
  std::filesystem::path directory = config.model.path;
  if (!std::filesystem::is_directory(directory)) directory = directory.parent_path();
  if (!data::reads_media(directory)) directory = settings::processor_directory(config);
  const data::MediaFlags& flags = config.data.media;
  media::ImageProcessor processor;
  int64_t area = 0, cell = model.vision->patch_size * model.vision->merge_size;
  // A config.json is enough for a plan.
  const auto found =
      data::reads_media(directory) ? data::media_settings_of(directory, flags) : std::nullopt;
  if (found) {
    const media::PreResize& before = found->image_resize;
    area = found->processor.max_pixels;
    if (before.rule == media::PreResizeRule::kQwenUtils) area = before.max_pixels;
    if (before.max_pixels > 0) area = std::min(area, before.max_pixels);
  } else {
    area = flags.max_pixels.value_or(processor.max_pixels);
    if (flags.image_max_pixels) area = std::min(area, *flags.image_max_pixels);
  }
  constexpr int64_t kAround = 2;  // a token before the picture and one after it
  return std::clamp<int64_t>(area / (cell * cell), 0, std::max<int64_t>(0, longest - kAround));
}

namespace {

double nf4_bits_of(const settings::TrainConfig& config) {
  return config.nf4 ? config.nf4->bits() : 0;
}

/// What the model is that a run's answers are measured against.
Frozen reference_model(const settings::TrainConfig& config, const arch::ModelConfig& model) {
  settings::ModelSource described;
  described.path = config.objective.reference;
  if (described.path.empty()) return {model, nf4_bits_of(config)};
  described.from_scratch = settings::holds_no_weights(described.path);
  return {settings::open_model(described).config};
}

arch::ModelConfig judge_model(const std::filesystem::path& path, bool may_be_without_head = false) {
  settings::ModelSource described = settings::reward_model_at(path);
  if (may_be_without_head) described.score->seed = 0;
  described.from_scratch = settings::holds_no_weights(described.path);
  return settings::open_model(described).config;
}

/// What PPO's critic begins as.
arch::ModelConfig critic_model(const settings::TrainConfig& config,
                               const arch::ModelConfig& model) {
  const settings::Reinforcement& told = config.objective.policy;
  if (!told.critic.model.empty()) return judge_model(told.critic.model, true);
  if (!told.reward_models.empty()) return judge_model(told.reward_models.front(), true);
  return model.score ? model : arch::with_score(model, arch::ScoreHead{.seed = 0});
}

/// ops/token_logprobs.cpp: the logits and what their norm is made of; entropies need the
/// probabilities, and a temperature divides.
int64_t wide_logits_of(const settings::TrainConfig& config) {
  switch (config.objective.kind) {
    case settings::ObjectiveKind::kPreference:
    case settings::ObjectiveKind::kUnpaired:
    case settings::ObjectiveKind::kProcessReward:
      return 2;
    case settings::ObjectiveKind::kPolicy:
      return 6;
    default:
      return config.objective.weighs_tokens() ? 2 : 0;
  }
}

Rollout rollout_of(const settings::TrainConfig& config, const arch::ModelConfig& model,
                   int64_t longest) {
  const settings::Reinforcement& told = config.objective.policy;
  const settings::MeshShape& mesh = config.mesh;
  // Ranks that hold one model together, but for the tensor axis, draw some of its answers each.
  const int64_t drawers = mesh.pipeline * mesh.context.size(),
                of_model = told.steps * config.batch.micro_batch_size *
                           settings::accumulation_of(config.batch);
  // Beside answers that are left to it, a rollout in parts begins as many others.
  const int64_t under_way = told.parts > 1 ? 2 * of_model : of_model;
  Rollout rollout{.model = model};
  rollout.at_a_time = std::min(settings::kAnswersAtATime, (under_way + drawers - 1) / drawers);
  rollout.new_tokens = told.longest_answer();
  rollout.prompt_tokens = std::max<int64_t>(1, longest - told.longest_answer());
  rollout.begun_tokens = told.longest_answer() - told.tokens_of_part();
  return rollout;
}

}  // namespace

Request request_of(const settings::TrainConfig& config, const arch::ModelConfig& model,
                   int64_t longest) {
  Request request{.model = model,
                  .mesh = config.mesh,
                  .pipeline = config.pipeline,
                  .sharding = config.keeping.sharding,
                  .recompute = config.recompute,
                  .offload = config.activation_offload,
                  .precision = config.precision,
                  .freeze = config.freeze,
                  .parameters_in_files = !config.keeping.parameters_in.empty(),
                  .state_in_files = !config.keeping.state_in.empty(),
                  .adamw = config.adamw,
                  .tokens = longest,
                  .longest = longest,
                  .router_noise = config.routers.input_jitter > 0,
                  .order = config.order};
  if (request.adamw.mini) request.adamw.mini->head_size = model.head_dim;
  request.set_visual_tokens(visual_tokens_of(config, model, longest));
  if (config.tuner == settings::Tuner::kLora) {
    request.adapters =
        config.lora.start.takes_from_base() ? weights::with_fixed_half(config.lora) : config.lora;
  }
  if (config.holds_reference()) {
    request.frozen.push_back(reference_model(config, model));
    if (config.objective.kind == settings::ObjectiveKind::kDistillation ||
        config.objective.anchor_weight > 0)
      request.teacher = request.frozen.back().model;
  }
  for (const std::filesystem::path& judge : config.objective.policy.reward_models)
    request.frozen.push_back({judge_model(judge)});
  if (config.objective.policy.has_critic()) {
    request.critic = critic_model(config, model);
    // Files of the policy's in NF4 say nothing of another model's.
    if (config.nf4 && !config.nf4->is_in_files) request.critic_nf4_bits = config.nf4->bits();
  }
  request.nf4_bits = nf4_bits_of(config);
  request.wide_logits = wide_logits_of(config);
  if (config.objective.draws()) request.rollout = rollout_of(config, model, longest);
  if (config.shares_passes()) request.packed = config.longest_sample();
  request.cut_into(settings::accumulation_of(config.batch), config.batch.micro_batch_size);
  // Samples that are put together make fewer passes; virtual stages need as many as stages.
  if (config.chunks > 1)
    request.num_micro_batches = std::max(request.num_micro_batches, config.mesh.pipeline);
  return request;
}

}  // namespace danlu::plan
