#include "data/batch_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/token_type.h"

namespace danlu::data {

void BatchStreamOptions::validate() const {
  const auto at_least = [](const char* name, int64_t value, int64_t minimum) {
    if (value < minimum) {
      throw UsageError(tr("{} must be at least {}, got {}", name, minimum, value));
    }
  };
  at_least("micro batch size", micro_batch_size, 1);
  at_least("gradient accumulation steps", accumulation_steps, 1);
  at_least("data-parallel size", dp_size, 1);
  at_least("tokens per micro-batch", max_tokens_per_micro_batch, 0);
  at_least("prefetched steps", prefetch_steps, 0);
  if (dp_rank < 0 || dp_rank >= dp_size) {
    throw UsageError(tr("data-parallel rank {} must be below its size {}", dp_rank, dp_size));
  }
}

int64_t samples_of_epoch(int64_t num_samples, int64_t together, LastBatch last_batch) {
  return last_batch == LastBatch::kDrop ? num_samples - num_samples % together : num_samples;
}

int64_t steps_per_epoch(int64_t num_samples, int64_t global_batch_size, LastBatch last_batch) {
  const int64_t rounding = last_batch == LastBatch::kWrap ? 0 : global_batch_size - 1;
  return (num_samples + rounding) / global_batch_size;
}

BatchStream::BatchStream(std::shared_ptr<const SampleSource> source, Order order,
                         const BatchStreamOptions& options, int64_t consumed)
    : source_(std::move(source)), order_(std::move(order)), options_(options), consumed_(consumed) {
  options_.validate();
  if (source_->size() < 1) throw DataError(tr("[batch_stream] the data set has no sample"));
  if (used() == 0) {
    throw DataError(tr("[batch_stream] {} samples do not fill one micro-batch of all ranks, {}",
                       source_->size(), options_.together()),
                    tr("lower the batch size, or keep the incomplete last batch"));
  }
  if (options_.prefetch_steps > 0) {
    prefetcher_ = std::make_unique<Prefetcher<StepBatches>>(
        [this, at = consumed]() mutable {
          StepBatches step = step_at(at);
          at = step.next;
          return step;
        },
        static_cast<size_t>(options_.prefetch_steps));
  }
}

BatchStream::~BatchStream() = default;

int64_t BatchStream::steps_per_epoch() const {
  return data::steps_per_epoch(used(), options_.global_batch_size(), options_.last_batch);
}

int64_t BatchStream::trained_before(int64_t consumed) const {
  const int64_t size = source_->size();
  return consumed / size * used() + std::min(consumed % size, used());
}

void BatchStream::put_back(const StepBatches& step) {
  put_back_ = step;
  consumed_ = step.begin;
}

StepBatches BatchStream::next() {
  StepBatches step;
  if (put_back_) {
    step = *std::exchange(put_back_, std::nullopt);
  } else if (prefetcher_) {
    step = prefetcher_->next(data_wait_s_);
  } else {
    const auto begin = std::chrono::steady_clock::now();
    step = step_at(consumed_);
    data_wait_s_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  consumed_ = step.next;
  return step;
}

StepBatches BatchStream::step_at(int64_t consumed) const {
  const int64_t batch = options_.global_batch_size(), size = source_->size();
  StepBatches step;
  // A stream with other micro-batches may have come further than this one's epochs go.
  const bool is_behind = consumed % size >= used();
  const int64_t epoch = consumed / size + (is_behind ? 1 : 0), epoch_end = epoch * size + used();
  step.begin = is_behind ? epoch * size : consumed;
  step.end = step.begin + batch;
  if (options_.last_batch != LastBatch::kWrap) step.end = std::min(step.end, epoch_end);
  // What is left out belongs to the epoch that ends before it.
  const bool ends = options_.last_batch != LastBatch::kWrap && step.end == epoch_end;
  step.next = ends ? (epoch + 1) * size : step.end;
  const int64_t budget = options_.max_tokens_per_micro_batch;
  std::vector<int64_t> samples, numbers;
  int64_t num_tokens = 0;
  const auto finish_micro_batch = [&] {
    if (samples.empty()) return;
    step.micro_batches.push_back(load(samples, numbers));
    step.num_tokens += static_cast<int64_t>(step.micro_batches.back().ids.size());
    step.num_targets += step.micro_batches.back().num_targets;
    samples.clear();
    numbers.clear();
    num_tokens = 0;
  };
  for (const int64_t number : numbers_of_rank(step.begin, step.end)) {
    const int64_t sample = sample_at(number);
    const int64_t length = budget > 0 ? source_->length(sample) : 0;
    if (num_tokens + length > budget) finish_micro_batch();
    samples.push_back(sample);
    numbers.push_back(number);
    num_tokens += length;
    if (budget == 0 && std::ssize(samples) == options_.micro_batch_size) finish_micro_batch();
  }
  finish_micro_batch();
  return step;
}

int64_t BatchStream::sample_at(int64_t number) const {
  const int64_t sample = order_(number), size = source_->size();
  if (sample >= 0 && sample < size) return sample;
  throw InternalError(
      fmt::format("[batch_stream] position {} is sample {} of {}", number, sample, size));
}

/// What this rank takes of a step, in its order.
std::vector<int64_t> BatchStream::numbers_of_rank(int64_t begin, int64_t end) const {
  if (options_.balances_ranks && options_.dp_size > 1) return balanced_numbers(begin, end);
  const int64_t stride = options_.micro_batch_size * options_.dp_size;
  std::vector<int64_t> numbers;
  for (int64_t first = begin + options_.dp_rank * options_.micro_batch_size; first < end;
       first += stride) {
    for (int64_t i = first; i < std::min(first + options_.micro_batch_size, end); ++i)
      numbers.push_back(i);
  }
  return numbers;
}

/// The longest sample goes to the rank that has the fewest tokens, and so on; no rank takes more
/// samples than it would without.
std::vector<int64_t> BatchStream::balanced_numbers(int64_t begin, int64_t end) const {
  struct Sized {
    int64_t length, number;
  };
  struct Share {
    int64_t room = 0, tokens = 0;
  };
  std::vector<Sized> samples;
  std::vector<Share> ranks(static_cast<size_t>(options_.dp_size));
  for (int64_t i = begin; i < end; ++i) {
    samples.push_back({source_->length(sample_at(i)), i});
    const int64_t rank = (i - begin) / options_.micro_batch_size % options_.dp_size;
    ++ranks[static_cast<size_t>(rank)].room;
  }
  std::stable_sort(samples.begin(), samples.end(),
                   [](const Sized& a, const Sized& b) { return a.length > b.length; });
  std::vector<int64_t> numbers;
  for (const Sized& sample : samples) {
    const auto least =
        std::min_element(ranks.begin(), ranks.end(), [](const Share& a, const Share& b) {
          return std::pair(a.room == 0, a.tokens) < std::pair(b.room == 0, b.tokens);
        });
    --least->room;
    least->tokens += sample.length;
    if (least - ranks.begin() == options_.dp_rank) numbers.push_back(sample.number);
  }
  return numbers;
}

Batch BatchStream::load(const std::vector<int64_t>& samples,
                        const std::vector<int64_t>& numbers) const {
  std::vector<Sample> loaded;
  loaded.reserve(samples.size());
  for (const int64_t index : samples) {
    loaded.push_back(source_->get(index));
    if (options_.vocab_size > 0) check_vocabulary(loaded.back(), index);
  }
  Batch batch = make_batch(loaded, numbers);
  if (options_.media_loader) batch.pixels = options_.media_loader->start(batch.media);
  return batch;
}

void BatchStream::check_vocabulary(const Sample& sample, int64_t index) const {
  const auto require = [&](int32_t token, size_t position, const char* what) {
    if (token >= 0 && without_type(token) < options_.vocab_size) return;
    throw DataError(tr("sample {}: {} {} at position {} is not in the model's vocabulary of {}",
                       index, what, token, position, options_.vocab_size),
                    tr("the data were tokenised for another model; run `danlu preprocess` with "
                       "this model's tokenizer"));
  };
  for (size_t i = 0; i < sample.ids.size(); ++i) require(sample.ids[i], i, "token");
  for (size_t i = 0; i < sample.labels.size(); ++i) {
    if (sample.labels[i] != kIgnoreLabel) require(sample.labels[i], i, "label");
  }
}

}  // namespace danlu::data
