// Training from preferences: which loss, against which reference.
#include "cli/commands/foreign_options.h"
#include "cli/commands/train_options.h"

namespace danlu::cli {

std::vector<OptionSpec> train_preference_options() {
  const std::string group = "Preferences";
  const auto weight = [&](std::string name, std::string fallback, std::string help,
                          std::vector<std::string> aliases = {}) {
    return OptionSpec{.name = std::move(name),
                      .type = OptionType::kFloat,
                      .default_text = std::move(fallback),
                      .help = std::move(help),
                      .aliases = std::move(aliases),
                      .range = at_least(0),
                      .group = group};
  };
  return {
      {.name = "rlhf_type",
       .help = "of danlu rlhf: the objective (default: dpo)",
       .choices = {"dpo", "orpo", "simpo", "cpo", "kto", "rm", "ppo", "grpo", "gkd"},
       .group = group},
      {.name = "loss_type",
       .help =
           "of dpo: sigmoid, hinge, ipo or robust (simpo and orpo: as these stages); of simpo "
           "and cpo: sigmoid or hinge; of kto: kto or apo_zero_unpaired; of grpo: grpo, bnpo, "
           "dapo, dr_grpo, sapo or cispo; of embedding: infonce, cosine_similarity, contrastive or "
           "online_contrastive; of rerankers: pointwise_reranker or listwise_reranker "
           "(default: the first)",
       .aliases = {"dpo_loss_type", "pref_loss", "simpo_loss_type"},
       .group = group},
      {.name = "ref_model",
       .help = "the model that dpo and kto measure against (default: the model without adapters, "
               "or as it was before the training)",
       .aliases = {"mcore_ref_model"},
       .group = group},
      {.name = "ref_model_iteration",
       .help = "which iteration of a ref_model in Megatron's format (default: the tracker file's)",
       .aliases = {"refer_model_iter"},
       .group = group},
      {.name = "teacher_model",
       .help = "of gkd: the model whose distributions are learnt, with the same tokenizer",
       .group = group},
      {.name = "lmbda",
       .type = OptionType::kFloat,
       .default_text = "0.5",
       .help = "of gkd: the fraction of on-policy steps: the model answers the rows' prompts "
               "itself (max_completion_length, temperature, …) and learns from these answers; in "
               "the other steps it learns from the rows' answers",
       .range = at_least(0).up_to(1),
       .group = group},
      {.name = "gkd_logits_topk",
       .type = OptionType::kInt,
       .help = "of gkd: compare the distributions over the K tokens that are likeliest to the "
               "teacher (default: over all)",
       .range = at_least(1),
       .group = group},
      weight("sft_alpha", "0",
             "of gkd: weight of the cross-entropy of rows' own answers beside it"),
      {.name = "precompute_ref_log_probs",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "of dpo and kto: what the reference gives to answers is computed once, kept in the "
               "cache, and the reference is not held in the training",
       .group = group},
      {.name = "disable_dropout",
       .type = OptionType::kBool,
       .default_text = "true",
       .help = "but of sft: adapters are trained without their dropout, as log-probabilities are "
               "compared with those of passes that have none",
       .group = group},
      {.name = "beta",
       .type = OptionType::kFloat,
       .default_text = "0.1",
       .help = "how far answers may leave the reference: less is farther; of orpo the weight of "
               "the odds; of gkd (default: 0.5) 0 for forward KL, KL(teacher||model), 1 for "
               "reverse KL, KL(model||teacher), between them Jensen-Shannon's divergence",
       .aliases = {"dpo_beta", "pref_beta"},
       .range = at_least(0),
       .group = group},
      {.name = "simpo_beta",
       .type = OptionType::kFloat,
       .default_text = "2.0",
       .help = "beta of simpo, where --beta is not given",
       .range = above(0),
       .group = group},
      weight("simpo_gamma", "1.0", "the margin that simpo asks for"),
      weight("gamma_beta_ratio", "", "the same as a multiple of beta"),
      {.name = "label_smoothing",
       .type = OptionType::kFloat,
       .default_text = "0",
       .help = "the share of pairs that are taken for mislabelled",
       .aliases = {"dpo_label_smoothing", "simpo_label_smoothing"},
       .range = at_least(0).below(0.5),
       .group = group},
      [&] {
        OptionSpec rpo_alpha =
            weight("rpo_alpha", "",
                   "weight of the chosen answers' cross-entropy, a mean over the step's tokens");
        rpo_alpha.may_be_none = true;
        return rpo_alpha;
      }(),
      weight("pref_ftx", "", "the same as a mean over each answer's tokens, then over pairs"),
      weight("cpo_alpha", "",
             "of cpo (default: 1) and simpo (default: 0; lines of ms-swift: 1): as --rpo_alpha"),
      {.name = "calculate_kl",
       .type = OptionType::kBool,
       .help = "of kto, Megatron-SWIFT's: false is --loss_type apo_zero_unpaired",
       .aliases = {"calculate_KL"},
       .group = group},
      weight("desirable_weight", "1.0", "of kto: weight of liked answers", {"kto_chosen_weight"}),
      weight("undesirable_weight", "1.0", "of kto: weight of disliked answers",
             {"kto_rejected_weight"}),
      weight("center_rewards_coefficient", "0",
             "of rm: weight of a term that keeps rewards around 0 (0.01 is usual)"),
      {.name = "placeholder_token",
       .default_text = "ки",
       .help = "of --stage prm: the token behind each step",
       .group = group},
      {.name = "reward_tokens",
       .type = OptionType::kList,
       .help = "of --stage prm: the tokens that steps are told apart by (default: the whole "
               "vocabulary is compared)",
       .group = group},
      {.name = "enable_dft_loss",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "of danlu sft: the loss of a token is times its probability, without its gradient "
               "(DFT), so that unlikely tokens change the model less",
       .aliases = {"use_dft_loss"},
       .group = group},
      {.name = "use_eaft_loss",
       .type = OptionType::kBool,
       .default_text = "false",
       .help =
           "of danlu sft: the loss of a token is times (H/3)^eaft_alpha, H the entropy of the 20 "
           "likeliest tokens there, without its gradient (EAFT), so that places which the model "
           "is sure of change it less",
       .group = group},
      weight("eaft_alpha", "1", "of --use_eaft_loss: the power"),
      {.name = "use_asft_loss",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "of danlu sft: as --enable_dft_loss, and asft_alpha times the divergence from the "
               "model as it was, or from --ref_model, is added (ASFT)",
       .group = group},
      weight("asft_alpha", "0.1", "of --use_asft_loss: the weight of the divergence"),
      {.name = "task_type",
       .default_text = "causal_lm",
       .help = "of danlu sft: what is trained: a model that answers, one that sorts texts "
               "(seq_cls), one that gives vectors of texts (embedding), or one that ranks "
               "documents, by a head of one score (reranker) or by two of its tokens "
               "(generative_reranker)",
       .choices = {"causal_lm", "seq_cls", "embedding", "reranker", "generative_reranker"},
       .group = group},
      {.name = "num_labels",
       .type = OptionType::kInt,
       .help = "of seq_cls: classes, or numbers for a text (default: those of the model's head)",
       .range = at_least(1).below(65537),
       .group = group},
      {.name = "problem_type",
       .help = "of seq_cls: what labels are: one class of all, any of them, or numbers (default: "
               "the model's; else regression of one label, and one class of several)",
       .choices = {"single_label_classification", "multi_label_classification", "regression"},
       .group = group},
      {.name = "use_chat_template",
       .type = OptionType::kBool,
       .default_text = "true",
       .help = "of seq_cls, embedding and rerankers: false reads what messages say as a plain "
               "text, without a template (default of embedding: false for files of "
               "sentence-transformers)",
       .group = group},
      {.name = "step_head",
       .default_text = "token",
       .help = "of --stage prm: steps are judged by a token of the vocabulary, "
               "or by a head of two "
               "classes, in transformers' *ForTokenClassification",
       .choices = {"token", "class"},
       .group = group},
      {.name = "ref_adapters",
       .help = "the adapters of the reference: those of --adapters, where they are given",
       .aliases = {"ref_model_adapters", "mcore_ref_adapter"},
       .group = group},
      unavailable({"ref_model_quantization_bit"},
                  "a model that --ref_model names is held in --dtype", {},
                  tr("--quantization_bit 4 holds the base of adapters in 4 bits, and with it the "
                     "reference, which is the model as it was")),
      unavailable({"reward_model_quantization_bit"}, "reward models are held in --dtype", {},
                  tr("leave it out: one whose files hold 4 bits is dequantised")),
  };
}

}  // namespace danlu::cli
