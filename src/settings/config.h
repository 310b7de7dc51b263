// settings/config.h: everything a training run is told, as one plain struct; parsed from options,
// checked before anything heavy is loaded, saved with every checkpoint.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "arch/pipeline.h"
#include "arch/placement.h"
#include "base/json.h"
#include "base/rank_place.h"
#include "data/formats/self_names.h"
#include "data/media_settings.h"
#include "data/readers/row_choice.h"
#include "settings/activation_offload.h"
#include "settings/mesh_shape.h"
#include "settings/model_setup.h"
#include "settings/model_source.h"
#include "settings/objective_config.h"
#include "settings/optimizer.h"
#include "settings/prediction_training.h"
#include "settings/recompute_layers.h"
#include "settings/router_training.h"
#include "settings/schedule.h"
#include "settings/sharing.h"
#include "text/trained_part.h"

namespace danlu::settings {

enum class Task { kPretrain, kSft };
enum class Tuner { kFull, kLora, kFreeze };
enum class Precision { kF32, kBF16, kF16 };
/// kBest: whenever an evaluation is better than all before it. kEnd: once, after the last step.
enum class Interval { kNo, kSteps, kEpoch, kBest, kEnd };
enum class SaveFormat { kHf, kMegatron };

/// Where in its directory a run keeps checkpoints in Megatron's format.
inline constexpr const char* kMegatronFolder = "megatron";

std::string task_name(Task task);
std::string tuner_name(Tuner tuner);
std::string precision_name(Precision precision);

struct DataConfig {
  std::vector<std::string> train;       ///< as the user wrote them
  std::vector<std::string> validation;  ///< empty: held out of `train`
  double validation_ratio = 0;          ///< [0, 1)
  int64_t validation_rows = 0;          ///< > 0: so many rows instead of a part
  std::string megatron_split;           ///< "949,50,1"; only with .bin/.idx prefixes
  int64_t max_length = 0;               ///< tokens; > 0
  std::string truncation = "delete";    ///< delete | right | left | shares
  bool share_passes =
      true;  ///< samples of a step share passes of at most max_length × batch_size tokens
  bool pack_sequences = false;  ///< packs of max_length tokens are what batch sizes count
  bool shuffle = true;
  std::filesystem::path
      write_to;                ///< samples are written there, and the run ends; empty: it trains
  bool shuffles_once = false;  ///< the first epoch's order is that of all
  bool drops_last = false;     ///< samples that fill no micro-batch of all ranks
  bool runs_on = false;        ///< steps go on into the next epoch, as Megatron's do
  uint64_t seed = 42;
  int64_t max_rows = -1;           ///< of each data set; -1: all
  bool limits_validation = false;  ///< max_rows is of validation sets, too
  /// Which rows path#n takes, and num_samples of a dataset_info.json.
  data::RowChoice choice = data::RowChoice::kFirst, choice_by_info = data::RowChoice::kFirst;
  bool strict = false;
  double max_dropped_ratio = 0.5;  ///< of a data set's rows; more is an error
  int64_t workers = 0;             ///< 0: all CPUs
  /// Threads that decode pictures and videos ahead of the step; 0: the step decodes its own.
  std::optional<int64_t> media_workers;
  std::filesystem::path cache_dir, dataset_dir;
  bool overwrite_cache = false;
  bool append_eod = true, eod_mask_loss = false, reset_position_ids = false,
       reset_attention_mask = false;
  std::string handler_name;
  Json columns, map_keys;  ///< null: not given
  std::vector<std::string> json_keys;
  std::string template_name = "auto";
  bool has_hermes_tools = false;  ///< the template is to write tools in that form
  bool uses_template = true;      ///< false: texts that are sorted are read as they stand
  std::filesystem::path templates_file;
  std::string system;
  data::SelfNames names;               ///< that answers of self-cognition rows are given
  Json template_variables;             ///< an object, or null
  bool variables_are_assumed = false;  ///< by the profile: for named templates that know them
  text::TrainedPart learnt;            ///< of each conversation
  /// Answers of earlier rounds are learnt too, of preferences (data::FormatOptions).
  bool learns_all_rounds = false;
  int64_t max_rows_of_all = -1;   ///< of all training sets together; -1: all
  data::MediaFlags media;         ///< of models that read pictures
  bool splits_rows = false;       ///< what is held out is chosen before rows are (data::SampleSpec)
  bool texts_end_epochs = false;  ///< of plain texts too, the last step of an epoch is what is left
};

struct BatchConfig {
  int64_t micro_batch_size = 1;
  int64_t eval_batch_size = 0;    ///< 0: micro_batch_size
  int64_t accumulation = 0;       ///< 0: from global_batch_size
  int64_t global_batch_size = 0;  ///< 0: from accumulation, else the smallest multiple with ≥ 16
  double epochs = 1;
  int64_t max_steps = -1;     ///< > 0 overrides epochs
  int64_t train_samples = 0;  ///< > 0: instead of max_steps
  int64_t max_epochs = 0;     ///< > 0: the run ends after so many at the latest
  int64_t ranks = 1;          ///< of the data axis: they share the samples of a step
};

struct ScheduleChoice {
  ScheduleConfig shape;        ///< warmup_steps, total_steps and decay_steps are filled by the plan
  double warmup_ratio = 0.05;  ///< of all steps
  std::optional<double> warmup_fraction;  ///< of the decay's steps, as Megatron counts
  bool scales_by_sample = false;          ///< Megatron's inverse square root, which counts samples
  std::optional<int64_t> warmup_steps, decay_total_steps, wsd_decay_steps;
  /// The same in samples, of which a step has RunPlan::global_batch_size.
  std::optional<int64_t> warmup_samples, decay_samples, wsd_decay_samples;
  /// kWarmupStableDecay without wsd_decay_…: a third of what follows the warm-up is constant, as
  /// LLaMA-Factory has it; else nine tenths of the run.
  bool is_stable_for_a_third = false;
};

/// Whose form the console line of a step has.
enum class LogFormat {
  kDanlu,
  kHf,        ///< the dict of Hugging Face's Trainer
  kMegatron,  ///< " [time] iteration 1/10 | consumed samples: …", which scripts of MindSpeed cut up
};

struct OutputConfig {
  /// The run's directory; versioned: the one in which its directory, vN-date, is made or found
  /// (train::run).
  std::filesystem::path directory;
  bool versioned = false;
  bool overwrite = false;
  std::string resume = "auto";  ///< auto | none | a checkpoint directory
  /// By --finetune, which MindSpeed's scripts carry: `resume` is none, but what the same line began
  /// in its directory is gone on with.
  bool begins_anew = false;
  Interval save = Interval::kSteps, evaluate = Interval::kSteps;
  int64_t save_steps = 500, eval_steps = 0;  ///< eval_steps 0: save_steps
  int64_t save_total_limit = 2;              ///< 0: all
  bool save_only_model = false, load_best_at_end = false;
  SaveFormat save_format = SaveFormat::kHf;  ///< kMegatron: checkpoints in that format as well
  /// What Megatron's checkpoints say of the run that goes on from them: there the optimizer is a
  /// distributed one where the line asks for it, though there be one copy of the model.
  bool distributed_optimizer = false, overlap_grad_reduce = false, transformer_engine = false;
  int64_t vocab_divisor = 1;
  bool merges_adapters = false;    ///< in the end, into a model of its own beside the run
  bool adapters_alone = false;     ///< of LoRA's: without the base model beside them
  int64_t eval_batches = 0;        ///< 0: all
  bool eval_counts_steps = false;  ///< eval_batches are of as many samples as a step has (Megatron)
  /// Evaluations in a row without a better loss that end the run; 0: none do.
  int64_t early_stop = 0;
  int64_t logging_steps = 5;
  std::string run_name;  ///< of the TensorBoard run; may be empty
  bool log_first_step = true, tensorboard = true, plot_loss = true;
  LogFormat log_format = LogFormat::kDanlu;
  double device_tflops = 0;          ///< 0: measured
  double slow_after_s = 20;          ///< a step that takes longer says so
  std::optional<DType> final_dtype;  ///< of the weights written at the end
  /// Parts of all steps, rounded up, in the place of the numbers above; 0: those hold.
  struct Shares {
    double save = 0, eval = 0, logging = 0;
  };
  Shares shares = {};
  /// Figure of an evaluation that says which checkpoint is best; empty: the loss.
  std::string best_metric;
  bool best_is_greatest = false;  ///< of best_metric
  /// The numbers of steps that the shares come to. REQUIRES: total_steps > 0.
  void count_shares(int64_t total_steps);
  bool saves_best = true;  ///< what is better than all before is saved, whatever save_steps says
  bool stops_at_saves = false;  ///< early_stop counts checkpoints instead of evaluations
};

/// `share` of so many steps, rounded up, as transformers counts.
int64_t steps_of_share(double share, int64_t total_steps);

/// Whose defaults hold where nothing was said.
struct ProfileInForce {
  std::string name = "danlu";
  std::string by;  ///< what chose it: a flag or file key as typed, a command; "": nothing did
  size_t num_values = 0;  ///< settings whose value is the profile's
};

struct TrainConfig {
  std::string verb = "sft";
  ProfileInForce profile;
  Task task = Task::kSft;
  Tuner tuner = Tuner::kLora;
  Precision precision = Precision::kBF16;
  RecomputeFlags recompute;
  ActivationOffload activation_offload;
  std::string device = "auto";
  uint64_t seed = 42;
  bool dry_run = false;
  bool is_planned = false;        ///< and not begun: what it reads and writes need not be there
  bool checks_plan = true;        ///< refuse what will not fit into memory
  RankPlace place;                ///< of this process
  MeshShape mesh;                 ///< how the processes share the work
  arch::PipelineLayers pipeline;  ///< which layers each of mesh.pipeline stages has
  arch::PipelineOrder order = arch::PipelineOrder::kOneForwardOneBackward;
  int64_t chunks = 1;  ///< runs of layers in each stage
  Keeping keeping;     ///< what copies of the model share, and what files hold
  /// Asked to be in host memory: on a CPU they are, and no other device has that yet.
  bool wants_state_in_host = false, wants_parameters_in_host = false;
  double dist_timeout_s = 1800;  ///< how long ranks wait for one another
  bool shares_cache = true;      ///< if machines see one; else each prepares its data

