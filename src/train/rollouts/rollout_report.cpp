// What a rollout shows and writes down, and the evaluation by held-out prompts.
#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "train/rollouts/advantages.h"
#include "train/rollouts/rollout_stream.h"

namespace danlu::train {
namespace {

/// What a reward that spread as `scores` shows, under `name`.
void note_scores(const std::string& name, const std::vector<std::optional<double>>& scores,
                 std::map<std::string, double>& figures) {
  double sum = 0, squares = 0, count = 0;
  for (const auto& score : scores) {
    if (!score) continue;
    sum += *score;
    squares += *score * *score;
    ++count;
  }
  if (count == 0) return;
  const double mean = sum / count;
  figures[name + "/mean"] = mean;
  if (count > 1) {
    figures[name + "/std"] = std::sqrt(std::max(0.0, squares - count * mean * mean) / (count - 1));
  }
}

/// How long answers are, and how many of them were cut.
void note_lengths(const std::vector<DrawnAnswer>& answers, std::map<std::string, double>& figures) {
  double sum = 0, shortest = INFINITY, longest = 0, cut = 0;
  for (const DrawnAnswer& answer : answers) {
    const auto length = static_cast<double>(answer.ids.size());
    sum += length;
    shortest = std::min(shortest, length);
    longest = std::max(longest, length);
    cut += answer.is_ended ? 0 : 1;
  }
  const auto count = static_cast<double>(answers.size());
  figures["completions/mean_length"] = sum / count;
  figures["completions/min_length"] = shortest;
  figures["completions/max_length"] = longest;
  figures["completions/clipped_ratio"] = cut / count;
}

/// A text on one line: its end, if it is long.
std::string quoted(const std::string& text) {
  constexpr size_t kShown = 80;
  size_t begin = text.size() > kShown ? text.size() - kShown : 0;
  while (begin > 0 && begin < text.size() && (text[begin] & 0xC0) == 0x80) ++begin;
  return (begin > 0 ? "…" : "") + dump_text(Json(text.substr(begin)));
}

Json or_null(const std::optional<double>& score) { return score ? Json(*score) : Json(); }

}  // namespace

Evaluation RolloutStream::evaluate(const data::SampleSource& prompts,
                                   const EvaluationSettings& settings) const {
  const double begun = steady_now_s();
  int64_t count = prompts.size();
  if (settings.max_batches > 0) count = std::min(count, settings.max_batches * settings.batch_size);
  const auto [begin, end] = share_of(0, count);
  std::vector<infer::Request> requests;
  std::vector<std::string> columns;
  for (int64_t prompt = begin; prompt < end; ++prompt) {
    requests.push_back(request_to(prompts.get(prompt)));
    requests.back().sampling.do_sample = false;
    columns.push_back(prompts.columns(prompt));
  }
  std::vector<DrawnAnswer> answers;
  parts_.with_weights([&] {
    for (const infer::Answer& found : parts_.generate(requests))
      answers.push_back(drawn_answer(found));
  });
  for (size_t i = 0; i < answers.size(); ++i) {
    answers[i].prompt = requests[i].prompt;
    answers[i].place = begin + static_cast<int64_t>(i);
  }
  find_scores(columns, answers);
  stop_if_asked();
  answers = answers_of_all(parts_.ranks->models(), answers);
  const auto by_rule = scores_by_rule(answers, parts_.rewards.size());
  const auto rewards = weighted_rewards(by_rule, settings_.told.reward_weights);
  Evaluation evaluation;
  evaluation.is_of_rewards = true;
  note_lengths(answers, evaluation.metrics);
  for (size_t rule = 0; rule < by_rule.size(); ++rule)
    note_scores("rewards/" + parts_.rewards[rule]->name(), by_rule[rule], evaluation.metrics);
  write_samples(answers, rewards, {});
  const RewardSpread spread = spread_of({rewards, 1});
  const bool is_any_judged = spread.unjudged < std::ssize(rewards);
  if (is_any_judged) evaluation.metrics["reward"] = spread.mean;
  evaluation.loss = is_any_judged ? -spread.mean : INFINITY;
  evaluation.num_samples = count;
  evaluation.seconds = steady_now_s() - begun;
  return evaluation;
}

void RolloutStream::note(const std::vector<DrawnAnswer>& answers,
                         const std::vector<std::optional<double>>& rewards) {
  report_unjudged(rewards);
  const RewardSpread spread = spread_of({rewards, settings_.told.answers});
  const bool is_any_judged = spread.unjudged < std::ssize(rewards);
  const auto by_rule = scores_by_rule(answers, parts_.rewards.size());
  const std::vector<bool> differ = groups_that_differ(by_rule, settings_.told);
  const auto equal = std::count(differ.begin(), differ.end(), false);
  figures_.clear();
  if (is_any_judged) figures_["reward"] = spread.mean;
  if (is_any_judged && !settings_.told.has_critic()) {
    figures_["reward_std"] = spread.deviation;
    figures_["frac_reward_zero_std"] =
        static_cast<double>(equal) / static_cast<double>(differ.size());
  }
  for (size_t rule = 0; rule < by_rule.size(); ++rule)
    note_scores("rewards/" + parts_.rewards[rule]->name(), by_rule[rule], figures_);
  note_lengths(answers, figures_);
  // With the distance in rewards these differ all the same.
  const bool compares = is_any_judged && !settings_.told.has_critic() &&
                        settings_.told.answers > 1 && settings_.told.reward_kl == 0;
  // Another warning tells of answers that nobody judged.
  const bool are_judged = spread.unjudged == 0;
  if (!compares || !are_judged || equal < std::ssize(differ) || has_warned_of_equal_) return;
  has_warned_of_equal_ = true;
  log::warning(
      "[rollout] all {} answers to each prompt got the same reward: nothing is learnt from them",
      settings_.told.answers);
}

void RolloutStream::take_distances(const std::vector<DrawnAnswer>& answers,
                                   std::vector<std::optional<double>>& rewards) {
  double sum = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    double distance = 0;
    for (size_t t = 0; t < answers[i].ids.size(); ++t)
      distance += static_cast<double>(answers[i].old.at(t)) - answers[i].reference.at(t);
    sum += distance;
    if (rewards[i]) *rewards[i] -= settings_.told.reward_kl * distance;
  }
  figures_["kl"] = sum / static_cast<double>(answers.size());
}

