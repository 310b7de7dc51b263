// cli/engine/ranking.h: models that say how well a document goes with a query.
#pragma once
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "arch/score_head.h"
#include "base/options.h"
#include "cli/engine/load_for_inference.h"
#include "text/tokenizer.h"

namespace danlu::cli {

/// What --task_type says, else args.json of the training, else of `danlu serve` (by_files) a head
/// of one score in the files, else the name of Qwen3-Reranker's directory. Errors: those of the
/// readers.
std::optional<RanksBy> ranks_by(const Options& options, const ModelLocation& where, bool by_files);

/// Whether the line or args.json says that the model ranks by a head.
bool is_told_to_rank(const Options& options, const ModelLocation& where);

/// A head of one score, as files or the adapters have it.
arch::ScoreHead head_of_one_score(const ModelLocation& where);

/// The template of a model that ranks and for which nothing names one: Qwen3-Reranker's, where
/// `where` is such a model and was not trained without one; "": its own, or none.
std::string ranking_template(const Options& options, const ModelLocation& where);

/// The tokens whose logits are compared, that of a good document first: those of the line, else
/// those that args.json of the training names. Errors: UsageError for one that the tokenizer does
/// not have.
std::vector<text::TokenId> ranking_tokens(const Options& options, const ModelLocation& where,
                                          const text::Tokenizer& tokenizer);

/// Errors: ModelError where the adapters change the head, two of whose rows are read alone.
void refuse_adapters_on_head(const std::filesystem::path& adapter);

/// The score of a model that ranks, from its last hidden state. Collective over the tensor axis.
/// Errors: as models::read_head.
std::function<double(const std::vector<float>&)> score_reader(const Options& options,
                                                              const ModelLocation& where,
                                                              const InferenceModel& loaded);

}  // namespace danlu::cli
