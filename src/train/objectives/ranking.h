// train/objectives/ranking.h: documents that go with a query are to get more than others.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "settings/objective_config.h"
#include "train/objective.h"

namespace danlu::train {

/// Over data::Sample of SampleKind::kGroups without anchors: segments are a query and a document
/// each, and a row's documents are a group. x of a segment is what a head of one score gives at its
/// last token, or, with `ids`, the logit of ids[0] less that of ids[1] there.
/// kPointwise: the mean of log(1 + e^−x) over documents that go with their query and log(1 + e^x)
/// over others; one of these counts once for each document of its row that goes with it. kListwise:
/// the mean over documents that go with their query of −log softmax of x / temperature, among it
/// and those of its row that do not; of rows with less than least_texts of these, none is learnt.
/// The loss is divided by the number of documents of the whole step that it is a mean over.
/// Metrics: accuracy, of kPointwise the share of documents whose x has the right sign, of kListwise
/// that of lists whose first is the right one; mrr, the mean of 1 / r, and ndcg, of
/// 1 / log2(r + 1), r the place of a document that goes with its query among those that do not
/// (equal ones stand before it), over rows that have any.
/// Source: ms-swift's losses pointwise_reranker and listwise_reranker, and its metrics.
/// Errors of prepare(): DataError where samples are no groups.
std::shared_ptr<const Objective> ranking_objective(const settings::RankingConfig& config,
                                                   const std::vector<int64_t>& ids);

}  // namespace danlu::train
