#include "train/rollouts/rollout_stream.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "models/training_memory.h"
#include "parallel/agree.h"
#include "train/objectives/policy.h"
#include "train/objectives/value.h"
#include "train/rollouts/advantages.h"
#include "train/rollouts/answer_passes.h"
#include "train/rollouts/token_worth.h"

namespace danlu::train {
namespace {

/// Answers as a journal has them, and back.
Json noted(const std::vector<DrawnAnswer>& answers) {
  Json list = Json::array();
  for (const DrawnAnswer& answer : answers)
    list.push_back({{"ids", answer.ids}, {"ended", answer.is_ended}});
  return list;
}

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

bool is_any_there(const std::vector<std::optional<double>>& rewards) {
  return std::any_of(rewards.begin(), rewards.end(),
                     [](const auto& reward) { return reward.has_value(); });
}

}  // namespace

RolloutStream::RolloutStream(RolloutParts parts, RolloutSettings settings, int64_t consumed)
    : parts_(std::move(parts)), settings_(std::move(settings)) {
  if (!parts_.ranks) parts_.ranks = std::make_shared<DrawingRanks>(parts_.policy.mesh());
  if (!parts_.with_weights) {
    parts_.with_weights = [&policy = parts_.policy](const std::function<void()>& use) {
      policy.memory().with_all(use);
    };
  }
  if (!settings_.run_directory.empty()) {
    journal_ = RolloutJournal(settings_.run_directory, settings_.origin, settings_.batches.dp_rank,
                              settings_.batches.dp_size, parts_.ranks->model());
  }
  const settings::Reinforcement& told = settings_.told;
  const int64_t answers = told.steps * samples_of_step();
  if (answers % told.answers != 0) {
    throw UsageError(
        tr("[rollout] {} answers to each prompt do not divide the {} answers of a rollout",
           told.answers, answers),
        tr("choose --num_generations and the batch so that they do"));
  }
  step_ = consumed / samples_of_step();
  grown_ = before_ = growing_ =
      settings_.state.is_null()
          ? AnswerPool(told.answers, step_ / steps_of_rollout() * prompts_of_rollout())
          : AnswerPool(told.answers, settings_.state);
  // Where no step is left, the midst of a rollout is as good an end as any: what is still asked of
  // the stream is an evaluation.
  if (settings_.steps > 0 && consumed == settings_.steps * samples_of_step()) return;
  if (consumed % samples_of_step() != 0 || !is_resumable()) {
    throw UsageError(tr("[rollout] {} answers were learnt from, which is the midst of a rollout of "
                        "{} steps of {}",
                        consumed, steps_of_rollout(), samples_of_step()),
                     tr("go on with the batch and the iterations that the run began with"));
  }
  if (settings_.told.parts > 1) require_all_prompts();
}

/// The part of [first, first + count) that falls to this rank of the data axis.
std::pair<int64_t, int64_t> RolloutStream::share_of(int64_t first, int64_t count) const {
  const int64_t rank = settings_.batches.dp_rank, ranks = settings_.batches.dp_size;
  return {first + count * rank / ranks, first + count * (rank + 1) / ranks};
}

/// Errors: IoError where a checkpoint's prompts are not those that are left.
void RolloutStream::require_all_prompts() const {
  const int64_t learnt = step_ / steps_of_rollout() * prompts_of_rollout();
  if (grown_.next_own() - grown_.size(AnswerPool::Kind::kOwn) == learnt) return;
  throw IoError(tr("data_state.json is damaged: {}", "stream"));
}

double RolloutStream::epoch() const {
  const double rollouts = static_cast<double>(step_) / static_cast<double>(steps_of_rollout());
  return rollouts * static_cast<double>(prompts_of_rollout()) /
         static_cast<double>(parts_.prompts->size());
}

data::StepBatches RolloutStream::next() {
  times_.clear();
  const bool was_put_back = std::exchange(is_put_back_, false);
  if (was_put_back) {
    // The step is the same, and its figures are.
  } else if (is_resumable()) {
    roll_out(step_ / steps_of_rollout());
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

infer::Request RolloutStream::request_to(const data::Sample& prompt) const {
  const settings::Reinforcement& told = settings_.told;
  infer::Request request;
  request.prompt.assign(prompt.ids.begin(), prompt.ids.end());
  request.sampling = {.do_sample = told.loss.temperature > 0,
                      .temperature = told.loss.temperature,
                      .top_k = told.top_k,
                      .top_p = told.top_p,
                      .min_p = told.min_p,
                      .repetition_penalty = told.repetition_penalty,
                      .seed = settings_.seed};
  request.max_new_tokens = told.max_new_tokens;
  request.stop_ids = settings_.stop_ids;
  request.num_tokens = static_cast<int64_t>(parts_.tokenizer->size());
  return request;
}

std::vector<DrawnAnswer> RolloutStream::drawn_once(const std::string& name,
                                                   const std::vector<infer::Request>& requests) {
  const auto together = static_cast<size_t>(settings_.answers_together);
  std::vector<DrawnAnswer> answers;
  const auto draw_some = [&](size_t begin) {
    const size_t last = std::min(requests.size(), begin + together);
    const std::string of_some = fmt::format("{} {}", name, begin);
    std::vector<DrawnAnswer> some;
    if (const Json* known = journal_.find(of_some)) {
      for (const Json& one : *known) {
        some.emplace_back().ids = one.at("ids").get<std::vector<int32_t>>();
        some.back().is_ended = one.at("ended").get<bool>();
      }
    } else {
      for (const infer::Answer& found :
           parts_.generate({requests.begin() + static_cast<std::ptrdiff_t>(begin),
                            requests.begin() + static_cast<std::ptrdiff_t>(last)})) {
        some.push_back(drawn_answer(found));
      }
      journal_.add(of_some, noted(some));
    }
    std::move(some.begin(), some.end(), std::back_inserter(answers));
  };
  parts_.with_weights([&] {
    for (size_t begin = 0; begin < requests.size(); begin += together) draw_some(begin);
  });
  return answers;
}

std::vector<DrawnAnswer> RolloutStream::draw(const Round& round) {
  const auto [begin, end] = share_of(round.first, round.count);
  std::vector<infer::Request> requests;
  for (int64_t prompt = begin; prompt < end; ++prompt) {
    infer::Request request = request_to(parts_.prompts->get(parts_.order(prompt)));
    for (int64_t i = 0; i < settings_.told.answers; ++i) {
      request.stream = static_cast<uint64_t>(prompt * settings_.told.answers + i);
      requests.push_back(request);
    }
  }
  std::vector<DrawnAnswer> answers = drawn_once(fmt::format("answers {}", round.number), requests);
  for (size_t i = 0; i < answers.size(); ++i) {
    const int64_t index = static_cast<int64_t>(i), prompt = begin + index / settings_.told.answers;
    answers[i].prompt = std::move(requests[i].prompt);
    answers[i].number = prompt;
    answers[i].place =
        (round.number * prompts_of_rollout() + begin - round.first) * settings_.told.answers +
        index;
  }
  return answers;
}

void RolloutStream::judge(const Round& round, std::vector<DrawnAnswer>& answers) {
  const std::string name = fmt::format("scores {}", round.number);
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

/// Errors: RolloutStopped. Collective over all ranks.
void RolloutStream::stop_if_asked() const {
  const int64_t of_model = parallel::largest_of(parts_.ranks->model(), pending_interrupt());
  if (parallel::largest_of(parts_.ranks->models(), of_model) != 0) throw RolloutStopped();
}

/// Errors: DataError where no answer was judged since the run began or went on.
void RolloutStream::report_unjudged(const std::vector<std::optional<double>>& rewards) {
  const bool is_any_judged = is_any_there(rewards);
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

void RolloutStream::find_scores(const std::vector<std::string>& columns,
                                std::vector<DrawnAnswer>& answers) const {
  std::vector<eval::Completion> completions;
  for (size_t i = 0; i < answers.size(); ++i) {
    const DrawnAnswer& answer = answers[i];
    eval::Completion completion;
    completion.prompt = parts_.tokenizer->decode(answer.prompt);
    completion.text = parts_.tokenizer->decode(answer.ids, /*skip_special=*/true);
    completion.prompt_ids = answer.prompt;
    completion.ids = answer.ids;
    completion.is_ended = answer.is_ended;
    const bool has_end =
        !answer.ids.empty() &&
        std::count(settings_.stop_ids.begin(), settings_.stop_ids.end(), answer.ids.back()) > 0;
    if (answer.is_ended && !has_end) completion.missing_end = settings_.answer_end;
    if (!columns[i].empty()) completion.row = parse_json(columns[i], "columns of a prompt");
    completions.push_back(std::move(completion));
  }
  for (const auto& reward : parts_.rewards) {
    const std::vector<eval::Score> scores = eval::usable_scores(*reward, completions);
    for (size_t i = 0; i < answers.size(); ++i) answers[i].scores.push_back(scores.at(i));
  }
}

void RolloutStream::examine(std::vector<DrawnAnswer>& answers) const {
  const settings::Reinforcement& told = settings_.told;
  const auto logprobs = logprobs_at(told.loss.temperature);
  const ForwardPasses passes(parts_.policy, parts_.links);
  // What several rollouts drew has the log-probabilities of each.
  if (told.parts == 1 && (steps_of_rollout() > 1 || told.has_critic() || told.reward_kl > 0))
    find_for_tokens(passes, /*adapters=*/true, logprobs, &DrawnAnswer::old, answers);
  // Passes after the first would ask for the same numbers again.
  const bool is_seen_again = told.loss.kl > 0 && told.iterations > 1;
  if (told.kl_of_rewards() > 0 || is_seen_again) {
    ask_reference(parts_.reference.get(), passes, [&](const ForwardPasses& of, bool adapters) {
      find_for_tokens(of, adapters, logprobs, &DrawnAnswer::reference, answers);
    });
  }
  if (told.has_critic()) parts_.critic->find_values(parts_.policy, answers);
}

/// Whether all answers of the step that has this one were cut at the limit.
bool RolloutStream::all_of_step_cut(const std::vector<DrawnAnswer>& answers, size_t answer) const {
  const auto of_step = static_cast<size_t>(samples_of_step());
  const auto begin = answers.begin() + static_cast<std::ptrdiff_t>(answer / of_step * of_step);
  return std::none_of(begin, begin + static_cast<std::ptrdiff_t>(of_step),
                      [](const DrawnAnswer& one) { return one.is_ended; });
}

std::vector<data::Sample> RolloutStream::samples_by_critic(
    const std::vector<DrawnAnswer>& answers, const std::vector<std::optional<double>>& rewards) {
  const std::vector<TokenWorth> worth = worth_of_tokens(answers, rewards, settings_.told.critic,
                                                        settings_.told.masks_truncated, figures_);
  std::vector<double> sums;
  std::vector<data::Sample> samples;
  for (size_t i = 0; i < answers.size(); ++i) {
    const DrawnAnswer& answer = answers[i];
    const bool is_masked =
        settings_.told.masks_truncated && !answer.is_ended && !all_of_step_cut(answers, i);
    data::Sample sample = sample_of(answer, is_masked);
    set_column(answer, kAdvantageColumn, worth[i].advantages, sample);
    set_column(answer, kReturnColumn, worth[i].returns, sample);
    set_column(answer, kValueColumn,
               std::vector<double>(answer.values.begin(), answer.values.end()), sample);
    samples.push_back(std::move(sample));
    double sum = 0;
    for (const double advantage : worth[i].advantages) sum += advantage;
    sums.push_back(sum / static_cast<double>(answer.ids.size()));
  }
  write_samples(answers, rewards, sums);
  return samples;
}

std::vector<data::Sample> RolloutStream::samples_of(const std::vector<DrawnAnswer>& answers) {
  const settings::Reinforcement& told = settings_.told;
  const auto by_rule = scores_by_rule(answers, parts_.rewards.size());
  RewardGroups groups{weighted_rewards(by_rule, told.reward_weights), told.answers};
  note(answers, groups.rewards);
  if (told.has_critic()) return samples_by_critic(answers, groups.rewards);
  std::vector<int64_t> tokens;
  for (const DrawnAnswer& answer : answers) tokens.push_back(std::ssize(answer.ids));
  const std::vector<std::optional<double>> rewards = groups.rewards;
  if (told.reward_kl > 0) take_distances(answers, groups.rewards);
  const std::vector<double> worth =
      compares_each_rule(told) ? advantages_by_rule(by_rule, told.reward_weights, told.answers)
                               : advantages(groups, tokens, told.advantage, told.scale);
  write_samples(answers, rewards, worth);
  std::vector<data::Sample> samples;
  for (size_t i = 0; i < answers.size(); ++i) {
    // A step needs something to divide by: where all its answers were cut, they are worth nothing.
    const bool all_cut = told.masks_truncated && all_of_step_cut(answers, i);
    const bool is_masked = told.masks_truncated && !answers[i].is_ended && !all_cut;
    data::Sample sample = sample_of(answers[i], is_masked);
    const std::vector<float>& reference = answers[i].reference;
    if (told.loss.kl > 0 && !reference.empty())
      set_column(answers[i], kReferenceColumn,
                 std::vector<double>(reference.begin(), reference.end()), sample);
    sample.token_columns[kAdvantageColumn].assign(sample.ids.size(),
                                                  static_cast<float>(all_cut ? 0 : worth[i]));
    samples.push_back(std::move(sample));
  }
  return samples;
}

void RolloutStream::begin_journal(int64_t number) {
  if (settings_.run_directory.empty()) return journal_.begin(number, "");
  std::string drawn_from = fingerprint_of_trained(parts_.policy, parts_.ranks->model());
  if (settings_.told.parts > 1)
    drawn_from += fmt::format(" {:016x}", hash_bytes(dump_text(growing_.state())));
  journal_.begin(number, drawn_from);
  // A run goes on from its newest checkpoint, and needs none of those before it.
  const std::vector<checkpoint::Found> found = checkpoint::list(settings_.run_directory);
  const int64_t kept = found.empty() ? 0 : found.back().step / steps_of_rollout();
  journal_.forget_before(std::min(kept, number));
}

void RolloutStream::draw_and_judge(const Round& round, std::vector<DrawnAnswer>& own) {
  std::vector<DrawnAnswer> drawn = timed(
      "rollout", [&] { return settings_.told.parts > 1 ? draw_in_parts(round) : draw(round); });
  timed("judging", [&] { judge(round, drawn); });
  std::move(drawn.begin(), drawn.end(), std::back_inserter(own));
}

/// Gives the number of prompts that were drawn beyond those of the rollout.
int64_t RolloutStream::replace_equal(int64_t number, std::vector<DrawnAnswer>& own) {
  const settings::Reinforcement& told = settings_.told;
  const int64_t count = prompts_of_rollout();
  std::vector<DrawnAnswer> all;
  std::vector<bool> differ;
  int64_t lacking = 0, further = 0;
  for (int64_t round = 1;; ++round) {
    all = answers_of_all(parts_.ranks->models(), own);
    const auto scores = scores_by_rule(all, parts_.rewards.size());
    // Where nothing judges, further answers would not be judged either.
    if (round == 1 && !is_any_there(weighted_rewards(scores, told.reward_weights))) return 0;
    differ = groups_that_differ(scores, told);
    lacking = count - std::count(differ.begin(), differ.end(), true);
    if (lacking <= 0 || round > told.max_resamples) break;
    const int64_t first = kFurtherPrompts + number * told.max_resamples * count + further;
    draw_and_judge({round, first, lacking}, own);
    stop_if_asked();
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
      if (differ[group] == wanted) kept.insert(all[first].place / told.answers);
    }
  }
  std::erase_if(
      own, [&](const DrawnAnswer& answer) { return !kept.contains(answer.place / told.answers); });
  return further;
}

void RolloutStream::roll_out(int64_t number) {
  const int64_t count = prompts_of_rollout();
  const bool in_parts = settings_.told.parts > 1;
  growing_ = grown_;  // also after a rollout that was stopped
  growing_.begin_rollout(settings_.told.parts);
  parts_drawn_ = 0;
  begin_journal(number);
  std::vector<DrawnAnswer> own;
  draw_and_judge({0, number * count, count}, own);
  stop_if_asked();
  const bool resamples = settings_.told.max_resamples > 0;
  const int64_t further = resamples ? replace_equal(number, own) : 0;
  timed("logprobs", [&] {
    if (in_parts) finish_parts(own);
    examine(own);
  });
  const std::vector<DrawnAnswer> all = answers_of_all(parts_.ranks->models(), own);
  std::vector<data::Sample> samples = samples_of(all);
  if (in_parts) note_parts(all);
  if (resamples) figures_["resampled_prompts"] = static_cast<double>(further);
  data::BatchStreamOptions options = settings_.batches;
  options.prefetch_steps = 0;
  const auto size = static_cast<int64_t>(samples.size());
  answers_ = std::make_unique<data::BatchStream>(
      std::make_shared<data::VectorSource>(std::move(samples)),
      [size](int64_t index) { return index % size; }, options);
  before_ = std::exchange(grown_, growing_);
}

Json RolloutStream::state() const {
  if (settings_.told.parts == 1) return nullptr;
  return (is_put_back_ ? before_ : grown_).state();
}

}  // namespace danlu::train
