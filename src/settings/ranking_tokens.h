// settings/ranking_tokens.h: the two tokens of a model that ranks by what it would answer.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/options.h"
#include "text/tokenizer.h"

namespace danlu::settings {

/// A document's score is the logit of the first less that of the second, as ms-swift's variables
/// GENERATIVE_RERANKER_POSITIVE_TOKEN and GENERATIVE_RERANKER_NEGATIVE_TOKEN have it.
struct RankingTokens {
  std::string positive = "yes", negative = "no";
};
RankingTokens ranking_tokens_from(const Options& options);

/// The flags of both tokens, with these variables.
std::vector<OptionSpec> ranking_token_options(const std::string& group);

/// Whether a model is one of Qwen3-Reranker's, which nothing in their files says: by the name of
/// its directory or file, in a hub's cache of its repository.
bool is_called_qwen3_reranker(const std::filesystem::path& model);

/// Their ids, the positive one's first. Errors: UsageError for a token that the tokenizer does not
/// have, or two that are one.
std::vector<text::TokenId> ranking_token_ids(const RankingTokens& tokens,
                                             const text::Tokenizer& tokenizer);

}  // namespace danlu::settings
