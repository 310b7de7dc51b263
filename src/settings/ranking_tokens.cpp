#include "settings/ranking_tokens.h"

#include "base/error.h"
#include "base/lower_case.h"

namespace danlu::settings {
namespace {

constexpr const char* kPositiveFlag = "reranker_positive_token";
constexpr const char* kNegativeFlag = "reranker_negative_token";

}  // namespace

RankingTokens ranking_tokens_from(const Options& options) {
  return {options.get_string(kPositiveFlag), options.get_string(kNegativeFlag)};
}

std::vector<OptionSpec> ranking_token_options(const std::string& group) {
  return {{.name = kPositiveFlag,
           .default_text = "yes",
           .help = "of generative_reranker: the token whose logit speaks for a document",
           .group = group,
           .environment = "GENERATIVE_RERANKER_POSITIVE_TOKEN"},
          {.name = kNegativeFlag,
           .default_text = "no",
           .help = "of generative_reranker: the one whose logit speaks against it",
           .group = group,
           .environment = "GENERATIVE_RERANKER_NEGATIVE_TOKEN"}};
}

bool is_called_qwen3_reranker(const std::filesystem::path& model) {
  std::error_code unknown;
  std::filesystem::path named = std::filesystem::absolute(model, unknown).lexically_normal();
  if (!named.has_filename()) named = named.parent_path();
  // A hub's cache: models--OWNER--NAME/snapshots/COMMIT.
  if (named.parent_path().filename() == "snapshots") named = named.parent_path().parent_path();
  const std::string name = lower_case(named.filename().string());
  return name.find("qwen3-reranker") != std::string::npos;
}

std::vector<text::TokenId> ranking_token_ids(const RankingTokens& tokens,
                                             const text::Tokenizer& tokenizer) {
  std::vector<text::TokenId> ids;
  for (const auto& [flag, token] :
       {std::pair{kPositiveFlag, tokens.positive}, std::pair{kNegativeFlag, tokens.negative}}) {
    const auto id = tokenizer.token_to_id(token);
    if (!id) {
      throw UsageError(tr("[--{}] the tokenizer has no token '{}'", flag, token),
                       tr("give a token as the vocabulary writes it: danlu tokenize shows them"));
    }
    ids.push_back(*id);
  }
  if (ids[0] == ids[1]) {
    throw UsageError(
        tr("[--{}] both tokens of a reranker are '{}'", kNegativeFlag, tokens.negative),
        tr("one speaks for a document, the other against it"));
  }
  return ids;
}

}  // namespace danlu::settings
