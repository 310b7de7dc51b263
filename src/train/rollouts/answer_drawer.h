// train/rollouts/answer_drawer.h: draws the answers of a rollout, and keeps those that the next one
// draws further.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/sample_source.h"
#include "infer/generate.h"
#include "train/rollouts/answer_pool.h"
#include "train/rollouts/drawn_answers.h"
#include "train/rollouts/rollout_journal.h"
#include "train/rollouts/rollout_settings.h"

namespace danlu::train {

/// Prompts [first, first + count) of the order, the `number`th that a rollout asks, from 0.
struct PromptRound {
  int64_t number = 0, first = 0, count = 0;
};

/// What is drawn is a function of a prompt's number and of the answer's number among those to it,
/// and so the same on any mesh. With told.parts > 1 a rollout draws parts of answers until enough
/// prompts have whole ones; the next one goes on with the others, and takes the oldest first: a
/// round's `first` says nothing then.
class AnswerDrawer {
 public:
  /// All arguments outlive the object. learnt: rollouts before the first that it draws. Errors:
  /// IoError where settings.state is damaged.
  AnswerDrawer(const RolloutParts& parts, const RolloutSettings& settings, RolloutJournal& journal,
               int64_t learnt);

  /// Whether the prompts that settings.state has are all that `learnt` rollouts left.
  bool has_all_prompts(int64_t learnt) const;
  /// From here on rollout `number` is drawn, also once more after one that was stopped.
  void begin(int64_t number);
  /// This rank's answers to a round's prompts. Errors: as infer::generate. Throws RolloutStopped
  /// where a signal came between parts. Collective over all ranks.
  std::vector<DrawnAnswer> draw(const PromptRound& round);
  /// With told.parts > 1: finds the log-probabilities of what this rollout drew, by the weights
  /// that drew it, and gives this rank's answers theirs. Collective over all ranks.
  void find_old_logprobs(std::vector<DrawnAnswer>& own);
  /// The rollout is over: the next one goes on from what it left.
  void end();

  /// That the present rollout leaves to the next one.
  size_t num_waiting_prompts() const { return growing_.num_prompts(); }
  /// What another process needs to draw the next rollout; was_put_back: the last one again. null:
  /// nothing.
  Json state(bool was_put_back) const;

  /// The likeliest answers to prompts [begin, end) of `prompts`, one to each.
  std::vector<DrawnAnswer> likeliest(const data::SampleSource& prompts, int64_t begin,
                                     int64_t end) const;

 private:
  void begin_journal(int64_t number);
  infer::Request request_to(const data::Sample& prompt) const;
  /// Answers of this rank, which its journal may have already; `name` is theirs there.
  std::vector<DrawnAnswer> drawn_once(const std::string& name,
                                      const std::vector<infer::Request>& requests);
  std::vector<DrawnAnswer> draw_some(const std::string& name,
                                     const std::vector<infer::Request>& requests);
  std::vector<DrawnAnswer> draw_whole(const PromptRound& round);
  std::vector<DrawnAnswer> talk(const PromptRound& round, int64_t first_prompt,
                                const std::vector<infer::Request>& requests);
  std::vector<DrawnAnswer> talk_likeliest(const data::SampleSource& prompts, int64_t begin,
                                          const std::vector<infer::Request>& requests) const;
  std::vector<DrawnAnswer> draw_in_parts(const PromptRound& round);
  int64_t longest_answer_to(int64_t prompt_tokens) const;
  infer::Request request_for_part(AnswerPool::Place place) const;
  void draw_parts();
  void draw_until_whole(AnswerPool::Kind kind, int64_t count);

  const RolloutParts& parts_;
  const RolloutSettings& settings_;
  RolloutJournal& journal_;
  // Answers that are drawn in parts: after the last rollout, before it, and while one is made.
  AnswerPool grown_, before_, growing_;
  int64_t parts_drawn_ = 0;  ///< how often this rollout drew parts
};

}  // namespace danlu::train
