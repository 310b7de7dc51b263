#include "cli/engine/served_numbers.h"

#include <memory>
#include <vector>

#include "cli/engine/infer_scores.h"
#include "cli/engine/ranking.h"
#include "cli/engine/sorting.h"
#include "cli/engine/text_judge.h"
#include "models/read_head.h"

namespace danlu::cli {

void find_number_head(const Options& options, ModelLocation* where) {
  where->ranks_by = ranks_by(options, *where, /*by_files=*/true);
  if (where->ranks_by == RanksBy::kTokens) return;
  if (scores_answers(options, *where)) {
    where->score = head_of_one_score(*where);
  } else if (sorts_texts(options, *where)) {
    where->score = sorting_head(options, *where);
  } else if (where->ranks_by) {
    where->score = head_of_one_score(*where);
  }
}

void take_numbers(const Options& options, const ModelLocation& where, const InferenceModel& loaded,
                  serve::ModelDescription* model) {
  // Talks are written as the model's own template has them.
  ModelLocation of_texts = where;
  if (where.ranks_by == RanksBy::kTokens)
    of_texts.usual_template = ranking_template(options, where);
  const arch::ModelConfig& config = loaded.model->config();
  if (config.encoder) model->completes = false;
  if (!where.ranks_by && !where.score) return;
  const auto encoder = config.encoder ? nullptr
                                      : judging_encoder(options, of_texts, config.default_template,
                                                        loaded.tokenizer);
  if (where.ranks_by) {
    model->ranking = {.score_of = score_reader(options, where, loaded),
                      .encoder = encoder,
                      .activates = options.get_bool("reranker_use_activation")};
  }
  if (!where.score) return;
  model->completes = false;
  if (is_told_to_rank(options, where)) return;
  const auto head = std::make_shared<const models::ReadHead>(models::read_head(*loaded.model, {}));
  model->judging = {
      .numbers_of =
          [head](const std::vector<float>& hidden) { return models::numbers_of(*head, hidden); },
      .problem = config.score->problem.value_or(arch::LabelProblem::kNumbers),
      .names = arch::label_names(config.raw, config.score->labels),
      .encoder = encoder};
}

}  // namespace danlu::cli