  ObjectiveConfig objective;
  ModelSource model;
  weights::PeftConfig lora = new_adapters();
  std::optional<Nf4Base> nf4;  ///< of LoRA: the base model's linear layers
  std::vector<std::string> freeze;
  DataConfig data;
  BatchConfig batch;
  ScheduleChoice schedule;
  AdamWConfig adamw;
  LossScaleConfig loss_scale;
  double max_grad_norm = 1.0;  ///< 0: no clipping
  double noise_alpha = 0;      ///< of the noise on embeddings (NEFTune); 0: none
  RouterTraining routers;      ///< of models with experts
  PredictionTraining prediction;
  int64_t max_bad_steps = 5;  ///< skipped steps in a row that end the run
  OutputConfig output;

  Json args = Json::object();      ///< every option with its value, as args.json holds it
  Json settings = Json::object();  ///< those that were given: config.yaml
  /// The keys of `args` that may differ from rank to rank, and those that say how this call begins
  /// and not which run it is (OptionScope).
  std::set<std::string> of_machine, of_start;

  /// Option -> how the user named it ("--per_device_train_batch_size", "run.yaml:3: lr").
  std::map<std::string, std::string> given_as;
  /// The name of `option` to use in messages: as the user named it, else "--option".
  std::string flag(const std::string& option) const;
  /// With its value, and where nobody named it, that it is the default.
  std::string said(const std::string& option, const std::string& value) const;
  std::string said(const std::string& option, int64_t value) const;
  /// The processes that share the samples of a step, and where their number comes from.
  std::string said_ranks() const;

  /// The most tokens of a sample that rows make: where it has several texts, of all.
  int64_t longest_sample() const {
    if (objective.draws()) return data.max_length + objective.policy.longest_answer();
    if (objective.kind == ObjectiveKind::kRanking)
      return data.max_length *
             (objective.ranking.most_positives + objective.ranking.most_negatives);
    if (objective.kind == ObjectiveKind::kEmbedding)
      return data.max_length * (2 + objective.embedding.hard_negatives);
    return data.max_length * (objective.has_two_texts() ? 2 : 1);
  }
  /// Whether samples share passes of up to max_length × batch_size tokens: not where a micro-batch
  /// has a mean of its own.
  bool shares_passes() const { return data.share_passes && !objective.averages_micro_batches; }
  /// Whether a run holds a second model, the reference of its objective: it has one, and that is
  /// not the model without its new adapters.
  bool holds_reference() const;

  /// Rules between fields. Errors: UsageError naming flag, value and rule.
  void validate() const;
};

}  // namespace danlu::settings
