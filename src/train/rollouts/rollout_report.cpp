#include "train/rollouts/rollout_report.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <utility>

#include "base/json.h"
#include "base/log.h"
#include "train/rollouts/advantages.h"

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
    const auto length = static_cast<double>(answer.num_drawn());
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

/// How many answers a conversation with an environment has.
void note_turns(const std::vector<DrawnAnswer>& answers, std::map<std::string, double>& figures) {
  double turns = 0, most = 0;
  for (const DrawnAnswer& answer : answers) {
    turns += static_cast<double>(answer.turns);
    most = std::max(most, static_cast<double>(answer.turns));
  }
  figures["num_turns/mean"] = turns / static_cast<double>(answers.size());
  figures["num_turns/max"] = most;
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

void RolloutReport::note_rules(const JudgedAnswers& judged,
                               std::map<std::string, double>& figures) const {
  for (size_t rule = 0; rule < judged.scores.size(); ++rule)
    note_scores("rewards/" + parts_.rewards[rule]->name(), judged.scores[rule], figures);
}

void RolloutReport::warn_of_unread(const std::vector<DrawnAnswer>& answers) {
  const bool is_given = std::any_of(answers.begin(), answers.end(), [](const DrawnAnswer& answer) {
    return answer.of_environment.has_value();
  });
  const bool is_read =
      std::any_of(parts_.rewards.begin(), parts_.rewards.end(),
                  [](const auto& reward) { return reward->name() == "environment"; });
  if (!is_given || is_read || std::exchange(has_warned_of_unread_, true)) return;
  log::warning(
      "[rollout] the environment gives rewards, and --reward_funcs does not name the reward "
      "environment: they do not count");
}

std::map<std::string, double> RolloutReport::figures_of(const JudgedAnswers& judged) {
  warn_of_unread(judged.answers);
  const settings::Reinforcement& told = settings_.told;
  const RewardSpread spread = spread_of({judged.rewards, told.answers});
  const bool is_any_judged = spread.unjudged < std::ssize(judged.rewards);
  const std::vector<bool> differ = groups_that_differ(judged.scores, told);
  const auto equal = std::count(differ.begin(), differ.end(), false);
  std::map<std::string, double> figures;
  if (is_any_judged) figures["reward"] = spread.mean;
  if (is_any_judged && !told.has_critic()) {
    const bool is_of_batch = told.scales_rewards() && told.scale == settings::RewardScale::kBatch;
    figures["reward_std"] = is_of_batch
                                ? spread_of({judged.rewards, std::ssize(judged.rewards)}).deviation
                                : spread.deviation;
    figures["frac_reward_zero_std"] =
        static_cast<double>(equal) / static_cast<double>(differ.size());
  }
  note_rules(judged, figures);
  note_lengths(judged.answers, figures);
  if (!told.environment.empty()) note_turns(judged.answers, figures);
  // With the distance in rewards these differ all the same.
  const bool compares =
      is_any_judged && !told.has_critic() && told.answers > 1 && told.reward_kl == 0;
  // Another warning tells of answers that nobody judged.
  const bool are_judged = spread.unjudged == 0;
  if (!compares || !are_judged || equal < std::ssize(differ) || has_warned_of_equal_)
    return figures;
  has_warned_of_equal_ = true;
  log::warning(
      "[rollout] all {} answers to each prompt got the same reward: nothing is learnt from them",
      told.answers);
  return figures;
}

std::map<std::string, double> RolloutReport::figures_of_held_out(
    const JudgedAnswers& judged) const {
  std::map<std::string, double> figures;
  note_lengths(judged.answers, figures);
  if (!settings_.told.environment.empty()) note_turns(judged.answers, figures);
  note_rules(judged, figures);
  const RewardSpread spread = spread_of({judged.rewards, 1});
  if (spread.unjudged < std::ssize(judged.rewards)) figures["reward"] = spread.mean;
  return figures;
}

void RolloutReport::write(int64_t step, const JudgedAnswers& judged,
                          const std::vector<double>& advantages) {
  if (settings_.samples_file.empty()) return;
  const bool is_held_out = advantages.empty();
  std::ofstream file(settings_.samples_file, std::ios::app);
  for (size_t i = 0; i < judged.answers.size(); ++i) {
    const DrawnAnswer& answer = judged.answers[i];
    Json scores = Json::object();
    for (size_t rule = 0; rule < parts_.rewards.size(); ++rule)
      scores[parts_.rewards[rule]->name()] = or_null(answer.scores[rule]);
    Json line{{"step", step},
              {"prompt", parts_.tokenizer->decode(answer.prompt)},
              {"completion", parts_.tokenizer->decode(answer.ids)},
              {"rewards", scores},
              {"reward", or_null(judged.rewards[i])}};
    if (!answer.talk.empty()) {
      const Json talk = parse_json(answer.talk, "a conversation");
      line["messages"] = talk.at("messages");
      line["num_turns"] = answer.turns;
      if (!talk.at("info").empty()) line["info"] = talk.at("info");
    }
    if (settings_.draws_in_parts() && !is_held_out) line["rollouts"] = answer.rollouts;
    if (is_held_out)
      line["held_out"] = true;
    else
      line["advantage"] = advantages[i];
    file << dump_text(line) << '\n';
    if (i > 0) continue;
    log::info("{} -> {} (reward {})", quoted(parts_.tokenizer->decode(answer.prompt, true)),
              quoted(parts_.tokenizer->decode(answer.ids, true)),
              or_null(judged.rewards[i]).dump());
  }
  if (file.flush() || has_warned_of_samples_) return;
  has_warned_of_samples_ = true;
  log::warning("cannot write {}: the training goes on without these lines",
               settings_.samples_file.string());
}

std::map<std::string, double> figures_of_parts(const std::vector<DrawnAnswer>& answers,
                                               size_t waiting) {
  int64_t most = 0, several = 0;
  for (const DrawnAnswer& answer : answers) {
    most = std::max(most, answer.rollouts);
    several += answer.rollouts > 1 ? 1 : 0;
  }
  return {{"partial/ratio", static_cast<double>(several) / static_cast<double>(answers.size())},
          {"partial/max_rollouts", static_cast<double>(most)},
          {"partial/waiting_prompts", static_cast<double>(waiting)}};
}

}  // namespace danlu::train
