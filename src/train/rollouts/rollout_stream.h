// train/rollouts/rollout_stream.h: steps whose samples are answers that the policy draws itself.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/at_exit.h"
#include "base/clock.h"
#include "base/json.h"
#include "data/batch_stream.h"
#include "train/evaluate.h"
#include "train/rollouts/answer_drawer.h"
#include "train/rollouts/answer_judge.h"
#include "train/rollouts/rollout_journal.h"
#include "train/rollouts/rollout_report.h"
#include "train/rollouts/rollout_settings.h"

namespace danlu::train {

/// A rollout draws told.answers answers to each of some prompts (AnswerDrawer), has them judged
/// (AnswerJudge), and gives told.steps steps of them (learnt_from), told.iterations times. This
/// class says which prompts, and where the run is. With told.max_resamples, prompts whose answers
/// all got one reward give way to further ones, which come from far ahead in the order: those that
/// a rollout begins with stay the same.
class RolloutStream : public data::StepStream {
 public:
  /// Errors: UsageError if a rollout has no whole number of prompts, or `consumed` lies inside one.
  RolloutStream(RolloutParts parts, RolloutSettings settings, int64_t consumed);
  RolloutStream(const RolloutStream&) = delete;
  RolloutStream& operator=(const RolloutStream&) = delete;

  /// Errors: as AnswerDrawer, AnswerJudge and Critic::learn. Throws RolloutStopped. Collective.
  data::StepBatches next() override;
  void put_back(const data::StepBatches& step) override;
  int64_t consumed() const override { return step_ * settings_.samples_of_step(); }
  double data_wait_s() const override { return wait_s_; }
  double epoch() const override;
  /// Between rollouts: answers are drawn again from the weights that a checkpoint holds.
  bool is_resumable() const override { return step_ % settings_.steps_of_rollout() == 0; }
  std::map<std::string, double> figures() const override { return figures_; }
  /// rollout: drawing answers; judging; logprobs: passes that find log-probabilities and values;
  /// critic: its step.
  std::map<std::string, double> times() const override { return times_; }
  /// What the next rollout draws further, where told.parts > 1, and the weight of the distance that
  /// it has, where that moves. Between rollouts.
  Json state() const override;

  /// The likeliest answers to held-out prompts, one to each, judged: the mean reward and those of
  /// each rule, lengths, and how many were cut. Errors: as next(). Collective.
  Evaluation evaluate(const data::SampleSource& prompts, const EvaluationSettings& settings);

 private:
  int64_t rollouts_learnt() const { return step_ / settings_.steps_of_rollout(); }
  /// work(), whose seconds are added to those of `what`.
  template <typename Work>
  auto timed(const char* what, const Work& work) {
    const AtExit add(
        [this, what, begun = steady_now_s()] { times_[what] += steady_now_s() - begun; });
    return work();
  }
  void roll_out(int64_t number);
  void draw_and_judge(const PromptRound& round, std::vector<DrawnAnswer>& own);
  /// Gives the number of prompts that were drawn beyond those of the rollout.
  int64_t replace_equal(int64_t number, std::vector<DrawnAnswer>& own);
  /// Everybody's answers. Collective.
  JudgedAnswers judged_of_all(const std::vector<DrawnAnswer>& own) const;

  const RolloutParts parts_;
  const RolloutSettings settings_;
  RolloutJournal journal_;
  int64_t step_ = 0;
  AnswerDrawer drawer_;
  AnswerJudge judge_;
  RolloutReport report_;
  std::unique_ptr<data::BatchStream> answers_;  ///< of the present rollout
  std::map<std::string, double> figures_, times_;
  /// Weights of the distance in a critic's rewards: the present rollout's, and the next one's.
  double kl_ = 0, next_kl_ = 0;
  double wait_s_ = 0;
  bool is_put_back_ = false;  ///< the step that next() gives was given before
  bool has_warned_of_rest_ = false;
};

}  // namespace danlu::train
