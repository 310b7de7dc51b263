// train/rollouts/distillation_stream.h: steps of rows, to whose prompts the policy in some steps
// answers itself.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "data/batch_stream.h"
#include "settings/reinforcement.h"
#include "text/tokenizer.h"
#include "train/rollouts/drawing_ranks.h"
#include "train/rollouts/generator.h"

namespace danlu::train {

/// What answers are drawn with; outlives the stream.
struct DistillationParts {
  std::shared_ptr<const data::SampleSource> rows;  ///< SampleKind::kTokens
  data::BatchStream::Order order;
  Drawing drawing;
  std::shared_ptr<const DrawingRanks> ranks;
};

struct DistillationSettings {
  settings::Reinforcement told;      ///< how answers are drawn
  double lmbda = 1;                  ///< the fraction of on-policy steps
  data::BatchStreamOptions batches;  ///< of a step
  std::vector<text::TokenId> stop_ids;
  int64_t num_tokens = 0;  ///< of the tokenizer
  uint64_t seed = 0;
};

/// The steps of a BatchStream, some of them on-policy: there each sample is a row's prompt
/// (prompt_of), and behind it the policy's answer. Which steps these are, and what is drawn, are
/// functions of numbers of samples alone, and so the same on any mesh and in a run that goes on
/// with the same samples a step: step s is on-policy if Python's random.Random(seed + s).random()
/// <= lmbda, as ms-swift has it.
class DistillationStream : public data::StepStream {
 public:
  /// Errors: as data::BatchStream.
  DistillationStream(DistillationParts parts, DistillationSettings settings, int64_t consumed);

  /// Errors: as data::BatchStream and infer::generate; DataError for a row without a prompt, and
  /// where no prompt leaves room for an answer. Collective over all ranks.
  data::StepBatches next() override;
  void put_back(const data::StepBatches& step) override { put_back_ = step; }
  int64_t consumed() const override { return put_back_ ? put_back_->begin : rows_.consumed(); }
  int64_t num_trained() const override { return rows_.trained_before(consumed()); }
  double data_wait_s() const override { return wait_s_; }
  double epoch() const override {
    return static_cast<double>(consumed()) / static_cast<double>(parts_.rows->size());
  }
  std::map<std::string, double> figures() const override { return figures_; }
  std::map<std::string, double> times() const override { return times_; }

 private:
  bool draws(int64_t first_sample) const;
  /// The step's samples with answers of the policy's own, in their order.
  std::vector<data::Sample> answered(const data::StepBatches& step);

  DistillationParts parts_;
  DistillationSettings settings_;
  data::BatchStream rows_;
  std::optional<data::StepBatches> put_back_;
  std::map<std::string, double> figures_, times_;
  double wait_s_ = 0;
};

}  // namespace danlu::train
