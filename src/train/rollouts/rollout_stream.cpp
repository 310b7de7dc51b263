#include "train/rollouts/rollout_stream.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "models/training_memory.h"
#include "train/rollouts/advantages.h"
#include "train/rollouts/answer_samples.h"

namespace danlu::train {
namespace {

constexpr const char* kKlOfState = "kl_coef";

RolloutParts completed(RolloutParts parts) {
  if (!parts.ranks) parts.ranks = std::make_shared<DrawingRanks>(parts.policy.mesh());
  if (!parts.with_weights) {
    parts.with_weights = [&policy = parts.policy](const std::function<void()>& use) {
      policy.memory().with_all(use);
    };
  }
  return parts;
}

RolloutSettings with_whole_prompts(RolloutSettings settings) {
  const settings::Reinforcement& told = settings.told;
  const int64_t answers = told.steps * settings.samples_of_step();
  if (answers % told.answers == 0) return settings;
  throw UsageError(
      tr("[rollout] {} answers to each prompt do not divide the {} answers of a rollout",
         told.answers, answers),
      tr("choose --num_generations and the batch so that they do"));
}

/// The weight of the distance in rewards that a stream goes on with. Errors: IoError where the
/// state is damaged.
double kl_from(const RolloutSettings& settings) {
  const settings::Critic& critic = settings.told.critic;
  if (critic.kl_target <= 0 || settings.state.is_null()) return critic.kl;
  const auto saved = json_get<double>(settings.state, kKlOfState);
  if (!saved || !(*saved > 0)) throw IoError(tr("data_state.json is damaged: {}", kKlOfState));
  return *saved;
}

RolloutJournal journal_of(const RolloutParts& parts, const RolloutSettings& settings) {
  if (settings.run_directory.empty()) return {};
  return {settings.run_directory, settings.origin, settings.batches.dp_rank,
          settings.batches.dp_size, parts.ranks->model()};
}

}  // namespace

RolloutStream::RolloutStream(RolloutParts parts, RolloutSettings settings, int64_t consumed)
    : parts_(completed(std::move(parts))),
      settings_(with_whole_prompts(std::move(settings))),
      journal_(journal_of(parts_, settings_)),
      step_(consumed / settings_.samples_of_step()),
      drawer_(parts_, settings_, journal_, rollouts_learnt()),
      judge_(parts_, settings_, journal_),
      report_(parts_, settings_),
      kl_(kl_from(settings_)),
      next_kl_(kl_) {
  const int64_t of_step = settings_.samples_of_step();
  // Where no step is left, the midst of a rollout is as good an end as any: what is still asked of
  // the stream is an evaluation.
  if (settings_.steps > 0 && consumed == settings_.steps * of_step) return;
  if (consumed % of_step != 0 || !is_resumable()) {
    throw UsageError(tr("[rollout] {} answers were learnt from, which is the midst of a rollout of "
                        "{} steps of {}",
                        consumed, settings_.steps_of_rollout(), of_step),
                     tr("go on with the batch and the iterations that the run began with"));
  }
  if (settings_.draws_in_parts() && !drawer_.has_all_prompts(rollouts_learnt()))
    throw IoError(tr("data_state.json is damaged: {}", "stream"));
}

double RolloutStream::epoch() const {
  const double rollouts =
      static_cast<double>(step_) / static_cast<double>(settings_.steps_of_rollout());
  return rollouts * static_cast<double>(settings_.prompts_of_rollout()) /
         static_cast<double>(parts_.prompts->size());
}

Json RolloutStream::state() const {
  Json state = drawer_.state(is_put_back_);
  if (settings_.told.critic.kl_target > 0) state[kKlOfState] = is_put_back_ ? kl_ : next_kl_;
  return state;
}

data::StepBatches RolloutStream::next() {
  times_.clear();
  const bool was_put_back = std::exchange(is_put_back_, false);
  if (was_put_back) {
    // The step is the same, and its figures are.
  } else if (is_resumable()) {
    roll_out(rollouts_learnt());
  } else {
    figures_.clear();  // they are of the rollout, and were told
  }
  const double begun = steady_now_s();
  data::StepBatches batches = answers_->next();
  wait_s_ = steady_now_s() - begun;
  if (parts_.critic && !was_put_back) {
    figures_.merge(timed("critic", [&] { return parts_.critic->learn(parts_.policy, batches); }));
  }
  ++step_;
  return batches;
}

void RolloutStream::put_back(const data::StepBatches& step) {
  answers_->put_back(step);
  is_put_back_ = true;
  --step_;
}

JudgedAnswers RolloutStream::judged_of_all(const std::vector<DrawnAnswer>& own) const {
  JudgedAnswers judged;
  judged.answers = answers_of_all(parts_.ranks->models(), own);
  judged.scores = scores_by_rule(judged.answers, parts_.rewards.size());
  judged.rewards = weighted_rewards(judged.scores, settings_.told.reward_weights);
  return judged;
}

void RolloutStream::draw_and_judge(const PromptRound& round, std::vector<DrawnAnswer>& own) {
  std::vector<DrawnAnswer> drawn = timed("rollout", [&] { return drawer_.draw(round); });
  timed("judging", [&] { judge_.judge(round.number, drawn); });
  std::move(drawn.begin(), drawn.end(), std::back_inserter(own));
}

int64_t RolloutStream::replace_equal(int64_t number, std::vector<DrawnAnswer>& own) {
  const settings::Reinforcement& told = settings_.told;
  const int64_t count = settings_.prompts_of_rollout();
  JudgedAnswers judged;
  std::vector<bool> differ;
  int64_t lacking = 0, further = 0;
  for (int64_t round = 1;; ++round) {
    judged = judged_of_all(own);
    // Where nothing judges, further answers would not be judged either.
    if (round == 1 && spread_of({judged.rewards, 1}).unjudged == std::ssize(judged.rewards))
      return 0;
    differ = groups_that_differ(judged.scores, told);
    lacking = count - std::count(differ.begin(), differ.end(), true);
    if (lacking <= 0 || round > told.max_resamples) break;
    const int64_t first = kFurtherPrompts + number * told.max_resamples * count + further;
    draw_and_judge({round, first, lacking}, own);
    stop_if_asked(*parts_.ranks);
    further += lacking;
  }
  if (lacking > 0 && !std::exchange(has_warned_of_rest_, true)) {
    log::warning(
        "[rollout] after {} rounds {} of {} prompts still got answers of one reward each: "
        "nothing is learnt from these",
        told.max_resamples, lacking, count);
  }
  // Groups whose rewards differ come first; where they are too few, others fill the rollout.
  std::set<int64_t> kept;
  for (const bool wanted : {true, false}) {
    for (size_t group = 0; group < differ.size() && std::ssize(kept) < count; ++group) {
      const auto first = group * static_cast<size_t>(told.answers);
      if (differ[group] == wanted) kept.insert(judged.answers[first].place / told.answers);
    }
  }
  std::erase_if(
      own, [&](const DrawnAnswer& answer) { return !kept.contains(answer.place / told.answers); });
  return further;
}

void RolloutStream::roll_out(int64_t number) {
  settings::Reinforcement told = settings_.told;
  told.critic.kl = kl_ = next_kl_;
  const int64_t count = settings_.prompts_of_rollout();
  drawer_.begin(number);
  std::vector<DrawnAnswer> own;
  draw_and_judge({0, number * count, count}, own);
  stop_if_asked(*parts_.ranks);
  const bool resamples = told.max_resamples > 0;
  const int64_t further = resamples ? replace_equal(number, own) : 0;
  timed("logprobs", [&] {
    drawer_.find_old_logprobs(own);
    examine(parts_, settings_, own);
  });
  const JudgedAnswers judged = judged_of_all(own);
  judge_.require_judged(judged.rewards);
  figures_ = report_.figures_of(judged);
  LearntAnswers learnt =
      learnt_from(told, settings_.samples_of_step(), judged.answers, judged.scores, judged.rewards);
  report_.write(step_ + 1, judged, learnt.advantages);
  figures_.merge(std::move(learnt.figures));
  if (told.has_critic() && told.critic.kl_target > 0) {
    figures_["objective/kl_coef"] = kl_;
    next_kl_ = told.critic.kl_after(kl_, figures_.at("objective/kl"),
                                    static_cast<double>(judged.answers.size()));
  }
  if (settings_.draws_in_parts())
    figures_.merge(figures_of_parts(judged.answers, drawer_.num_waiting_prompts()));
  if (resamples) figures_["resampled_prompts"] = static_cast<double>(further);
  data::BatchStreamOptions options = settings_.batches;
  options.prefetch_steps = 0;
  const auto size = std::ssize(learnt.samples);
  answers_ = std::make_unique<data::BatchStream>(
      std::make_shared<data::VectorSource>(std::move(learnt.samples)),
      [size](int64_t index) { return index % size; }, options);
  drawer_.end();
}

Evaluation RolloutStream::evaluate(const data::SampleSource& prompts,
                                   const EvaluationSettings& settings) {
  const double begun = steady_now_s();
  int64_t count = prompts.size();
  if (settings.max_batches > 0) count = std::min(count, settings.max_batches * settings.batch_size);
  const auto [begin, end] = settings_.share_of(0, count);
  std::vector<DrawnAnswer> own = drawer_.likeliest(prompts, begin, end);
  std::vector<std::string> columns;
  for (int64_t prompt = begin; prompt < end; ++prompt) columns.push_back(prompts.columns(prompt));
  judge_.find_scores(columns, own);
  stop_if_asked(*parts_.ranks);
  const JudgedAnswers judged = judged_of_all(own);
  report_.write(step_, judged, {});
  Evaluation evaluation;
  evaluation.is_of_rewards = true;
  evaluation.metrics = report_.figures_of_held_out(judged);
  const auto reward = evaluation.metrics.find("reward");
  evaluation.loss = reward == evaluation.metrics.end() ? INFINITY : -reward->second;
  evaluation.num_samples = count;
  evaluation.seconds = steady_now_s() - begun;
  return evaluation;
}

}  // namespace danlu::train
