#include "settings/identity.h"

#include <fmt/format.h>

#include <vector>

#include "base/file.h"
#include "settings/objective_difference.h"
#include "settings/options/media_flags.h"
#include "weights/hf/fingerprint.h"
#include "weights/hf/value_head.h"

namespace danlu::settings {
namespace fs = std::filesystem;
namespace {

Json lora_identity(const TrainConfig& config) {
  if (config.tuner != Tuner::kLora) return nullptr;
  const weights::PeftConfig& lora = config.lora;
  Json identity = {{"rank", lora.rank},
                   {"alpha", lora.alpha},
                   {"dropout", lora.dropout},
                   {"rslora", lora.rslora},
                   {"dora", lora.dora},
                   {"targets", lora.target_modules},
                   {"modules_to_save", lora.modules_to_save}};
  // Earlier checkpoints have the one start that there was.
  if (lora.start.kind != weights::AdapterStart::Kind::kUniform)
    identity["start"] = lora.start.name();
  return identity;
}

/// Null of runs whose base is as its files have it.
Json nf4_identity(const TrainConfig& config) {
  if (!config.nf4 || config.nf4->is_in_files) return nullptr;
  return {{"doubly", config.nf4->doubly}};
}

/// Null of runs that ask nothing of routers.
Json router_identity(const TrainConfig& config) {
  const RouterTraining& routers = config.routers;
  if (routers == RouterTraining{}) return nullptr;
  return {{"loss", static_cast<int>(routers.loss)},
          {"aux_loss_coef", routers.aux_loss_coef},
          {"group_loss_coef", routers.group_loss_coef},
          {"group_sent_loss_coef", routers.group_sent_loss_coef},
          {"z_loss_coef", routers.z_loss_coef},
          {"capacity_factor", routers.capacity_factor},
          {"drop", static_cast<int>(routers.drop)},
          {"bias_update_rate", routers.bias_update_rate},
          {"sinkhorn", routers.sinkhorn},
          {"input_jitter", routers.input_jitter},
          {"draws_picks", routers.draws_picks}};
}

Json loss_scale_identity(const TrainConfig& config) {
  if (config.precision != Precision::kF16) return nullptr;
  const LossScaleConfig& scale = config.loss_scale;
  return {{"fixed", scale.fixed_scale},
          {"initial", scale.initial_scale},
          {"window", scale.window},
          {"hysteresis", scale.hysteresis},
          {"min", scale.min_scale}};
}

/// Null of runs whose optimizer is AdamW alone.
Json muon_identity(const TrainConfig& config) {
  if (!config.adamw.muon) return nullptr;
  const MuonConfig& muon = *config.adamw.muon;
  return {{"momentum", muon.momentum},         {"nesterov", muon.nesterov},
          {"coefficients", muon.coefficients}, {"num_steps", muon.num_steps},
          {"scale_mode", muon.scale_mode},     {"extra_scale", muon.extra_scale}};
}

/// The optimizer whose state a run has; null of AdamW alone.
Json optimizer_identity(const TrainConfig& config) {
  const AdamWConfig& adamw = config.adamw;
  if (adamw.muon) return "muon";
  if (adamw.mini) return "adam_mini";
  if (adamw.low_rank) return adamw.low_rank->name();
  if (!adamw.turns) return nullptr;
  // Which layers have had how many updates follows from these.
  const LayerTurns& turns = *adamw.turns;
  return {{"name", turns.name()},
          {"order", static_cast<int>(turns.order)},
          {"layers", turns.layers},
          {"interval", turns.interval},
          {"start", turns.start ? Json(*turns.start) : Json(nullptr)},
          {"seed", turns.seed}};
}

/// Null of runs whose optimizer has no subspaces: what its state's tensors follow from.
Json subspace_identity(const TrainConfig& config) {
  if (!config.adamw.low_rank) return nullptr;
  const LowRankConfig& low = *config.adamw.low_rank;
  return {{"rank", low.rank},
          {"side", low.side},
          {"draws", low.draws},
          {"targets", low.targets},
          {"with_embedding", low.with_embedding}};
}

/// Null likewise.
Json low_rank_identity(const TrainConfig& config) {
  if (!config.adamw.low_rank) return nullptr;
  const LowRankConfig& low = *config.adamw.low_rank;
  return {{"interval", low.interval},
          {"scale", low.scale},
          {"has_one_factor", low.has_one_factor},
          {"scales_first", low.scales_first},
          {"seed", low.seed}};
}

Json group_rules(const TrainConfig& config) {
  Json rules = Json::array();
  for (const GroupRule& rule : config.adamw.groups.rules)
    rules.push_back({rule.pattern, rule.lr_scale, rule.weight_decay});
  return rules;
}

/// Null of models that read text alone: their runs know no pictures.
Json media_identity(const TrainConfig& config) {
  if (!data::reads_media(processor_directory(config))) return nullptr;
  const data::MediaFlags& media = config.data.media;
  const auto limit = [](const std::optional<int64_t>& pixels) {
    return pixels ? Json(*pixels) : Json(nullptr);
  };
  Json identity = {{"pre_resize", media.pre_resize},
                   {"pixels", {limit(media.min_pixels), limit(media.max_pixels)}},
                   {"image_pixels", {limit(media.image_min_pixels), limit(media.image_max_pixels)}},
                   {"video_pixels", {limit(media.video_min_pixels), limit(media.video_max_pixels)}},
                   {"video_fps", media.video_fps ? Json(*media.video_fps) : Json(nullptr)},
                   {"video_max_frames", limit(media.video_max_frames)},
                   {"upright", media.upright},
                   {"add_vision_id", media.add_vision_id}};
  // Runs that began before these were known gave none of them.
  for (const auto& [name, value] : {std::pair("frame_min_pixels", &media.frame_min_pixels),
                                    std::pair("frame_max_pixels", &media.frame_max_pixels),
                                    std::pair("video_total_pixels", &media.video_total_pixels),
                                    std::pair("video_min_frames", &media.video_min_frames),
                                    std::pair("image_min_tokens", &media.image_min_tokens),
                                    std::pair("image_max_tokens", &media.image_max_tokens),
                                    std::pair("frame_min_tokens", &media.frame_min_tokens),
                                    std::pair("frame_max_tokens", &media.frame_max_tokens)}) {
    if (*value) identity[name] = **value;
  }
  if (media.boxes_of_seen_pixels) identity["boxes_of_seen_pixels"] = *media.boxes_of_seen_pixels;
  if (media.boxes_are_lists) identity["boxes_are_lists"] = true;
  return identity;
}

/// Null of runs that do not train such layers.
Json prediction_identity(const TrainConfig& config) {
  const PredictionTraining& prediction = config.prediction;
  if (prediction.layers == 0) return nullptr;
  return {{"layers", prediction.layers},
          {"loss_factor", prediction.loss_factor},
          {"normed", prediction.normed}};
}

/// What a reward model is, with its adapter where it is one.
std::string judge_identity(const fs::path& path) {
  const ModelSource source = reward_model_at(path);
  std::string identity = model_identity(open_model(source));
  if (source.adapter.empty()) return identity;
  const auto adapter =
      weights::with_value_head(weights::open_weights(source.adapter), source.adapter);
  return identity + fmt::format(" {:016x}", weights::model_fingerprint(adapter->files()));
}

/// With what the weights of the reference and of judges are, where these are models.
Json objective_identity_of(const TrainConfig& config) {
  Json identity = objective_identity(config.objective);
  const fs::path& reference = config.objective.reference;
  if (!reference.empty()) {
    ModelSource source;
    source.path = reference;
    identity["reference"] = model_identity(open_model(source));
  }
  for (const fs::path& judge : config.objective.policy.reward_models)
    identity["reward_models"].push_back(judge_identity(judge));
  return identity;
}

/// Null of models that are as their files have them.
Json positions_identity(const TrainConfig& config) {
  const arch::PositionChange& change = config.model.changes.positions;
  if (change.empty()) return nullptr;
  return {{"scaling", change.scaling},
          {"positions", change.max_positions ? Json(*change.max_positions) : Json()}};
}

Json tokens_identity(const TrainConfig& config) {
  const ModelChanges& changes = config.model.changes;
  if (changes.tokens.empty() && changes.rows.empty()) return nullptr;
  Json tokens = Json::array();
  for (const text::NewToken& token : changes.tokens)
    tokens.push_back({token.content, token.special});
  return {{"tokens", tokens},
          {"rows", changes.rows.vocab_size},
          {"noise", static_cast<int>(changes.rows.noise)}};
}

/// What an identity is made from.
struct Facts {
  const TrainConfig& config;
  const weights::CheckpointSource& source;
  const RunPlan& plan;
};

/// A whole number where it is one, as earlier versions wrote it.
Json warmup_identity(const ScheduleConfig& schedule) {
  const auto whole = static_cast<int64_t>(schedule.warmup_steps);
  return static_cast<double>(whole) == schedule.warmup_steps ? Json(whole)
                                                             : Json(schedule.warmup_steps);
}

/// One key of an identity.
struct Row {
  const char* key;
  bool may_change;  ///< in a run that goes on from a checkpoint which the user named
  Json (*value)(const Facts& facts);
  /// Checkpoints without the key had the setting, and nobody knows as what: it is not compared.
  bool may_lack = false;
};

constexpr bool kFixed = false, kMayChange = true;

/// What is trained, and on what.
const std::vector<Row>& rows_of_run() {
  using F = const Facts&;
  static const std::vector<Row> list = {
      {"stage", kFixed, [](F f) -> Json { return task_name(f.config.task); }},
      {"objective", kFixed, [](F f) -> Json { return objective_identity_of(f.config); }},
      {"tuner", kFixed, [](F f) -> Json { return tuner_name(f.config.tuner); }},
      {"precision", kMayChange, [](F f) -> Json { return precision_name(f.config.precision); }},
      {"seed", kFixed, [](F f) -> Json { return f.config.seed; }},
      {"model", kFixed, [](F f) -> Json { return model_identity(f.source); }},
      {"from_scratch", kFixed, [](F f) -> Json { return f.config.model.from_scratch; }},
      {"rope_scaling", kFixed, [](F f) -> Json { return positions_identity(f.config); }},
      {"new_special_tokens", kFixed, [](F f) -> Json { return tokens_identity(f.config); }},
      {"lora", kFixed, [](F f) -> Json { return lora_identity(f.config); }},
      {"mtp", kFixed, [](F f) -> Json { return prediction_identity(f.config); }},
      {"routers", kMayChange, [](F f) -> Json { return router_identity(f.config); },
       /*may_lack=*/true},
      {"nf4", kFixed, [](F f) -> Json { return nf4_identity(f.config); }},
      {"neftune_noise_alpha", kMayChange,
       [](F f) -> Json { return f.config.noise_alpha > 0 ? Json(f.config.noise_alpha) : Json(); }},
      {"freeze", kFixed, [](F f) -> Json { return f.config.freeze; }},
      {"max_length", kFixed, [](F f) -> Json { return f.config.data.max_length; }},
      {"packing", kMayChange, [](F f) -> Json { return f.config.data.share_passes; }},
      {"loss_average", kFixed,
       [](F f) -> Json {
         return f.config.objective.averages_micro_batches ? Json("micro_batches") : Json(nullptr);
       }},
      {"pack_sequences", kFixed, [](F f) -> Json { return f.config.data.pack_sequences; }},
      {"texts_are_samples", kFixed,
       [](F f) -> Json {
         const bool are = f.config.task == Task::kPretrain && !f.config.data.uses_template;
         return are ? Json(true) : Json(nullptr);
       }},
      {"pictures", kFixed, [](F f) -> Json { return media_identity(f.config); }},
      {"shuffle", kFixed,
       [](F f) -> Json {
         return f.config.data.shuffles_once ? Json("once") : Json(f.config.data.shuffle);
       }},
      {"dataloader_drop_last", kFixed,
       [](F f) -> Json { return f.config.data.drops_last ? Json(true) : Json(nullptr); }},
      {"steps_run_on", kFixed,
       [](F f) -> Json { return f.config.data.runs_on ? Json(true) : Json(nullptr); }},
      {"texts_end_epochs", kFixed,
       [](F f) -> Json { return f.config.data.texts_end_epochs ? Json(true) : Json(nullptr); }},
      {"splits_rows", kFixed,
       [](F f) -> Json { return f.config.data.splits_rows ? Json(true) : Json(nullptr); }},
      {"data_seed", kFixed, [](F f) -> Json { return f.config.data.seed; }},
      {"batch_size", kMayChange, [](F f) -> Json { return f.config.batch.micro_batch_size; }},
      {"global_batch_size", kMayChange, [](F f) -> Json { return f.plan.global_batch_size; }},
      {"num_samples", kMayChange, [](F f) -> Json { return f.plan.num_samples; }},
      {"total_steps", kMayChange, [](F f) -> Json { return f.plan.total_steps; }}};
  return list;
}

/// How it is trained.
const std::vector<Row>& rows_of_optimizer() {
  using F = const Facts&;
  static const std::vector<Row> list = {
      // The state of one is none of the other's.
      {"optimizer", kFixed, [](F f) -> Json { return optimizer_identity(f.config); }},
      {"optimizer_subspace", kFixed, [](F f) -> Json { return subspace_identity(f.config); }},
      {"optimizer_low_rank", kMayChange, [](F f) -> Json { return low_rank_identity(f.config); }},
      {"muon", kMayChange, [](F f) -> Json { return muon_identity(f.config); }},
      {"adam_beta1", kMayChange, [](F f) -> Json { return f.config.adamw.beta1; }},
      {"adam_beta2", kMayChange, [](F f) -> Json { return f.config.adamw.beta2; }},
      {"adam_epsilon", kMayChange, [](F f) -> Json { return f.config.adamw.eps; }},
      {"weight_decay", kMayChange, [](F f) -> Json { return f.config.adamw.groups.weight_decay; }},
      {"weight_decay_on", kMayChange,
       [](F f) -> Json { return decay_rule_name(f.config.adamw.groups.decay_rule); }},
      {"param_groups", kMayChange, [](F f) -> Json { return group_rules(f.config); }},
      {"max_grad_norm", kMayChange, [](F f) -> Json { return f.config.max_grad_norm; }},
      {"loss_scale", kMayChange, [](F f) -> Json { return loss_scale_identity(f.config); }},
      {"lr", kMayChange, [](F f) -> Json { return f.plan.schedule.lr; }},
      {"min_lr", kMayChange, [](F f) -> Json { return f.plan.schedule.min_lr; }},
      {"start_lr", kMayChange, [](F f) -> Json { return f.plan.schedule.start_lr; }},
      {"lr_scheduler", kMayChange, [](F f) -> Json { return schedule_name(f.plan.schedule.kind); }},
      {"warmup_steps", kMayChange, [](F f) -> Json { return warmup_identity(f.plan.schedule); }},
      {"warmup_ramp", kMayChange,
       [](F f) -> Json { return ramp_name(f.plan.schedule.warmup_ramp); }},
      {"lr_decay_iters", kMayChange, [](F f) -> Json { return f.plan.schedule.total_steps; }},
      {"wsd_decay_steps", kMayChange, [](F f) -> Json { return f.plan.schedule.decay_steps; }},
      {"wsd_decay_style", kMayChange,
       [](F f) -> Json { return ramp_name(f.plan.schedule.decay_ramp); }},
      {"lr_power", kMayChange, [](F f) -> Json { return f.plan.schedule.power; }},
      {"lr_num_cycles", kMayChange, [](F f) -> Json { return f.plan.schedule.num_cycles; }}};
  return list;
}

/// nullptr: no row has the key.
const Row* row_of(const std::string& key) {
  for (const auto* list : {&rows_of_run(), &rows_of_optimizer()}) {
    for (const Row& row : *list) {
      if (key == row.key) return &row;
    }
  }
  return nullptr;
}

}  // namespace

std::string model_identity(const weights::CheckpointSource& source) {
  if (!source.model && source.companions.empty() && source.files.empty())  // flags describe it
    return fmt::format("{:016x}", hash_bytes(source.config.raw.dump()));
  const bool is_hf_directory = source.format == weights::Format::kHuggingFace &&
                               std::filesystem::is_directory(source.companions) &&
                               (!source.model || source.path == source.companions);
  return fmt::format("{:016x}", is_hf_directory ? weights::model_fingerprint(source.companions)
                                                : weights::model_fingerprint(source.files));
}

Json run_identity(const TrainConfig& config, const weights::CheckpointSource& source,
                  const RunPlan& plan) {
  Json identity = Json::object();
  for (const auto* list : {&rows_of_run(), &rows_of_optimizer()}) {
    for (const Row& row : *list) identity[row.key] = row.value({config, source, plan});
  }
  return identity;
}

IdentityChange compare_identities(const Json& saved, const Json& now, bool named) {
  IdentityChange found;
  for (const auto& [key, value] : now.items()) {
    const Row* const row = row_of(key);
    if (row && row->may_lack && !saved.contains(key)) continue;
    const Json before = saved.contains(key) ? saved.at(key) : Json(nullptr);
    if (before == value) continue;
    std::string& list = named && row && row->may_change ? found.tolerable : found.fatal;
    const std::string difference = key == "objective" ? objective_difference(before, value)
                                                      : difference_of(key, before, value);
    list += (list.empty() ? "" : "; ") + difference;
  }
  return found;
}

}  // namespace danlu::settings
