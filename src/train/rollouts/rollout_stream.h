// train/rollouts/rollout_stream.h: steps whose samples are answers that the policy draws itself.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/at_exit.h"
#include "base/clock.h"
#include "base/json.h"
#include "data/batch_stream.h"
#include "eval/rewards/reward.h"
#include "models/causal_lm.h"
#include "settings/reinforcement.h"
#include "text/tokenizer.h"
#include "train/evaluate.h"
#include "train/objectives/reference.h"
#include "train/rollouts/answer_pool.h"
#include "train/rollouts/critic.h"
#include "train/rollouts/drawing_ranks.h"
#include "train/rollouts/drawn_answers.h"
#include "train/rollouts/generator.h"
#include "train/rollouts/rollout_journal.h"
#include "train/stage_links.h"

namespace danlu::train {

/// A signal asked the run to stop while answers were drawn or judged, on all ranks alike. The
/// stream is as before the call, and the journal has what was drawn.
struct RolloutStopped {};

struct RolloutSettings {
  settings::Reinforcement told;
  data::BatchStreamOptions batches;  ///< of a step; samples are answers
  std::vector<text::TokenId> stop_ids;
  std::optional<text::TokenId> answer_end;  ///< what ends an answer in the template
  uint64_t seed = 0;
  /// Gets a line for each answer, to held-out prompts too (JSON), of which the first is shown;
  /// empty: nobody looks at them.
  std::filesystem::path samples_file;
  /// The run's directory; empty: what was drawn is kept nowhere. With `origin`, what answers depend
  /// on beside weights.
  std::filesystem::path run_directory;
  std::string origin;
  /// Requests that are given to the generator together, and whose answers are written down
  /// together: the same ones in a run that goes on, so that its bits are.
  int64_t answers_together = 512;
  /// The rollouts of the whole run, the last of which leaves no answer unfinished; 0: nobody knows.
  int64_t rollouts = 0;
  int64_t steps = 0;     ///< of the whole run; 0: nobody knows
  Json state = nullptr;  ///< as RolloutStream::state() gave it
};

/// What a rollout is made with; outlives the stream.
struct RolloutParts {
  models::CausalLM& policy;
  StageLinks& links;
  std::shared_ptr<const data::SampleSource> prompts;  ///< SampleKind::kPrompts
  data::BatchStream::Order order;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  Generator generate;
  std::vector<std::shared_ptr<const eval::Reward>> rewards;
  /// Where rewards of tokens need one (PPO); nullptr: the policy without adapters.
  std::shared_ptr<const FrozenModel> reference = {};
  /// Learns from a step's answers before the policy does; nullptr: answers are compared with each
  /// other.
  Critic* critic = nullptr;
  /// nullptr: of a mesh whose ranks of one model stand on the tensor axis alone.
  std::shared_ptr<const DrawingRanks> ranks = {};
  WithWeights with_weights = {};  ///< empty: of the policy as it is
};

/// A rollout draws told.answers answers to each of some prompts, has them judged, and gives
/// told.steps steps of them, told.iterations times. Which prompts and which random draws are a
/// function of the global number of a sample alone, and so the same on any mesh. With
/// told.max_resamples, prompts whose answers all got one reward give way to further ones, which
/// come from far ahead in the order: those that a rollout begins with stay the same. With
/// told.parts > 1 a rollout draws parts of answers until enough prompts have whole ones; the next
/// one goes on with the others, and takes the oldest first.
class RolloutStream : public data::StepStream {
 public:
  /// Errors: UsageError if a rollout has no whole number of prompts, or `consumed` lies inside one.
  RolloutStream(RolloutParts parts, RolloutSettings settings, int64_t consumed);

  /// Errors: as infer::generate, the rewards and Critic::learn; DataError where nothing judges the
  /// first answers; IoError where samples_file cannot be written. Throws RolloutStopped.
  /// Collective.
  data::StepBatches next() override;
  void put_back(const data::StepBatches& step) override;
  int64_t consumed() const override { return step_ * samples_of_step(); }
  double data_wait_s() const override { return wait_s_; }
  double epoch() const override;
  /// Between rollouts: answers are drawn again from the weights that a checkpoint holds.
  bool is_resumable() const override { return step_ % steps_of_rollout() == 0; }
  std::map<std::string, double> figures() const override { return figures_; }
  /// rollout: drawing answers; judging; logprobs: passes that find log-probabilities and values;
  /// critic: its step.
  std::map<std::string, double> times() const override { return times_; }
  /// What the next rollout draws further, where told.parts > 1. Between rollouts.
  Json state() const override;