void RolloutStream::write_samples(const std::vector<DrawnAnswer>& answers,
                                  const std::vector<std::optional<double>>& rewards,
                                  const std::vector<double>& advantages) const {
  if (settings_.samples_file.empty()) return;
  const bool is_held_out = advantages.empty();
  std::ofstream file(settings_.samples_file, std::ios::app);
  for (size_t i = 0; i < answers.size(); ++i) {
    Json scores = Json::object();
    for (size_t rule = 0; rule < parts_.rewards.size(); ++rule)
      scores[parts_.rewards[rule]->name()] = or_null(answers[i].scores[rule]);
    Json line{{"step", is_held_out ? step_ : step_ + 1},
              {"prompt", parts_.tokenizer->decode(answers[i].prompt)},
              {"completion", parts_.tokenizer->decode(answers[i].ids)},
              {"rewards", scores},
              {"reward", or_null(rewards[i])}};
    if (settings_.told.parts > 1 && !is_held_out) line["rollouts"] = answers[i].rollouts;
    if (is_held_out)
      line["held_out"] = true;
    else
      line["advantage"] = advantages[i];
    file << dump_text(line) << '\n';
    if (i > 0) continue;
    log::info("{} -> {} (reward {})", quoted(parts_.tokenizer->decode(answers[i].prompt, true)),
              quoted(parts_.tokenizer->decode(answers[i].ids, true)), or_null(rewards[i]).dump());
  }
  if (file.flush() || has_warned_of_samples_) return;
  has_warned_of_samples_ = true;
  log::warning("cannot write {}: the training goes on without these lines",
               settings_.samples_file.string());
}

}  // namespace danlu::train
