// Training of models that rank documents, with the names of ms-swift's variables.
#include "cli/commands/train_options.h"
#include "settings/ranking_tokens.h"

namespace danlu::cli {

std::vector<OptionSpec> train_ranking_options() {
  const std::string group = "Ranking";
  std::vector<OptionSpec> specs = settings::ranking_token_options(group);
  specs.insert(
      specs.end(),
      {{.name = "listwise_reranker_temperature",
        .type = OptionType::kFloat,
        .default_text = "1",
        .help = "of listwise_reranker: scores are divided by it",
        .range = above(0),
        .group = group,
        .environment = "LISTWISE_RERANKER_TEMPERATURE"},
       {.name = "listwise_reranker_min_group_size",
        .type = OptionType::kInt,
        .default_text = "2",
        .help = "of listwise_reranker: a row with fewer documents is not learnt",
        .range = at_least(2).up_to(1 << 20),
        .group = group,
        .environment = "LISTWISE_RERANKER_MIN_GROUP_SIZE"},
       {.name = "max_positive_samples",
        .type = OptionType::kInt,
        .default_text = "1",
        .help = "of rerankers: documents of a row that go with its query, drawn where it has more",
        .range = at_least(1).up_to(1 << 20),
        .group = group,
        .environment = "MAX_POSITIVE_SAMPLES"},
       {.name = "max_negative_samples",
        .type = OptionType::kInt,
        .default_text = "7",
        .help = "the same of those that do not",
        .range = at_least(0).up_to(1 << 20),
        .group = group,
        .environment = "MAX_NEGATIVE_SAMPLES"}});
  return specs;
}

}  // namespace danlu::cli
