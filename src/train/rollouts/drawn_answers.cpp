#include "train/rollouts/drawn_answers.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/error.h"
#include "base/ignore_label.h"
#include "base/json.h"
#include "parallel/agree.h"
#include "train/objectives/policy.h"

namespace danlu::train {
namespace {

template <typename T>
void pack(std::string& bytes, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
void pack_all(std::string& bytes, const std::vector<T>& values) {
  pack(bytes, static_cast<uint64_t>(values.size()));
  for (const T& value : values) pack(bytes, value);
}

/// Reads what pack() wrote, in the same order.
class Unpacking {
 public:
  explicit Unpacking(const std::string& bytes) : bytes_(bytes) {}
  bool is_done() const { return at_ == bytes_.size(); }
  template <typename T>
  T take() {
    if (at_ + sizeof(T) > bytes_.size()) throw InternalError("[rollout] answers of a rank are cut");
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  template <typename T>
  std::vector<T> take_all() {
    std::vector<T> values(take<uint64_t>());
    for (T& value : values) value = take<T>();
    return values;
  }

 private:
  const std::string& bytes_;
  size_t at_ = 0;
};

std::string packed(const std::vector<DrawnAnswer>& answers) {
  std::string bytes;
  for (const DrawnAnswer& answer : answers) {
    for (const int64_t number : {answer.place, answer.number, answer.rollouts}) pack(bytes, number);
    pack_all(bytes, answer.prompt);
    pack_all(bytes, answer.ids);
    pack(bytes, answer.is_ended);
    pack(bytes, static_cast<uint64_t>(answer.scores.size()));
    for (const auto& score : answer.scores) {
      pack(bytes, score.has_value());
      pack(bytes, score.value_or(0));
    }
    for (const std::vector<float>* of_tokens : {&answer.old, &answer.reference, &answer.values})
      pack_all(bytes, *of_tokens);
    pack_all(bytes, answer.is_drawn);
    for (const int64_t number : {answer.turns, answer.last_turn}) pack(bytes, number);
    pack(bytes, answer.of_environment.has_value());
    pack(bytes, answer.of_environment.value_or(0));
    pack_all(bytes, std::vector<char>(answer.talk.begin(), answer.talk.end()));
  }
  return bytes;
}

void unpack(const std::string& bytes, std::vector<DrawnAnswer>& answers) {
  Unpacking from(bytes);
  while (!from.is_done()) {
    DrawnAnswer answer;
    for (int64_t* number : {&answer.place, &answer.number, &answer.rollouts})
      *number = from.take<int64_t>();
    answer.prompt = from.take_all<int32_t>();
    answer.ids = from.take_all<int32_t>();
    answer.is_ended = from.take<bool>();
    answer.scores.resize(from.take<uint64_t>());
    for (auto& score : answer.scores) {
      const bool is_judged = from.take<bool>();
      const auto value = from.take<double>();
      if (is_judged) score = value;
    }
    for (std::vector<float>* of_tokens : {&answer.old, &answer.reference, &answer.values})
      *of_tokens = from.take_all<float>();
    answer.is_drawn = from.take_all<uint8_t>();
    for (int64_t* number : {&answer.turns, &answer.last_turn}) *number = from.take<int64_t>();
    const bool is_rewarded = from.take<bool>();
    const auto reward = from.take<double>();
    if (is_rewarded) answer.of_environment = reward;
    const std::vector<char> talk = from.take_all<char>();
    answer.talk.assign(talk.begin(), talk.end());
    answers.push_back(std::move(answer));
  }
}

}  // namespace

int64_t DrawnAnswer::num_drawn() const {
  if (is_drawn.empty()) return std::ssize(ids);
  return std::count(is_drawn.begin(), is_drawn.end(), uint8_t{1});
}

DrawnAnswer drawn_answer(const infer::Answer& found) {
  DrawnAnswer answer;
  answer.ids = found.ids;
  const bool has_stop_token = found.stopped_by.has_value();
  answer.is_ended = has_stop_token || found.reason == infer::FinishReason::kStop;
  if (has_stop_token) answer.ids.push_back(*found.stopped_by);
  return answer;
}

eval::Completion completion_of(const DrawnAnswer& answer, const text::Tokenizer& tokenizer) {
  eval::Completion completion;
  const auto last = answer.ids.begin() + answer.last_turn;
  completion.prompt_ids = answer.prompt;
  completion.prompt_ids.insert(completion.prompt_ids.end(), answer.ids.begin(), last);
  completion.ids.assign(last, answer.ids.end());
  completion.prompt = tokenizer.decode(completion.prompt_ids);
  completion.text = tokenizer.decode(completion.ids, /*skip_special=*/true);
  completion.is_ended = answer.is_ended;
  completion.of_environment = answer.of_environment;
  if (!answer.talk.empty())
    completion.messages = parse_json(answer.talk, "a conversation").at("messages");
  return completion;
}

std::vector<DrawnAnswer> answers_of_all(const parallel::Group& group,
                                        const std::vector<DrawnAnswer>& own) {
  std::vector<DrawnAnswer> all;
  for (const std::string& bytes : parallel::texts_of_all(group, packed(own))) unpack(bytes, all);
  std::stable_sort(all.begin(), all.end(), [](const DrawnAnswer& one, const DrawnAnswer& other) {
    return one.place < other.place;
  });
  return all;
}

std::vector<std::vector<std::optional<double>>> scores_by_rule(
    const std::vector<DrawnAnswer>& answers, size_t rules) {
  std::vector<std::vector<std::optional<double>>> scores(rules);
  for (const DrawnAnswer& answer : answers) {
    for (size_t rule = 0; rule < rules; ++rule) scores[rule].push_back(answer.scores.at(rule));
  }
  return scores;
}

void set_column(const DrawnAnswer& answer, const char* name, std::span<const double> values,
                data::Sample& sample) {
  std::vector<float>& column = sample.token_columns[name];
  column.assign(sample.ids.size(), 0);
  for (size_t i = 0; i < values.size(); ++i)
    column[answer.prompt.size() - 1 + i] = static_cast<float>(values[i]);
}

data::Sample sample_of(const DrawnAnswer& answer, bool is_masked) {
  data::Sample sample;
  sample.ids = answer.prompt;
  sample.ids.insert(sample.ids.end(), answer.ids.begin(), answer.ids.end());
  sample.labels = sample.ids;
  const size_t begin = answer.prompt.size();
  for (size_t i = 0; i < sample.labels.size(); ++i) {
    if (i < begin || is_masked || !answer.has_drawn(i - begin))
      sample.labels[i] = static_cast<int32_t>(kIgnoreLabel);
  }
  if (!answer.old.empty())
    set_column(answer, kOldColumn, std::vector<double>(answer.old.begin(), answer.old.end()),
               sample);
  return sample;
}

}  // namespace danlu::train
