#include "train/rollouts/model_reward.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/ignore_label.h"
#include "base/json.h"
#include "base/log.h"
#include "parallel/agree.h"
#include "train/batch_input.h"
#include "train/objectives/reward.h"

namespace danlu::train {
namespace {

// Tokens of answers that are judged in one pass, but for longer ones.
constexpr size_t kTokensTogether = 4096;

data::Sample whole_of(const eval::Completion& completion, const std::vector<int32_t>& tail) {
  data::Sample sample;
  sample.ids = completion.prompt_ids;
  sample.ids.insert(sample.ids.end(), completion.ids.begin(), completion.ids.end());
  if (completion.missing_end) sample.ids.push_back(*completion.missing_end);
  const bool has_end = completion.is_ended || completion.missing_end.has_value();
  if (has_end) sample.ids.insert(sample.ids.end(), tail.begin(), tail.end());
  sample.labels.assign(sample.ids.size(), kIgnoreLabel);
  return sample;
}

std::vector<data::Batch> batches_of_answers(std::span<const eval::Completion> completions,
                                            const std::vector<int32_t>& tail) {
  std::vector<data::Batch> batches;
  std::vector<data::Sample> together;
  size_t tokens = 0;
  const auto close = [&] {
    if (!together.empty()) batches.push_back(data::make_batch(together));
    together.clear();
    tokens = 0;
  };
  for (const eval::Completion& completion : completions) {
    data::Sample sample = whole_of(completion, tail);
    if (tokens + sample.ids.size() > kTokensTogether) close();
    tokens += sample.ids.size();
    together.push_back(std::move(sample));
  }
  close();
  return batches;
}

class ModelReward : public eval::Reward {
 public:
  ModelReward(std::string name, std::shared_ptr<const FrozenModel> judge,
              const models::CausalLM& policy, StageLinks& links, const std::vector<int32_t>& tail)
      : name_(std::move(name)),
        judge_(std::move(judge)),
        policy_(policy),
        links_(links),
        tail_(tail) {
    const arch::ModelConfig& config = judge_->stage().config();
    if (!config.score || config.score->labels != 1)
      throw InternalError("[rewards] a judge has a head of one number");
  }

  std::string name() const override { return name_; }

  std::vector<eval::Score> scores(std::span<const eval::Completion> completions) const override {
    const std::vector<data::Batch> batches = batches_of_answers(completions, tail_);
    std::vector<const data::Batch*> whole;
    std::vector<size_t> firsts;  // completions
    size_t first = 0;
    for (const data::Batch& batch : batches) {
      whole.push_back(&batch);
      firsts.push_back(first);
      first += batch.segment_starts.size() - 1;
    }
    const OwnParts parts(policy_.mesh(), whole);
    std::vector<double> numbers(completions.size(), 0);
    ask_reference(
        judge_.get(), ForwardPasses(policy_, links_),
        [&](const ForwardPasses& passes, bool adapters) {
          passes.run(parts.batches(), {.adapters = adapters},
                     [&](size_t i, const at::Tensor& hidden_nH, const models::ForwardInput& input) {
                       take(segment_scores(passes.stage(), hidden_nH, input, *parts.batches()[i]),
                            numbers.begin() + static_cast<std::ptrdiff_t>(firsts[i]));
                     });
        });
    sum_over(policy_.mesh().pipeline(), numbers);  // the last stage has them
    // What is decided by them, all ranks of a model decide alike.
    take_first(policy_.mesh().tensor(), numbers);
    std::vector<eval::Score> scores;
    int64_t lost = 0;
    for (const double number : numbers) {
      const bool is_number = std::isfinite(number);
      lost += is_number ? 0 : 1;
      scores.push_back(is_number ? eval::Score(number) : std::nullopt);
    }
    if (lost > 0)
      log::warning("[rewards] {}: {} of {} answers have no number as their score", name_, lost,
                   scores.size());
    return scores;
  }

 private:
  static void take(const at::Tensor& scores_S, std::vector<double>::iterator to) {
    const at::Tensor on_host = scores_S.to(at::kCPU, at::kDouble).contiguous();
    std::copy_n(on_host.data_ptr<double>(), on_host.numel(), to);
  }

  std::string name_;
  std::shared_ptr<const FrozenModel> judge_;
  const models::CausalLM& policy_;
  StageLinks& links_;
  std::vector<int32_t> tail_;
};

class RewardOfFirstRank : public eval::Reward {
 public:
  RewardOfFirstRank(std::unique_ptr<eval::Reward> reward, const parallel::Group& group)
      : reward_(std::move(reward)), group_(group) {}

  std::string name() const override { return reward_->name(); }

  std::vector<eval::Score> scores(std::span<const eval::Completion> completions) const override {
    std::string said;
    parallel::together(group_, [&] {
      if (group_.rank() != 0) return;
      Json list = Json::array();
      for (const eval::Score& score : reward_->scores(completions))
        list.push_back(score ? Json(*score) : Json());
      said = dump_text(list);
    });
    std::vector<eval::Score> scores;
    for (const Json& score : parse_json(parallel::text_from(group_, 0, said), "scores"))
      scores.push_back(score.is_null() ? eval::Score() : score.get<double>());
    return scores;
  }

 private:
  std::unique_ptr<eval::Reward> reward_;
  const parallel::Group& group_;
};

}  // namespace

std::unique_ptr<eval::Reward> reward_of_first_rank(std::unique_ptr<eval::Reward> reward,
                                                   const parallel::Group& group) {
  if (group.size() == 1) return reward;
  return std::make_unique<RewardOfFirstRank>(std::move(reward), group);
}

std::unique_ptr<eval::Reward> model_reward(const std::string& name,
                                           std::shared_ptr<const FrozenModel> judge,
                                           const models::CausalLM& policy, StageLinks& links,
                                           const std::vector<int32_t>& tail) {
  return std::make_unique<ModelReward>(name, std::move(judge), policy, links, tail);
}

}  // namespace danlu::train
