// Every choice of every option of every verb is typed once. What comes of it is not asked here,
// only whether it is taken, or refused by an error that names the option.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "options/example_lines.h"
#include "options/typed_line.h"

namespace danlu::test {
namespace {

/// Words that options take without a list of choices in their table: their help has them.
const std::map<std::string, Words>& words_without_list() {
  static const std::map<std::string, Words> words = {
      {"lr_scheduler",
       {"linear", "cosine", "constant", "constant_with_warmup", "cosine_with_restarts",
        "polynomial", "inverse_sqrt", "wsd", "WarmupLR", "WarmupDecayLR"}},
      {"loss_type",
       {"sigmoid", "hinge", "ipo", "robust", "simpo", "orpo", "kto", "apo_zero_unpaired", "grpo",
        "bnpo", "dapo", "dr_grpo"}},
      {"template", {"hf", "chatml", "qwen", "alpaca", "default", "empty"}},
      {"prompt_type", {"hf", "chatml", "qwen", "alpaca", "default", "empty"}},
      {"resume", {"auto", "none", "true", "false"}},
      {"fsdp",
       {"full_shard", "shard_grad_op", "hybrid_shard", "hybrid_shard_zero2", "no_shard",
        "full_shard auto_wrap", "full_shard auto_wrap offload"}},
      {"deepspeed",
       {"default-zero2", "default-zero3", "zero0", "zero1", "zero2", "zero3", "zero2_offload",
        "zero3_offload"}},
      {"report_to", {"tensorboard", "all", "none", "wandb", "swanlab"}},
      {"offload", {"optimizer", "params"}},
      {"activation_offload_modules",
       {"input_norm", "self_attention", "post_attention_norm", "mlp"}},
      {"lora_target", {"all-linear", "all", "ALL", "all_linear", "DEFAULT", "q_proj"}},
      {"device", {"cpu", "auto"}},
      {"machine", {"atlas-800t-a2", "a100-80g", "h100-80g", "cpu-node"}},
      {"apply_chat_template", {"hf", "chatml"}},
      {"batch_size", {"auto", "2"}},
      {"max_shard_size", {"5GB", "500MB"}},
      {"iteration", {"release", "1"}},
      {"target_iteration", {"release", "7"}},
      {"handler_name", {"AlpacaStyleInstructionHandler"}},
  };
  return words;
}

bool is_inert(const OptionSpec& spec) {
  return !spec.ignored_because.empty() || !spec.unavailable_because.empty();
}

/// As messages and lists here write them, "true" and "false" for switches.
Words values_of(const OptionSpec& spec) {
  Words values = spec.choices;
  const bool is_switch = spec.type == OptionType::kBool || spec.may_be_alone;
  if (is_switch) values = values + Words{"true", "false"};
  if (is_inert(spec) && !is_switch)
    values = values + Words{spec.choices.empty() ? "false" : "x", "1"};
  if (is_inert(spec) || !spec.choices.empty()) return values;
  const auto more = words_without_list().find(spec.name);
  const bool takes_words = spec.type == OptionType::kString || spec.type == OptionType::kList;
  if (more != words_without_list().end() && takes_words) values = values + more->second;
  if (!spec.default_text.empty() && spec.default_text != "-") values.push_back(spec.default_text);
  return values;
}

Words words_for(const OptionSpec& spec, const std::string& value) {
  const bool is_switch = spec.type == OptionType::kBool || spec.may_be_alone;
  if (is_switch && value == "true") return {"--" + spec.name};
  if (is_switch && value == "false") return {"--no_" + spec.name};
  return {"--" + spec.name + "=" + value};
}

const std::set<std::string>& refused_by(const std::string& verb) {
  static const std::set<std::string> by_training = {
      "rlhf_type=dpo", "rlhf_type=orpo", "rlhf_type=simpo", "rlhf_type=cpo", "rlhf_type=kto",
      "rlhf_type=grpo", "rlhf_type=ppo", "rlhf_type=rm", "rlhf_type=gkd", "do_train=false",
      "use_chat_template=false", "context_parallel_algo=adaptive_cp_algo",
      "context_parallel_algo=hybrid_adaptive_cp_algo",
      // These belong to other models than the lines'.
      "normalization=LayerNorm", "position_embedding_type=alibi",
      "position_embedding_type=learned_absolute", "swiglu=false", "qk_layernorm=true",
      "multi_head_latent_attention=true", "moe_router_enable_expert_bias=true",
      "moe_router_load_balancing_type=sinkhorn", "embed_layernorm=true", "post_norm=true",
      "add_rmsnorm_offset=true", "input_embeds_norm=true", "geglu=true", "gelu_tanh=true",
      "add_dense_bias=true", "add_output_layer_bias=true", "use_glm_rope=true",
      "rope_scaling_type=linear", "rope_scaling_type=dynamic", "rope_scaling_type=llama3",
      "rope_scaling_type=yarn", "rope_scaling_type=longrope",
      // Texts are split, conversations are not; and the line's model sees nothing.
      "truncation=split", "tuner=lora_llm"};
  // Adapters are small: their optimizer is Adam.
  static const std::set<std::string> of_adapters = {"optim=apollo",       "optim=galore",
                                                    "optim=galore_adamw", "use_apollo=true",
                                                    "use_badam=true",     "use_galore=true"};
  // These belong to other objectives than the lines'.
  static const std::set<std::string> of_rlhf = [] {
    std::set<std::string> refused = by_training;
    for (const char* type : {"dpo", "orpo", "simpo", "cpo", "kto", "rm", "ppo", "grpo", "gkd"})
      refused.erase(std::string("rlhf_type=") + type);
    refused.insert({"loss_type=kto", "loss_type=apo_zero_unpaired", "loss_type=grpo",
                    "loss_type=bnpo", "loss_type=dapo", "loss_type=dr_grpo"});
    refused.insert({"task_type=seq_cls", "task_type=embedding", "task_type=reranker",
                    "task_type=generative_reranker", "enable_dft_loss=true", "use_eaft_loss=true",
                    "use_asft_loss=true"});
    refused.insert(of_adapters.begin(), of_adapters.end());
    // Beside the full recomputation of ms-swift's profile.
    refused.insert({"recompute_norm=true", "recompute_activation_function=true"});
    return refused;
  }();
  // The example's template writes no tools.
  static const std::set<std::string> of_sft = [] {
    std::set<std::string> refused = by_training;
    // It trains adapters, and they have no whole model as it was.
    refused.insert({"agent_template=hermes", "use_asft_loss=true"});
    refused.insert(of_adapters.begin(), of_adapters.end());
    return refused;
  }();
  // Four bits are for adapters, and these verbs train whole weights.
  static const std::set<std::string> of_full = [] {
    std::set<std::string> refused = by_training;
    refused.insert({"load_in_4bit=true", "qlora=true"});
    return refused;
  }();
  // Nothing is evaluated by default.
  static const std::set<std::string> of_train = [] {
    std::set<std::string> refused = of_full;
    refused.insert("save_strategy=best");
    return refused;
  }();
  static const std::set<std::string> of_pretrain = [] {
    std::set<std::string> refused = of_full;
    refused.insert({"task_type=seq_cls", "task_type=embedding", "task_type=reranker",
                    "task_type=generative_reranker"});
    refused.erase("use_chat_template=false");
    refused.erase("truncation=split");
    return refused;
  }();
  static const std::map<std::string, std::set<std::string>> by_verb = {
      {"sft", of_sft},
      {"pretrain", of_pretrain},
      {"train", of_train},
      {"posttrain", of_full},
      {"rlhf", of_rlhf},
      {"plan",
       {"offload=params", "context_parallel_algo=adaptive_cp_algo",
        "context_parallel_algo=hybrid_adaptive_cp_algo"}},
      {"chat", {"quantization=gguf"}},
      {"eval", {"style=mindspeed-cot", "chain_of_thought=true", "quantization=gguf"}},
      {"infer",
       {"load_dataset_config=true", "task_type=seq_cls", "task_type=reranker",
        "task_type=generative_reranker", "problem_type=regression",
        "problem_type=single_label_classification", "problem_type=multi_label_classification",
        "quantization=gguf"}},
      {"convert",
       {"to=peft",
        "to=mm",
        "moe_tp_extend_ep=true",
        "with_optimizer=true",
        "use_distributed_optimizer=true",
        "use_distributed_optimizer=false",
        "overlap_grad_reduce=true",
        "overlap_grad_reduce=false",
        "load_model_type=mg",
        "load_model_type=optim",
        "save_model_type=hf",
        "load_from_legacy=true",
        "orm=true",
        "add_qkv_bias=false",
        "add_dense_bias=true",
        "w_pack=true",
        "embed_layernorm=true",
        "add_output_layer_bias=true",
        "post_norm=true",
        "save_lora_to_hf=true",
        "save_to_legacy=true"}},
  };
  static const std::set<std::string> none;
  const auto at = by_verb.find(verb);
  return at == by_verb.end() ? none : at->second;
}

class EveryVerb : public testing::TestWithParam<std::string> {
 protected:
  /// The option's value and the fate of a line that gives it.
  Outcome outcome_of(const OptionSpec& spec, const std::string& value) const {
    const ExampleLine line = example_line(command_.name);
    // What no verb reads is not carried to it; what holds anyway goes no further than its settings.
    const Reach most = is_inert(spec)               ? Reach::kOptions
                       : value == spec.default_text ? Reach::kSettings
                                                    : Reach::kEnd;
    const Words words =
        line.words + words_for(spec, value) + companions_of(spec.name + "=" + value);
    return type_line(command_, table_, words, &spec, std::min(line.reach, most));
  }
  Json value_of(const OptionSpec& spec, const Words& typed) const {
    const Words words = example_line(command_.name).words + typed;
    return table_.parse(words, command_.accepts_config).to_json()[spec.name];
  }

