// train/rollouts/answer_pool.h: prompts whose answers several rollouts draw, a part in each.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/json.h"

namespace danlu::train {

// Prompts that take the place of others are counted from here: no run comes so far in the order
// of prompts.
inline constexpr int64_t kFurtherPrompts = int64_t{1} << 40;

/// What was drawn of an answer so far.
struct GrowingAnswer {
  std::vector<int32_t> ids;  ///< with the token that ended it
  /// Log-probabilities of the first of them, by the weights that drew each.
  std::vector<float> old;
  bool is_ended = false;  ///< by such a token
  bool is_whole = false;  ///< ended, or cut at the limit
  int64_t rollouts = 0;   ///< that drew a part of it
  bool grew = false;      ///< in this rollout
};

struct GrowingPrompt {
  int64_t number = 0;  ///< in the order of prompts
  std::vector<GrowingAnswer> answers;
  int64_t waited = 0;     ///< rollouts since the one that began it
  bool is_taken = false;  ///< by this rollout

  bool is_whole() const;
};

/// Prompts of the order, from the first on, and further ones, which take the place of others. Every
/// rank has the same.
class AnswerPool {
 public:
  enum class Kind { kOwn, kFurther };
  struct Place {
    size_t prompt, answer;
  };

  /// answers: to each prompt. next_own: the first prompt that no rollout has begun.
  explicit AnswerPool(int64_t answers, int64_t next_own = 0)
      : answers_(answers), next_own_(next_own) {}
  /// state: as state() gave it. Errors: IoError if it is damaged, or of another number of answers.
  AnswerPool(int64_t answers, const Json& state);

  int64_t next_own() const { return next_own_; }
  /// Prompts of a kind that are there and not taken; those of them whose answers are whole.
  int64_t size(Kind kind) const;
  int64_t num_whole(Kind kind) const;
  const GrowingPrompt& prompt(size_t index) const { return prompts_.at(index); }
  size_t num_prompts() const { return prompts_.size(); }
  /// All prompts, taken ones too, ascending by number.
  const GrowingPrompt* find(int64_t number) const;

  /// Gives up further prompts that would wait for more than so many rollouts: nobody needed them,
  /// and the weights that drew them are far away.
  void begin_rollout(int64_t longest_wait);
  void begin_prompts(Kind kind, int64_t count);
  /// Answers that are not whole.
  std::vector<Place> unfinished() const;
  /// limit: tokens of the whole answer; asked: of this part.
  void add(Place place, const std::vector<int32_t>& ids, bool is_ended, int64_t asked,
           int64_t limit);
  /// Answers with tokens whose log-probabilities are not known.
  std::vector<Place> unnoted() const;
  /// logprobs: of all tokens of the answer. Those that are not known yet are taken.
  void note(Place place, const std::vector<float>& logprobs);
  /// The `count` oldest prompts of a kind whose answers are whole, which are taken from now on.
  /// REQUIRES: there are so many.
  std::vector<int64_t> take(Kind kind, int64_t count);
  void remove_taken();

  /// What another process needs to go on between two rollouts.
  Json state() const;

 private:
  static Kind kind_of(const GrowingPrompt& prompt) {
    return prompt.number < kFurtherPrompts ? Kind::kOwn : Kind::kFurther;
  }

  int64_t answers_;
  int64_t next_own_ = 0, next_further_ = kFurtherPrompts;
  std::vector<GrowingPrompt> prompts_;  ///< ascending by number
};

}  // namespace danlu::train