  /// The likeliest answers to held-out prompts, one to each, judged: the mean reward and those of
  /// each rule, lengths, and how many were cut. Errors: as next(). Collective.
  Evaluation evaluate(const data::SampleSource& prompts, const EvaluationSettings& settings) const;

 private:
  int64_t samples_of_step() const { return settings_.batches.global_batch_size(); }
  int64_t steps_of_rollout() const { return settings_.told.steps * settings_.told.iterations; }
  int64_t prompts_of_rollout() const {
    return settings_.told.steps * samples_of_step() / settings_.told.answers;
  }
  /// Prompts [first, first + count) of the order, the `round`th that the rollout draws.
  struct Round {
    int64_t number = 0, first = 0, count = 0;
  };
  std::pair<int64_t, int64_t> share_of(int64_t first, int64_t count) const;
  void require_all_prompts() const;
  /// work(), whose seconds are added to those of `what`.
  template <typename Work>
  auto timed(const char* what, const Work& work) {
    const AtExit add(
        [this, what, begun = steady_now_s()] { times_[what] += steady_now_s() - begun; });
    return work();
  }
  void roll_out(int64_t number);
  void begin_journal(int64_t number);
  void draw_and_judge(const Round& round, std::vector<DrawnAnswer>& own);
  infer::Request request_to(const data::Sample& prompt) const;
  /// Answers of this rank, which its journal may have already; `name` is theirs there.
  std::vector<DrawnAnswer> drawn_once(const std::string& name,
                                      const std::vector<infer::Request>& requests);
  /// This rank's answers to a round's prompts.
  std::vector<DrawnAnswer> draw(const Round& round);
  std::vector<DrawnAnswer> draw_in_parts(const Round& round);
  int64_t longest_answer_to(int64_t prompt_tokens) const;
  infer::Request request_for_part(AnswerPool::Place place) const;
  void draw_parts();
  void draw_until_whole(AnswerPool::Kind kind, int64_t count);
  /// Finds the log-probabilities of what this rollout drew, and gives this rank's answers theirs.
  void finish_parts(std::vector<DrawnAnswer>& own);
  void note_parts(const std::vector<DrawnAnswer>& answers);
  void judge(const Round& round, std::vector<DrawnAnswer>& answers);
  void find_scores(const std::vector<std::string>& columns,
                   std::vector<DrawnAnswer>& answers) const;
  int64_t replace_equal(int64_t number, std::vector<DrawnAnswer>& own);
  void stop_if_asked() const;
  void report_unjudged(const std::vector<std::optional<double>>& rewards);
  void examine(std::vector<DrawnAnswer>& answers) const;
  std::vector<data::Sample> samples_of(const std::vector<DrawnAnswer>& answers);
  std::vector<data::Sample> samples_by_critic(const std::vector<DrawnAnswer>& answers,
                                              const std::vector<std::optional<double>>& rewards);
  bool all_of_step_cut(const std::vector<DrawnAnswer>& answers, size_t answer) const;
  void note(const std::vector<DrawnAnswer>& answers,
            const std::vector<std::optional<double>>& rewards);
  /// The distance that rewards have in them (told.reward_kl).
  void take_distances(const std::vector<DrawnAnswer>& answers,
                      std::vector<std::optional<double>>& rewards);
  /// advantages: empty for answers to held-out prompts.
  void write_samples(const std::vector<DrawnAnswer>& answers,
                     const std::vector<std::optional<double>>& rewards,
                     const std::vector<double>& advantages) const;

  RolloutParts parts_;
  RolloutSettings settings_;
  int64_t step_ = 0;
  std::unique_ptr<data::BatchStream> answers_;  ///< of the present rollout
  // Answers that are drawn in parts: after the last rollout, before it, and while one is made.
  AnswerPool grown_{0}, before_{0}, growing_{0};
  int64_t parts_drawn_ = 0;  ///< how often this rollout drew parts
  RolloutJournal journal_;
  std::map<std::string, double> figures_, times_;
  double wait_s_ = 0;
  bool is_put_back_ = false;  ///< the step that next() gives was given before
  bool has_warned_of_equal_ = false, has_warned_of_rest_ = false;
  mutable bool has_warned_of_samples_ = false;
  bool has_judged_ = false;  ///< an answer of this process's rollouts
};

}  // namespace danlu::train
