#include "train/rollouts/drawn_answers.h"

#include <cstring>
#include <type_traits>

#include "base/error.h"
#include "base/ignore_label.h"
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
    pack_all(bytes, answer.prompt);
    pack_all(bytes, answer.ids);
    pack(bytes, answer.is_ended);
    pack(bytes, static_cast<uint64_t>(answer.scores.size()));
    for (const auto& score : answer.scores) {
      pack(bytes, score.has_value());
      pack(bytes, score.value_or(0));
    }
    pack_all(bytes, answer.old);
  }
  return bytes;
}

void unpack(const std::string& bytes, std::vector<DrawnAnswer>& answers) {
  Unpacking from(bytes);
  while (!from.is_done()) {
    DrawnAnswer answer;
    answer.prompt = from.take_all<int32_t>();
    answer.ids = from.take_all<int32_t>();
    answer.is_ended = from.take<bool>();
    answer.scores.resize(from.take<uint64_t>());
    for (auto& score : answer.scores) {
      const bool is_judged = from.take<bool>();
      const auto value = from.take<double>();
      if (is_judged) score = value;
    }
    answer.old = from.take_all<float>();
    answers.push_back(std::move(answer));
  }
}

}  // namespace

std::vector<DrawnAnswer> answers_of_all(const parallel::Group& group,
                                        const std::vector<DrawnAnswer>& own) {
  std::vector<DrawnAnswer> all;
  for (const std::string& bytes : parallel::texts_of_all(group, packed(own))) unpack(bytes, all);
  return all;
}

data::Sample sample_of(const DrawnAnswer& answer, double advantage, bool is_masked) {
  data::Sample sample;
  sample.ids = answer.prompt;
  sample.ids.insert(sample.ids.end(), answer.ids.begin(), answer.ids.end());
  sample.labels = sample.ids;
  const size_t begin = answer.prompt.size();
  for (size_t i = 0; i < sample.labels.size(); ++i) {
    if (i < begin || is_masked) sample.labels[i] = static_cast<int32_t>(kIgnoreLabel);
  }
  sample.token_columns[kAdvantageColumn].assign(sample.ids.size(), static_cast<float>(advantage));
  if (answer.old.empty()) return sample;
  std::vector<float>& old = sample.token_columns[kOldColumn];
  old.assign(sample.ids.size(), 0);
  for (size_t i = 0; i < answer.old.size(); ++i) old[begin - 1 + i] = answer.old[i];
  return sample;
}

}  // namespace danlu::train
