#include "train/rollouts/answer_judge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"
#include "parallel/agree.h"
#include "train/rollouts/advantages.h"

namespace danlu::train {
namespace {

/// Scores as a journal has them, and back.
Json noted_scores(const std::vector<DrawnAnswer>& answers) {
  Json list = Json::array();
  for (const DrawnAnswer& answer : answers) {
    Json scores = Json::array();
    for (const auto& score : answer.scores) scores.push_back(score ? Json(*score) : Json());
    list.push_back(std::move(scores));
  }
  return list;
}

void take_scores(const Json& list, std::vector<DrawnAnswer>& answers) {
  for (size_t i = 0; i < answers.size(); ++i) {
    for (const Json& score : list.at(i))
      answers[i].scores.push_back(score.is_null() ? std::optional<double>() : score.get<double>());
  }
}

}  // namespace

void AnswerJudge::judge(int64_t round, std::vector<DrawnAnswer>& answers) {
  const std::string name = fmt::format("scores {}", round);
  const Json* known = journal_.find(name);
  // Reward models judge on all ranks together.
  const bool all_know = parallel::largest_of(parts_.ranks->models(), known ? 0 : 1) == 0;
  if (all_know) return take_scores(*known, answers);
  std::vector<std::string> columns;
  for (const DrawnAnswer& answer : answers)
    columns.push_back(parts_.prompts->columns(parts_.order(answer.number)));
  find_scores(columns, answers);
  const bool is_own_judged =
      std::any_of(answers.begin(), answers.end(), [](const DrawnAnswer& answer) {
        return std::any_of(answer.scores.begin(), answer.scores.end(),
                           [](const auto& score) { return score.has_value(); });
      });
  // Scores are taken from journals where every rank has its own.
  const bool is_any_judged =
      parallel::largest_of(parts_.ranks->models(), is_own_judged ? 1 : 0) == 1;
  // What nobody was waited for, or never judged yet, is asked again by the run that goes on.
  if (pending_interrupt() == 0 && (is_any_judged || has_judged_))
    journal_.add(name, noted_scores(answers));
}

void AnswerJudge::find_scores(const std::vector<std::string>& columns,
                              std::vector<DrawnAnswer>& answers) const {
  std::vector<eval::Completion> completions;
  for (size_t i = 0; i < answers.size(); ++i) {
    const DrawnAnswer& answer = answers[i];
    eval::Completion completion = completion_of(answer, *parts_.tokenizer);
    const bool has_end =
        !answer.ids.empty() &&
        std::count(settings_.stop_ids.begin(), settings_.stop_ids.end(), answer.ids.back()) > 0;
    // Reward models know answers with their ends. TRL's and ms-swift's GRPO give one to those that
    // were cut, too, PPO does not.
    const bool is_to_end = answer.is_ended || !settings_.told.has_critic();
    if (is_to_end && !has_end) completion.missing_end = settings_.answer_end;
    if (!columns[i].empty()) completion.row = parse_json(columns[i], "columns of a prompt");
    completions.push_back(std::move(completion));
  }
  for (const auto& reward : parts_.rewards) {
    const std::vector<eval::Score> scores = eval::usable_scores(*reward, completions);
    for (size_t i = 0; i < answers.size(); ++i) answers[i].scores.push_back(scores.at(i));
  }
}

void AnswerJudge::require_judged(const std::vector<std::optional<double>>& rewards) {
  const bool is_any_judged =
      std::any_of(rewards.begin(), rewards.end(), [](const auto& one) { return one.has_value(); });
  has_judged_ |= is_any_judged;
  if (is_any_judged) return;
  std::vector<std::string> names;
  for (const auto& reward : parts_.rewards) names.push_back(reward->name());
  const std::string judges = fmt::format("{}", fmt::join(names, ", "));
  if (has_judged_) {
    return log::warning("[rollout] {} could judge none of {} answers: nothing is learnt from them",
                        judges, rewards.size());
  }
  throw DataError(
      tr("[rollout] {} could judge none of the first {} answers", judges, rewards.size()),
      tr("rules need the right answer in the row (--reward_column names it), programs print a "
         "number for each; what was drawn is kept, and the same command has it judged again"));
}

}  // namespace danlu::train
