// The options of danlu plan: its own beside those of the training that the line names. Where it
// names none, the training verbs' table with defaults of a plan: what that does not depend on is
// taken without effect.
#include "cli/commands/plan_options.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/message.h"
#include "cli/command.h"
#include "cli/commands/commands.h"
#include "cli/commands/train_options.h"
#include "cli/commands/train_profiles.h"

namespace danlu::cli {
namespace {

/// The options of training verbs that a plan depends on, beside the groups of recompute and of
/// splits.
const std::set<std::string>& planned() {
  static const std::set<std::string> names = {"model",
                                              "new_special_tokens",
                                              "add_special_tokens",
                                              "add_tokens",
                                              "resize_vocab",
                                              "tuner",
                                              "lora_rank",
                                              "lora_dropout",
                                              "init_weights",
                                              "pissa_init",
                                              "pissa_iter",
                                              "lora_target",
                                              "target_regex",
                                              "lora_modules_to_save",
                                              "freeze",
                                              "freeze_parameters_regex",
                                              "freeze_parameters_ratio",
                                              "trainable_parameters",
                                              "trainable_parameters_regex",
                                              "freeze_trainable_layers",
                                              "freeze_trainable_modules",
                                              "freeze_extra_modules",
                                              "use_llama_pro",
                                              "freeze_vit",
                                              "freeze_aligner",
                                              "freeze_llm",
                                              "mm_model",
                                              "max_pixels",
                                              "pre_resize",
                                              "image_max_pixels",
                                              "image_resolution",
                                              "max_length",
                                              "batch_size",
                                              "accum",
                                              "global_batch_size",
                                              "dtype",
                                              "bf16",
                                              "fp16",
                                              "save_steps",
                                              "optim",
                                              "use_muon",
                                              "use_galore",
                                              "galore_target",
                                              "galore_rank",
                                              "galore_proj_type",
                                              "galore_with_embedding",
                                              "use_apollo",
                                              "apollo_target",
                                              "apollo_rank",
                                              "apollo_proj",
                                              "apollo_proj_type",
                                              "use_adam_mini",
                                              "use_badam",
                                              "lisa_activated_layers",
                                              "muon_num_ns_steps",
                                              "deepspeed",
                                              "fsdp",
                                              "shard",
                                              "offload",
                                              "optimizer_cpu_offload",
                                              "optimizer_offload_fraction",
                                              "use_distributed_optimizer",
                                              "nproc",
                                              "nnodes"};
  return names;
}

bool is_planned(const OptionSpec& spec) {
  return planned().count(spec.name) > 0 || spec.group == "Model parallelism";
}

/// What has another default, or says more here.
void adapt(OptionSpec& spec) {
  static const std::map<std::string, std::pair<const char*, const char*>> texts = {
      {"model", {"", "model directory or config.json; no weights are read"}},
      {"tuner", {"full", "what is trained: all, or adapters"}},
      {"lora_dropout", {"0", "on the adapter's input"}},
      {"max_length", {"4096", "tokens of a sample"}},
      {"batch_size", {"1", "samples of a micro-batch"}},
      {"accum", {"", "micro-batches of a step; instead of global_batch_size"}},
      {"global_batch_size", {"64", "samples of a step"}},
      {"save_steps", {"", "steps between checkpoints: says what a failure costs"}},
      {"offload", {"", "optimizer: its state is kept and updated in host memory"}},
      {"nproc", {"", "devices of a machine (default: all)"}},
      {"nnodes", {"1", "machines"}}};
  if (const auto found = texts.find(spec.name); found != texts.end()) {
    spec.default_text = found->second.first;
    spec.help = found->second.second;
  }
  if (spec.name == "model") {
    spec.required = true;
    spec.word = 1;
    spec.aliases.insert(spec.aliases.end(), {"load", "load_dir"});  // Megatron's lines
  }
  if (spec.name == "tuner") spec.choices = {"full", "lora"};
  if (spec.name == "nnodes") spec.aliases = {"nodes"};
  if (spec.name != "nproc") spec.environment.clear();
  spec.scope = OptionScope::kRun;
  if (spec.group != "Model parallelism") spec.group = "Training";
}

void ignore(OptionSpec& spec) {
  spec.ignored_because = "a plan does not depend on it";
  spec.unavailable_because.clear();
  spec.unavailable_hint.clear();
  spec.environment.clear();
  spec.required = false;
  spec.word = 0;
}

}  // namespace

std::vector<OptionSpec> planning_options() {
  const std::string what = "Machine", out = "Output";
  return {
      {.name = "machine",
       .default_text = "atlas-800t-a2",
       .help = "atlas-800t-a2, a100-80g, h100-80g, cpu-node, or a file as recipes/machines has",
       .group = what},
      {.name = "devices",
       .type = OptionType::kInt,
       .help = "processes in all, one a device; instead of nnodes and nproc",
       .range = at_least(1),
       .group = what},
      {.name = "visual_tokens",
       .type = OptionType::kInt,
       .help = "tokens of a sample that are pictures (default: the most in the first rows of the "
               "data; where they are not there, one picture as large as --max_pixels and the "
               "model's processor let it be)",
       .range = at_least(0),
       .group = what},
      {.name = "expert_imbalance",
       .type = OptionType::kFloat,
       .default_text = "1",
       .help = "tokens of the rank whose experts are chosen most, as a multiple of the mean of the "
               "ranks that divide experts among them (--ep)",
       .range = at_least(1),
       .group = what},
      {.name = "auto",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "search splits, virtual stages, sharding, recompute, offload and batch sizes; "
               "show the ten fastest that fit",
       .group = out},
      {.name = "draw", .help = "write a picture of the schedule to this .svg file", .group = out},
      {.name = "json",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "print JSON",
       .group = out}};
}

OptionTable plan_options() {
  std::vector<OptionSpec> own = planning_options();
  std::set<std::string> names = {"load"};
  for (const OptionSpec& spec : own) names.insert(spec.name);
  for (OptionSpec& spec : train_recompute_options()) {
    names.insert(spec.name);
    own.push_back(std::move(spec));
  }
  for (auto* group : {train_model_options, train_data_options, train_optimizer_options,
                      train_parallel_options, train_run_options, train_preference_options,
                      train_embedding_options, train_ranking_options, train_reinforcement_options,
                      train_expert_options, train_megatron_options, train_foreign_options}) {
    for (OptionSpec& spec : group()) {
      if (!names.insert(spec.name).second) continue;
      is_planned(spec) ? adapt(spec) : ignore(spec);
      own.push_back(std::move(spec));
    }
  }
  OptionTable table("plan", "memory, traffic and time of a training before it runs",
                    "danlu plan [--machine NAME|FILE] [COMMAND] --model DIR [flags of a training]",
                    std::move(own));
  // The verb is not known here: only how a flag is spelled chooses a system.
  for (OptionProfile& profile : train_profiles("plan")) table.add_profile(std::move(profile));
  return table;
}

OptionTable plan_options_for(const Command& trains) {
  const OptionTable trained = trains.options();
  std::vector<OptionSpec> all = planning_options();
  for (OptionSpec spec : trained.specs()) {
    if (spec.name == "profile") continue;  // comes with the profiles
    if (spec.name == "max_length")
      spec.help =
          "longest sample in tokens (default: 2048, at most the model's window); data sets are not "
          "read: every sample is planned to be so long";
    if (spec.name == "nproc") spec.help = "devices of a machine (default: all)";
    if (spec.name == "nnodes") spec.aliases.emplace_back("nodes");
    all.push_back(std::move(spec));
  }
  const std::string name = "plan " + trains.name;
  OptionTable table(name, "memory, traffic and time of this training before it runs",
                    tr("danlu {} [--machine NAME|FILE] [flags of danlu {}]", name, trains.name),
                    std::move(all));
  for (OptionProfile& profile : train_profiles(trains.name)) table.add_profile(std::move(profile));
  return table;
}

}  // namespace danlu::cli
