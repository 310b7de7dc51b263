#include "train/rollouts/answer_drawer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "train/rollouts/answer_passes.h"

namespace danlu::train {
namespace {

/// Answers as a journal has them.
Json noted(const std::vector<DrawnAnswer>& answers) {
  Json list = Json::array();
  for (const DrawnAnswer& answer : answers)
    list.push_back({{"ids", answer.ids}, {"ended", answer.is_ended}});
  return list;
}

AnswerPool pool_of(const RolloutSettings& settings, int64_t learnt) {
  const int64_t answers = settings.told.answers;
  return settings.draws_in_parts() && !settings.state.is_null()
             ? AnswerPool(answers, settings.state)
             : AnswerPool(answers, learnt * settings.prompts_of_rollout());
}

}  // namespace

AnswerDrawer::AnswerDrawer(const RolloutParts& parts, const RolloutSettings& settings,
                           RolloutJournal& journal, int64_t learnt)
    : parts_(parts),
      settings_(settings),
      journal_(journal),
      grown_(pool_of(settings, learnt)),
      before_(grown_),
      growing_(grown_) {}

bool AnswerDrawer::has_all_prompts(int64_t learnt) const {
  return grown_.next_own() - grown_.size(AnswerPool::Kind::kOwn) ==
         learnt * settings_.prompts_of_rollout();
}

void AnswerDrawer::begin(int64_t number) {
  growing_ = grown_;
  growing_.begin_rollout(settings_.told.parts);
  parts_drawn_ = 0;
  begin_journal(number);
}

void AnswerDrawer::begin_journal(int64_t number) {
  if (settings_.run_directory.empty()) return journal_.begin(number, "");
  std::string drawn_from = fingerprint_of_trained(parts_.policy, parts_.ranks->model());
  if (settings_.draws_in_parts())
    drawn_from += fmt::format(" {:016x}", hash_bytes(dump_text(growing_.state())));
  journal_.begin(number, drawn_from);
  // A run goes on from its newest checkpoint, and needs none of those before it.
  const std::vector<checkpoint::Found> found = checkpoint::list(settings_.run_directory);
  const int64_t kept = found.empty() ? 0 : found.back().step / settings_.steps_of_rollout();
  journal_.forget_before(std::min(kept, number));
}

void AnswerDrawer::end() { before_ = std::exchange(grown_, growing_); }

Json AnswerDrawer::state(bool was_put_back) const {
  if (!settings_.draws_in_parts()) return nullptr;
  return (was_put_back ? before_ : grown_).state();
}

infer::Request AnswerDrawer::request_to(const data::Sample& prompt) const {
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

/// As drawn_once(), inside of with_weights().
std::vector<DrawnAnswer> AnswerDrawer::draw_some(const std::string& name,
                                                 const std::vector<infer::Request>& requests) {
  const auto together = static_cast<size_t>(settings_.answers_together);
  std::vector<DrawnAnswer> answers;
  for (size_t begin = 0; begin < requests.size(); begin += together) {
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
  }
  return answers;
}

std::vector<DrawnAnswer> AnswerDrawer::drawn_once(const std::string& name,
                                                  const std::vector<infer::Request>& requests) {
  std::vector<DrawnAnswer> answers;
  parts_.with_weights([&] { answers = draw_some(name, requests); });
  return answers;
}

std::vector<DrawnAnswer> AnswerDrawer::talk(const PromptRound& round, int64_t first_prompt,
                                            const std::vector<infer::Request>& requests) {
  std::vector<TalkBegin> begins;
  for (const infer::Request& request : requests) {
    const int64_t index = std::ssize(begins), answers = settings_.told.answers;
    const int64_t prompt = first_prompt + index / answers;
    const std::string columns = parts_.prompts->columns(parts_.order(prompt));
    begins.push_back(
        {request, fmt::format("{}.{}", prompt, index % answers),
         columns.empty() ? Json::object() : parse_json(columns, "columns of a prompt")});
  }
  const DrawTurn draw = [&](int64_t turn, const std::vector<infer::Request>& of_turn) {
    return draw_some(fmt::format("answers {} turn {}", round.number, turn), of_turn);
  };
  const AskOnce ask = [&](int64_t turn, const std::function<Json()>& of_environment) {
    const std::string name = fmt::format("environment {} turn {}", round.number, turn);
    if (const Json* known = journal_.find(name)) return *known;
    Json replies = asked_by_first(parts_.ranks->model(), of_environment);
    if (!replies.is_null()) journal_.add(name, replies);
    return replies;
  };
  std::vector<DrawnAnswer> answers;
  // Ranks need not have as many turns as each other: weights are there for all of them.
  parts_.with_weights([&] { answers = parts_.conversations->hold(begins, draw, ask); });
  return answers;
}

std::vector<DrawnAnswer> AnswerDrawer::talk_likeliest(
    const data::SampleSource& prompts, int64_t begin,
    const std::vector<infer::Request>& requests) const {
  std::vector<TalkBegin> begins;
  for (const infer::Request& request : requests) {
    const int64_t prompt = begin + std::ssize(begins);
    const std::string columns = prompts.columns(prompt);
    begins.push_back(
        {request, fmt::format("held_out.{}", prompt),
         columns.empty() ? Json::object() : parse_json(columns, "columns of a prompt")});
  }
  const DrawTurn draw = [&](int64_t, const std::vector<infer::Request>& of_turn) {
    std::vector<DrawnAnswer> answers;
    for (const infer::Answer& found : parts_.generate(of_turn))
      answers.push_back(drawn_answer(found));
    return answers;
  };
  const AskOnce ask = [&](int64_t, const std::function<Json()>& of_environment) {
    return asked_by_first(parts_.ranks->model(), of_environment);
  };
  std::vector<DrawnAnswer> answers;
  parts_.with_weights([&] { answers = parts_.conversations->hold(begins, draw, ask); });
  return answers;
}

std::vector<DrawnAnswer> AnswerDrawer::draw(const PromptRound& round) {
  return settings_.draws_in_parts() ? draw_in_parts(round) : draw_whole(round);
}

std::vector<DrawnAnswer> AnswerDrawer::draw_whole(const PromptRound& round) {
  const auto [begin, end] = settings_.share_of(round.first, round.count);
  std::vector<infer::Request> requests;
  for (int64_t prompt = begin; prompt < end; ++prompt) {
    infer::Request request = request_to(parts_.prompt(prompt));
    for (int64_t i = 0; i < settings_.told.answers; ++i) {
      request.stream = static_cast<uint64_t>(prompt * settings_.told.answers + i);
      requests.push_back(request);
    }
  }
  std::vector<DrawnAnswer> answers =
      parts_.conversations ? talk(round, begin, requests)
                           : drawn_once(fmt::format("answers {}", round.number), requests);
  for (size_t i = 0; i < answers.size(); ++i) {
    const int64_t index = static_cast<int64_t>(i), prompt = begin + index / settings_.told.answers;
    answers[i].prompt = std::move(requests[i].prompt);
    answers[i].number = prompt;
    answers[i].place = (round.number * settings_.prompts_of_rollout() + begin - round.first) *
                           settings_.told.answers +
                       index;
  }
  return answers;
}

std::vector<DrawnAnswer> AnswerDrawer::likeliest(const data::SampleSource& prompts, int64_t begin,
                                                 int64_t end) const {
  std::vector<infer::Request> requests;
  for (int64_t prompt = begin; prompt < end; ++prompt) {
    requests.push_back(request_to(prompts.get(prompt)));
    requests.back().sampling.do_sample = false;
  }
  std::vector<DrawnAnswer> answers;
  if (parts_.conversations) {
    answers = talk_likeliest(prompts, begin, requests);
  } else {
    parts_.with_weights([&] {
      for (const infer::Answer& found : parts_.generate(requests))
        answers.push_back(drawn_answer(found));
    });
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    answers[i].prompt = requests[i].prompt;
    answers[i].place = begin + static_cast<int64_t>(i);
  }
  return answers;
}

/// Tokens of the longest answer to a prompt of so many.
int64_t AnswerDrawer::longest_answer_to(int64_t prompt_tokens) const {
  const int64_t positions = parts_.policy.config().max_positions;
  const int64_t most = settings_.told.max_new_tokens;
  return positions > 0 ? std::min(most, positions - prompt_tokens) : most;
}

infer::Request AnswerDrawer::request_for_part(AnswerPool::Place place) const {
  const GrowingPrompt& prompt = growing_.prompt(place.prompt);
  const std::vector<int32_t>& begun = prompt.answers.at(place.answer).ids;
  infer::Request request = request_to(parts_.prompt(prompt.number));
  const int64_t left = longest_answer_to(std::ssize(request.prompt)) - std::ssize(begun);
  request.max_new_tokens = std::min(settings_.told.tokens_of_part(), left);
  request.answered = std::ssize(begun);
  request.prompt.insert(request.prompt.end(), begun.begin(), begun.end());
  request.stream = static_cast<uint64_t>(prompt.number * settings_.told.answers +
                                         static_cast<int64_t>(place.answer));
  return request;
}

/// The next part of every answer that is not whole. Collective over all ranks.
void AnswerDrawer::draw_parts() {
  const std::vector<AnswerPool::Place> places = growing_.unfinished();
  const auto [begin, end] = settings_.share_of(0, std::ssize(places));
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
void AnswerDrawer::draw_until_whole(AnswerPool::Kind kind, int64_t count) {
  for (bool is_first = true;; is_first = false) {
    const int64_t lacking = count - growing_.num_whole(kind);
    const bool was_left = parts_drawn_ == 0 && !growing_.unfinished().empty();
    if (lacking <= 0 && !was_left) return;
    // Prompts that are begun beside those whose answers are long, as many as these, not more.
    int64_t begun = std::min(lacking, (is_first ? count : 2 * count) - growing_.size(kind));
    if (kind == AnswerPool::Kind::kOwn && settings_.rollouts > 0)
      begun = std::min(begun,
                       settings_.rollouts * settings_.prompts_of_rollout() - growing_.next_own());
    growing_.begin_prompts(kind, std::max<int64_t>(0, begun));
    draw_parts();
    stop_if_asked(*parts_.ranks);
  }
}

std::vector<DrawnAnswer> AnswerDrawer::draw_in_parts(const PromptRound& round) {
  const auto kind = round.number == 0 ? AnswerPool::Kind::kOwn : AnswerPool::Kind::kFurther;
  draw_until_whole(kind, round.count);
  const std::vector<int64_t> taken = growing_.take(kind, round.count);
  const auto [begin, end] = settings_.share_of(0, round.count);
  std::vector<DrawnAnswer> own;
  for (int64_t i = begin; i < end; ++i) {
    const GrowingPrompt& prompt = *growing_.find(taken[static_cast<size_t>(i)]);
    const data::Sample asked = parts_.prompt(prompt.number);
    for (size_t answer = 0; answer < prompt.answers.size(); ++answer) {
      const GrowingAnswer& grown = prompt.answers[answer];
      DrawnAnswer& one = own.emplace_back();
      one.place = (round.number * settings_.prompts_of_rollout() + i) * settings_.told.answers +
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

void AnswerDrawer::find_old_logprobs(std::vector<DrawnAnswer>& own) {
  if (!settings_.draws_in_parts()) return;
  const std::vector<AnswerPool::Place> places = growing_.unnoted();
  const auto [begin, end] = settings_.share_of(0, std::ssize(places));
  std::vector<DrawnAnswer> share;
  for (int64_t i = begin; i < end; ++i) {
    const AnswerPool::Place place = places[static_cast<size_t>(i)];
    const GrowingPrompt& prompt = growing_.prompt(place.prompt);
    const data::Sample asked = parts_.prompt(prompt.number);
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

}  // namespace danlu::train
