// Answers that several rollouts draw, a part in each.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "train/rollouts/answer_passes.h"
#include "train/rollouts/rollout_stream.h"

namespace danlu::train {

/// Tokens of the longest answer to a prompt of so many.
int64_t RolloutStream::longest_answer_to(int64_t prompt_tokens) const {
  const int64_t positions = parts_.policy.config().max_positions;
  const int64_t most = settings_.told.max_new_tokens;
  return positions > 0 ? std::min(most, positions - prompt_tokens) : most;
}

infer::Request RolloutStream::request_for_part(AnswerPool::Place place) const {
  const GrowingPrompt& prompt = growing_.prompt(place.prompt);
  const std::vector<int32_t>& begun = prompt.answers.at(place.answer).ids;
  infer::Request request = request_to(parts_.prompts->get(parts_.order(prompt.number)));
  const int64_t left = longest_answer_to(std::ssize(request.prompt)) - std::ssize(begun);
  request.max_new_tokens = std::min(settings_.told.tokens_of_part(), left);
  request.answered = std::ssize(begun);
  request.prompt.insert(request.prompt.end(), begun.begin(), begun.end());
  request.stream = static_cast<uint64_t>(prompt.number * settings_.told.answers +
                                         static_cast<int64_t>(place.answer));
  return request;
}

/// The next part of every answer that is not whole. Collective over all ranks.
void RolloutStream::draw_parts() {
  const std::vector<AnswerPool::Place> places = growing_.unfinished();
  const auto [begin, end] = share_of(0, std::ssize(places));
  std::vector<infer::Request> requests;
  for (int64_t i = begin; i < end; ++i)
    requests.push_back(request_for_part(places[static_cast<size_t>(i)]));
  std::vector<DrawnAnswer> own = drawn_once(fmt::format("part {}", parts_drawn_), requests);
  for (size_t i = 0; i < own.size(); ++i) own[i].place = begin + static_cast<int64_t>(i);
  for (const DrawnAnswer& part : answers_of_all(parts_.ranks->models(), own)) {
    const AnswerPool::Place place = places[static_cast<size_t>(part.place)];
    const infer::Request request = request_for_part(place);
    const int64_t limit = longest_answer_to(std::ssize(request.prompt) - request.answered);
    growing_.add(place, part.ids, part.is_ended, request.max_new_tokens, limit);
  }
  ++parts_drawn_;
}

/// Draws until so many prompts of the kind have whole answers. Every rollout draws a part at least
/// of each answer that was left to it, so that none takes more rollouts than it has parts.
void RolloutStream::draw_until_whole(AnswerPool::Kind kind, int64_t count) {
  for (bool is_first = true;; is_first = false) {
    const int64_t lacking = count - growing_.num_whole(kind);
    const bool was_left = parts_drawn_ == 0 && !growing_.unfinished().empty();
    if (lacking <= 0 && !was_left) return;
    // Prompts that are begun beside those whose answers are long, as many as these, not more.
    int64_t begun = std::min(lacking, (is_first ? count : 2 * count) - growing_.size(kind));
    if (kind == AnswerPool::Kind::kOwn && settings_.rollouts > 0)
      begun = std::min(begun, settings_.rollouts * prompts_of_rollout() - growing_.next_own());
    growing_.begin_prompts(kind, std::max<int64_t>(0, begun));
    draw_parts();
    stop_if_asked();
  }
}

std::vector<DrawnAnswer> RolloutStream::draw_in_parts(const Round& round) {
  const auto kind = round.number == 0 ? AnswerPool::Kind::kOwn : AnswerPool::Kind::kFurther;
  draw_until_whole(kind, round.count);
  const std::vector<int64_t> taken = growing_.take(kind, round.count);
  const auto [begin, end] = share_of(0, round.count);
  std::vector<DrawnAnswer> own;
  for (int64_t i = begin; i < end; ++i) {
    const GrowingPrompt& prompt = *growing_.find(taken[static_cast<size_t>(i)]);
    const data::Sample asked = parts_.prompts->get(parts_.order(prompt.number));
    for (size_t answer = 0; answer < prompt.answers.size(); ++answer) {
      const GrowingAnswer& grown = prompt.answers[answer];
      DrawnAnswer& one = own.emplace_back();
      one.place = (round.number * prompts_of_rollout() + i) * settings_.told.answers +
                  static_cast<int64_t>(answer);
      one.number = prompt.number;
      one.rollouts = grown.rollouts;
      one.prompt.assign(asked.ids.begin(), asked.ids.end());
      one.ids = grown.ids;
      one.is_ended = grown.is_ended;
    }
  }
  return own;
}

void RolloutStream::finish_parts(std::vector<DrawnAnswer>& own) {
  const std::vector<AnswerPool::Place> places = growing_.unnoted();
  const auto [begin, end] = share_of(0, std::ssize(places));
  std::vector<DrawnAnswer> share;
  for (int64_t i = begin; i < end; ++i) {
    const AnswerPool::Place place = places[static_cast<size_t>(i)];
    const GrowingPrompt& prompt = growing_.prompt(place.prompt);
    const data::Sample asked = parts_.prompts->get(parts_.order(prompt.number));
    DrawnAnswer& one = share.emplace_back();
    one.place = i;
    one.prompt.assign(asked.ids.begin(), asked.ids.end());
    one.ids = prompt.answers.at(place.answer).ids;
  }
  const ForwardPasses passes(parts_.policy, parts_.links);
  find_for_tokens(passes, /*adapters=*/true, logprobs_at(settings_.told.loss.temperature),
                  &DrawnAnswer::old, share);
  for (const DrawnAnswer& one : answers_of_all(parts_.ranks->models(), share))
    growing_.note(places[static_cast<size_t>(one.place)], one.old);
  for (DrawnAnswer& answer : own) {
    const auto of_group = static_cast<size_t>(answer.place % settings_.told.answers);
    answer.old = growing_.find(answer.number)->answers.at(of_group).old;
  }
  growing_.remove_taken();
}

void RolloutStream::note_parts(const std::vector<DrawnAnswer>& answers) {
  int64_t most = 0, several = 0;
  for (const DrawnAnswer& answer : answers) {
    most = std::max(most, answer.rollouts);
    several += answer.rollouts > 1 ? 1 : 0;
  }
  figures_["partial/ratio"] = static_cast<double>(several) / static_cast<double>(answers.size());
  figures_["partial/max_rollouts"] = static_cast<double>(most);
  figures_["partial/waiting_prompts"] = static_cast<double>(growing_.num_prompts());
}

}  // namespace danlu::train
