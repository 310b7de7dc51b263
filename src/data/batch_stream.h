// data/batch_stream.h: the micro-batches of each optimizer step, a pure function of one number.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/batch.h"
#include "data/prefetch.h"
#include "data/sample_source.h"

namespace danlu::data {

/// What happens when an epoch does not divide into whole steps.
enum class LastBatch {
  kPartial,  ///< the epoch's last step is smaller (HF Trainer's default)
  kDrop,     ///< the same, without samples that do not fill a micro-batch of every rank (HF's
             ///< dataloader_drop_last)
  kWrap,     ///< the step goes on into the next epoch (Megatron)
};

/// What an epoch of `num_samples` trains on; `together`: samples of a micro-batch of all ranks.
int64_t samples_of_epoch(int64_t num_samples, int64_t together, LastBatch last_batch);
/// Steps of an epoch of samples_of_epoch(); kWrap: rounded down.
int64_t steps_per_epoch(int64_t num_samples, int64_t global_batch_size, LastBatch last_batch);

struct BatchStreamOptions {
  int64_t micro_batch_size = 1;    ///< samples per micro-batch and rank
  int64_t accumulation_steps = 1;  ///< micro-batches per step and rank
  int64_t dp_rank = 0;             ///< data-parallel coordinates of this process
  int64_t dp_size = 1;
  LastBatch last_batch = LastBatch::kPartial;
  /// > 0: a rank's samples of a step are regrouped, in order, into micro-batches of at most so many
  /// tokens (a longer sample stands alone). The samples of a step do not change by it.
  int64_t max_tokens_per_micro_batch = 0;
  /// The samples of a step are dealt to the ranks by their tokens, those of pictures among them, so
  /// that none waits long for another; else by their place in the order.
  bool balances_ranks = false;
  int64_t vocab_size = 0;      ///< > 0: ids and targets beyond it are an error, not a crash later
  int64_t prefetch_steps = 2;  ///< steps prepared ahead by a thread; 0: none
  /// Begins with the pixels of each micro-batch as it is prepared; null: nobody needs them.
  std::shared_ptr<MediaLoader> media_loader = nullptr;

  /// Samples of all ranks in one step.
  int64_t global_batch_size() const { return together() * accumulation_steps; }
  /// Samples of a micro-batch of all ranks.
  int64_t together() const { return micro_batch_size * dp_size; }
  /// Errors: UsageError naming the option.
  void validate() const;
};

/// One rank's part of an optimizer step.
struct StepBatches {
  std::vector<Batch>
      micro_batches;           ///< a rank's part of a partial step may be empty if dp_size > 1
  int64_t begin = 0, end = 0;  ///< global sample indices of the step, all ranks
  int64_t next = 0;            ///< where the following step begins: the state to save
  int64_t num_tokens = 0, num_targets = 0;  ///< of this rank
};

/// Where the batches of steps come from.
class StepStream {
 public:
  virtual ~StepStream() = default;
  /// The batches of the next step. May be collective over the ranks that train together.
  virtual StepBatches next() = 0;
  /// Undoes the last next(), which returned `step`: the following one returns it again.
  virtual void put_back(const StepBatches& step) = 0;
  /// Global sample index at which the step after the last next() begins.
  virtual int64_t consumed() const = 0;
  /// Samples of the steps up to there: without what the ends of epochs left out.
  virtual int64_t num_trained() const { return consumed(); }
  /// Seconds the last next() waited for data: for rows and batches, not for what times() names.
  virtual double data_wait_s() const = 0;
  /// Seconds of the last next() that went into other work, by its name.
  virtual std::map<std::string, double> times() const { return {}; }
  /// Epochs seen, e.g. 1.25.
  virtual double epoch() const = 0;
  /// Whether a stream that is made with consumed() goes on exactly: checkpoints wait for it.
  virtual bool is_resumable() const { return true; }
  /// What a stream that is made with consumed() needs beside it to go on; null: nothing.
  virtual Json state() const { return nullptr; }
  /// What there is to log of the last next() beside its batches, by name.
  virtual std::map<std::string, double> figures() const { return {}; }
};

/// Endless stream of steps over a source. The state is one number, consumed(): a stream made with
/// it continues exactly, also with another micro-batch size, accumulation or number of ranks.
///
/// Step with samples [begin, end): micro-batch m of rank r takes the micro_batch_size samples from
/// begin + (m·dp_size + r)·micro_batch_size on. With balances_ranks a rank has as many samples of
/// the step, the longest first.
class BatchStream : public StepStream {
 public:
  using Order = std::function<int64_t(int64_t global_index)>;

  /// Errors: UsageError (options); DataError if the source is empty, or kDrop leaves no sample.
  BatchStream(std::shared_ptr<const SampleSource> source, Order order,
              const BatchStreamOptions& options, int64_t consumed = 0);
  ~BatchStream() override;

  /// Errors: DataError of the source, or naming the sample whose token is beyond the vocabulary.
  StepBatches next() override;
  void put_back(const StepBatches& step) override;
  int64_t consumed() const override { return consumed_; }
  int64_t num_trained() const override { return trained_before(consumed_); }
  double data_wait_s() const override { return data_wait_s_; }

  int64_t steps_per_epoch() const;
  /// num_trained() of a stream that has come to `consumed`.
  int64_t trained_before(int64_t consumed) const;
  double epoch() const override {
    return static_cast<double>(consumed_) / static_cast<double>(source_->size());
  }
  /// The step that begins at `consumed`, without moving the stream. Thread-safe.
  StepBatches step_at(int64_t consumed) const;

 private:
  /// Samples that an epoch trains on.
  int64_t used() const {
    return samples_of_epoch(source_->size(), options_.together(), options_.last_batch);
  }
  std::vector<int64_t> numbers_of_rank(int64_t begin, int64_t end) const;
  std::vector<int64_t> balanced_numbers(int64_t begin, int64_t end) const;
  int64_t sample_at(int64_t number) const;
  Batch load(const std::vector<int64_t>& samples, const std::vector<int64_t>& numbers) const;
  void check_vocabulary(const Sample& sample, int64_t index) const;

  std::shared_ptr<const SampleSource> source_;
  Order order_;
  BatchStreamOptions options_;
  int64_t consumed_;
  double data_wait_s_ = 0;
  std::optional<StepBatches> put_back_;
  std::unique_ptr<Prefetcher<StepBatches>> prefetcher_;
};

}  // namespace danlu::data