  const cli::Command& command_ = *cli::find_command(GetParam());
  const OptionTable table_ = command_.options();
};

TEST_P(EveryVerb, TakesEveryChoiceOrNamesTheOptionThatItRefuses) {
  const ExampleLine line = example_line(command_.name);
  if (line.reach != Reach::kOptions) {
    const Outcome plain = type_line(command_, table_, line.words, nullptr, line.reach);
    ASSERT_EQ(plain.fate, Fate::kTaken) << plain.text;
  }
  std::set<std::string> refused;
  for (const OptionSpec& spec : table_.specs()) {
    for (const std::string& value : values_of(spec)) {
      const Outcome outcome = outcome_of(spec, value);
      const std::string choice = spec.name + "=" + value;
      EXPECT_TRUE(outcome.fate != Fate::kBroken)
          << "danlu " << command_.name << ", " << choice << ":\n  " << outcome.text;
      EXPECT_EQ(outcome.text.find("--no_" + spec.name + " false"), std::string::npos)
          << outcome.text;
      if (spec.unavailable_because.empty()) {
        if (outcome.fate == Fate::kRefused) refused.insert(choice);
        continue;
      }
      const bool is_off = spec.choices.empty()
                              ? value == "false"
                              : std::count(spec.choices.begin(), spec.choices.end(), value) > 0;
      EXPECT_EQ(outcome.fate, is_off ? Fate::kTaken : Fate::kRefused) << choice << outcome.text;
    }
  }
  const std::set<std::string>& expected = refused_by(command_.name);
  for (const std::string& choice : refused)
    EXPECT_TRUE(expected.count(choice)) << choice << " is refused, and not listed";
  for (const std::string& choice : expected)
    EXPECT_TRUE(refused.count(choice)) << choice << " is listed, and not refused";
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

TEST_P(EveryVerb, TakesEveryNameOfAnOptionAndEverySpellingOfAValue) {
  for (const OptionSpec& spec : table_.specs()) {
    if (is_inert(spec)) continue;  // under many names
    const std::string flag = "--" + spec.name;
    for (const std::string& choice : spec.choices) {
      EXPECT_EQ(value_of(spec, {flag, upper(choice)}), value_of(spec, {flag, choice})) << flag;
    }
    if (spec.type == OptionType::kBool) {
      for (const Words& yes :
           {Words{flag}, {flag, "true"}, {flag + "=1"}, {"--no-" + spec.name, "False"}})
        EXPECT_EQ(value_of(spec, yes), true) << testing::PrintToString(yes);
      if (table_.find_spec("no_" + spec.name)) continue;  // --no_shuffle is an option itself
      for (const Words& no : {Words{"--no-" + spec.name}, {flag, "False"}, {flag + "=no"}})
        EXPECT_EQ(value_of(spec, no), false) << testing::PrintToString(no);
    }
    const Words values = values_of(spec);
    if (values.empty()) continue;
    for (const std::string& alias : spec.aliases) {
      const std::string other = (alias.size() == 1 ? "-" : "--") + alias;
      EXPECT_EQ(value_of(spec, {other + "=" + values[0]}), value_of(spec, {flag + "=" + values[0]}))
          << other;
    }
  }
}

std::vector<std::string> all_verbs() {
  std::vector<std::string> names;
  for (const cli::Command& command : cli::commands()) names.push_back(command.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Options, EveryVerb, testing::ValuesIn(all_verbs()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace danlu::test
