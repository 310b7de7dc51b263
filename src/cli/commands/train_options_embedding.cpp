// Training of vectors of texts: what is compared with what. Names and environment are ms-swift's.
#include "cli/commands/train_options.h"

namespace danlu::cli {

std::vector<OptionSpec> train_embedding_options() {
  const std::string group = "Embeddings";
  const auto flag = [&](std::string name, std::string environment, std::string fallback,
                        std::string help) {
    return OptionSpec{.name = std::move(name),
                      .type = OptionType::kBool,
                      .default_text = std::move(fallback),
                      .help = std::move(help),
                      .group = group,
                      .environment = std::move(environment)};
  };
  return {
      {.name = "infonce_temperature",
       .type = OptionType::kFloat,
       .default_text = "0.1",
       .help = "of infonce: cosines are divided by it; less tells near texts apart more sharply",
       .range = above(0),
       .group = group,
       .environment = "INFONCE_TEMPERATURE"},
      flag("infonce_use_batch", "INFONCE_USE_BATCH", "true",
           "of infonce: a text is compared with those of all rows of the micro-batch, over all "
           "data-parallel ranks; false: with its own row's negatives alone"),
      {.name = "infonce_hard_negatives",
       .type = OptionType::kInt,
       .help = "of infonce: so many negatives of each row: the first ones, or taken again where it "
               "has fewer (default: all)",
       .range = at_least(1),
       .group = group,
       .environment = "INFONCE_HARD_NEGATIVES"},
      flag("infonce_mask_fake_negative", "INFONCE_MASK_FAKE_NEGATIVE", "false",
           "of infonce: texts that are nearer than the positive by infonce_fake_neg_margin are "
           "left out, as they may fit too"),
      {.name = "infonce_fake_neg_margin",
       .type = OptionType::kFloat,
       .default_text = "0.1",
       .help = "how much nearer they are",
       .range = at_least(0),
       .group = group,
       .environment = "INFONCE_FAKE_NEG_MARGIN"},
      flag("infonce_include_qq", "INFONCE_INCLUDE_QQ", "false",
           "of infonce: anchors are told from one another, too"),
      flag("infonce_include_dd", "INFONCE_INCLUDE_DD", "false",
           "of infonce: positive texts are told from all other texts, too"),
      {.name = "mrl_dims",
       .type = OptionType::kJson,
       .help = "of embedding: the loss is a sum of those of vectors cut to these sizes, with a "
               "weight each, e.g. '{\"64\": 1.0, \"256\": 0.5}' (Matryoshka)",
       .group = group},
  };
}

}  // namespace danlu::cli
