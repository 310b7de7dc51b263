// cli/engine/infer_scores.h: `danlu infer` with a reward model: answers that rows have get their
// rewards.
#pragma once
#include "base/options.h"
#include "cli/engine/load_for_inference.h"

namespace danlu::cli {

/// Whether the model is a reward model that has nothing to answer with: transformers'
/// *ForSequenceClassification of one label of which nothing says that it sorts texts, or an adapter
/// that makes one. With a head beside its files (v_head) it has the vocabulary's too, and is asked
/// so by --task_type seq_cls.
bool scores_answers(const Options& options, const ModelLocation& where);

/// Scores --prompt, or the rows of --dataset: pairs get `chosen_reward` and `rejected_reward`,
/// others `reward`; to the screen, or to --output a row each. Errors: as settings::open_model;
/// DataError if no row can be used.
int score_answers(const Options& options, const ModelLocation& where);

}  // namespace danlu::cli
