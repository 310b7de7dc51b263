#include "train/rollouts/answer_pool.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/message.h"

namespace danlu::train {
namespace {

constexpr size_t kDigits = 8;  // of a number of 32 bits

/// Numbers as they are in memory, so that none changes, one behind the other.
std::string bits_of(const std::vector<float>& numbers) {
  std::string text;
  for (const float number : numbers) text += fmt::format("{:08x}", std::bit_cast<uint32_t>(number));
  return text;
}

std::vector<float> from_bits(const std::string& text) {
  std::vector<float> numbers;
  for (size_t at = 0; at + kDigits <= text.size(); at += kDigits) {
    uint32_t bits = 0;
    std::from_chars(text.data() + at, text.data() + at + kDigits, bits, 16);
    numbers.push_back(std::bit_cast<float>(bits));
  }
  return numbers;
}

std::vector<int32_t> ids_in(const std::string& text) {
  std::istringstream stream(text);
  std::vector<int32_t> ids;
  for (int32_t id = 0; stream >> id;) ids.push_back(id);
  return ids;
}

Json state_of_answer(const GrowingAnswer& answer) {
  return {{"ids", fmt::format("{}", fmt::join(answer.ids, " "))},
          {"logprob_bits", bits_of(answer.old)},
          {"ended", answer.is_ended},
          {"whole", answer.is_whole},
          {"rollouts", answer.rollouts}};
}

GrowingAnswer answer_from(const Json& state) {
  GrowingAnswer answer;
  answer.ids = ids_in(state.at("ids").get<std::string>());
  answer.old = from_bits(state.at("logprob_bits").get<std::string>());
  answer.is_ended = state.at("ended").get<bool>();
  answer.is_whole = state.at("whole").get<bool>();
  answer.rollouts = state.at("rollouts").get<int64_t>();
  if (answer.old.size() != answer.ids.size())
    throw IoError(tr("data_state.json is damaged: {}", "logprob_bits"));
  return answer;
}

}  // namespace

bool GrowingPrompt::is_whole() const {
  return std::all_of(answers.begin(), answers.end(),
                     [](const GrowingAnswer& answer) { return answer.is_whole; });
}

AnswerPool::AnswerPool(int64_t answers, const Json& state) : answers_(answers) {
  try {
    next_own_ = state.at("next").at(0).get<int64_t>();
    next_further_ = state.at("next").at(1).get<int64_t>();
    for (const Json& of_prompt : state.at("prompts")) {
      GrowingPrompt& prompt = prompts_.emplace_back();
      prompt.number = of_prompt.at("number").get<int64_t>();
      prompt.waited = of_prompt.value("waited", int64_t{0});
      for (const Json& of_answer : of_prompt.at("answers"))
        prompt.answers.push_back(answer_from(of_answer));
      if (std::ssize(prompt.answers) != answers)
        throw IoError(tr("data_state.json is damaged: {}", "answers"));
    }
  } catch (const Json::exception& error) {
    throw IoError(tr("data_state.json is damaged: {}", error.what()));
  }
}

int64_t AnswerPool::size(Kind kind) const {
  return std::count_if(prompts_.begin(), prompts_.end(), [&](const GrowingPrompt& prompt) {
    return kind_of(prompt) == kind && !prompt.is_taken;
  });
}

int64_t AnswerPool::num_whole(Kind kind) const {
  return std::count_if(prompts_.begin(), prompts_.end(), [&](const GrowingPrompt& prompt) {
    return kind_of(prompt) == kind && !prompt.is_taken && prompt.is_whole();
  });
}

const GrowingPrompt* AnswerPool::find(int64_t number) const {
  const auto found =
      std::find_if(prompts_.begin(), prompts_.end(),
                   [&](const GrowingPrompt& prompt) { return prompt.number == number; });
  return found == prompts_.end() ? nullptr : &*found;
}

void AnswerPool::begin_rollout(int64_t longest_wait) {
  for (GrowingPrompt& prompt : prompts_) {
    ++prompt.waited;
    for (GrowingAnswer& answer : prompt.answers) answer.grew = false;
  }
  std::erase_if(prompts_, [&](const GrowingPrompt& prompt) {
    return kind_of(prompt) == Kind::kFurther && prompt.waited > longest_wait;
  });
}

void AnswerPool::begin_prompts(Kind kind, int64_t count) {
  int64_t& next = kind == Kind::kOwn ? next_own_ : next_further_;
  for (int64_t i = 0; i < count; ++i) {
    GrowingPrompt prompt;
    prompt.number = next++;
    prompt.answers.resize(static_cast<size_t>(answers_));
    const auto behind = std::upper_bound(
        prompts_.begin(), prompts_.end(), prompt.number,
        [](int64_t number, const GrowingPrompt& other) { return number < other.number; });
    prompts_.insert(behind, std::move(prompt));
  }
}

std::vector<AnswerPool::Place> AnswerPool::unfinished() const {
  std::vector<Place> places;
  for (size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
    const std::vector<GrowingAnswer>& answers = prompts_[prompt].answers;
    for (size_t answer = 0; answer < answers.size(); ++answer) {
      if (!answers[answer].is_whole) places.push_back({prompt, answer});
    }
  }
  return places;
}

void AnswerPool::add(Place place, const std::vector<int32_t>& ids, bool is_ended, int64_t asked,
                     int64_t limit) {
  GrowingAnswer& answer = prompts_.at(place.prompt).answers.at(place.answer);
  answer.ids.insert(answer.ids.end(), ids.begin(), ids.end());
  answer.is_ended = is_ended;
  answer.is_whole = is_ended || std::ssize(ids) < asked || std::ssize(answer.ids) >= limit;
  if (!answer.grew) ++answer.rollouts;
  answer.grew = true;
}

std::vector<AnswerPool::Place> AnswerPool::unnoted() const {
  std::vector<Place> places;
  for (size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
    const std::vector<GrowingAnswer>& answers = prompts_[prompt].answers;
    for (size_t answer = 0; answer < answers.size(); ++answer) {
      if (answers[answer].old.size() < answers[answer].ids.size())
        places.push_back({prompt, answer});
    }
  }
  return places;
}

void AnswerPool::note(Place place, const std::vector<float>& logprobs) {
  GrowingAnswer& answer = prompts_.at(place.prompt).answers.at(place.answer);
  answer.old.insert(answer.old.end(),
                    logprobs.begin() + static_cast<std::ptrdiff_t>(answer.old.size()),
                    logprobs.end());
}

std::vector<int64_t> AnswerPool::take(Kind kind, int64_t count) {
  std::vector<int64_t> taken;
  for (GrowingPrompt& prompt : prompts_) {
    if (std::ssize(taken) == count) break;
    if (kind_of(prompt) != kind || prompt.is_taken || !prompt.is_whole()) continue;
    prompt.is_taken = true;
    taken.push_back(prompt.number);
  }
  if (std::ssize(taken) < count) throw InternalError("[rollout] too few answers are whole");
  return taken;
}

void AnswerPool::remove_taken() {
  std::erase_if(prompts_, [](const GrowingPrompt& prompt) { return prompt.is_taken; });
}

Json AnswerPool::state() const {
  Json prompts = Json::array();
  for (const GrowingPrompt& prompt : prompts_) {
    Json answers = Json::array();
    for (const GrowingAnswer& answer : prompt.answers) answers.push_back(state_of_answer(answer));
    prompts.push_back({{"number", prompt.number}, {"waited", prompt.waited}, {"answers", answers}});
  }
  return {{"next", {next_own_, next_further_}}, {"prompts", prompts}};
}

}  // namespace danlu::train
