#include "infer/followers.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "base/error.h"

namespace danlu::infer {
namespace {

/// A message is words, the first of which counts them all, then orders: one of these and what it
/// says of it.
enum Order : int64_t {
  kBeginCache,  ///< pages at most, pages that are kept
  kAdd,         ///< tokens, how many pages, each
  kFork,        ///< sequence
  kRemove,      ///< sequence
  kTruncate,    ///< sequence, length
  kKeep,        ///< page, whether it is kept
  kPass,        ///< how many inputs; of each: sequence, LogitsAfter, adapter, how many ids, each
  kPredict,     ///< how many inputs; of each: its numbers, how many tokens follow, each
  kRest,
  kEnd,
};

/// What is sent at once. More goes in a second exchange, as prompts do; answers of some 40 requests
/// fit.
constexpr size_t kFirstWords = 256;
constexpr int64_t kNoAdapter = -1;

void broadcast(const parallel::Group& group, std::span<int64_t> words) {
  at::Tensor tensor =
      at::from_blob(words.data(), {std::ssize(words)}, at::TensorOptions(at::kLong));
  group.broadcast(tensor, 0);
}

/// On rank 0 `words` go out, on the others they come in.
void exchange(const parallel::Group& group, std::vector<int64_t>& words) {
  const size_t size = words.size();
  words.resize(std::max(size, kFirstWords));
  broadcast(group, std::span(words).first(kFirstWords));
  words.resize(std::max(static_cast<size_t>(words.front()), kFirstWords));
  if (words.size() > kFirstWords) broadcast(group, std::span(words).subspan(kFirstWords));
  words.resize(static_cast<size_t>(words.front()));
}

/// Carries out the orders of rank 0.
class Follower {
 public:
  Follower(const models::CausalLM& model, const parallel::Group& group, parallel::World& world,
           const std::vector<AdapterPtr>& adapters)
      : model_(model), group_(group), bell_(world), adapters_(adapters) {}

  void run() {
    while (!is_over_) {
      bell_.await();
      is_called_ = true;
      while (is_called_) {
        words_.clear();
        exchange(group_, words_);
        next_ = 1;
        while (next_ < words_.size()) obey(static_cast<Order>(word()));
      }
    }
  }

 private:
  int64_t word() { return words_.at(next_++); }
  template <typename Number>
  std::vector<Number> numbers() {
    std::vector<Number> all(static_cast<size_t>(word()));
    for (Number& number : all) number = static_cast<Number>(word());
    return all;
  }

  void obey(Order order) {
    switch (order) {
      case kBeginCache:
        cache_ = nullptr;  // its memory first
        cache_ = std::make_unique<SequenceCache>(model_, word());
        return cache_->pool().keep_up_to(word());
      case kAdd: {
        const int64_t tokens = word();
        cache_->add(numbers<int32_t>(), tokens);
        return;
      }
      case kFork:
        cache_->fork(word());
        return;
      case kRemove:
        return cache_->remove(word());
      case kTruncate: {
        const SequenceId id = word();
        return cache_->truncate(id, word());
      }
      case kKeep: {
        const auto page = static_cast<int32_t>(word());
        return cache_->pool().keep(page, word() != 0);
      }
      case kPass:
        return compute();
      case kPredict:
        return predict();
      case kEnd:
        is_over_ = true;
        [[fallthrough]];
      case kRest:
        hidden_NH_ = at::Tensor();
        is_called_ = false;
        return;
    }
    throw InternalError("[followers] rank 0 says what nobody understands");
  }

  void compute() {
    std::vector<StepInput> inputs(static_cast<size_t>(word()));
    for (StepInput& input : inputs) {
      input.sequence = word();
      input.logits_after = static_cast<LogitsAfter>(word());
      const int64_t adapter = word();
      if (adapter != kNoAdapter) input.adapter = adapters_.at(static_cast<size_t>(adapter)).get();
      input.ids = numbers<text::TokenId>();
    }
    hidden_NH_ = at::Tensor();  // its memory first
    at::Tensor hidden_NH = take_part_in_step(model_, *cache_, inputs);
    if (model_.config().num_predictions() > 0) hidden_NH_ = std::move(hidden_NH);
  }

  void predict() {
    std::vector<PredictionInput> inputs(static_cast<size_t>(word()));
    for (PredictionInput& input : inputs) {
      input.sequence = word();
      input.first = word();
      input.first_row = word();
      input.most = word();
      input.num_tokens = word();
      input.next = numbers<text::TokenId>();
    }
    predicted_drafts(model_, *cache_, hidden_NH_, inputs);
    hidden_NH_ = at::Tensor();
  }

  const models::CausalLM& model_;
  const parallel::Group& group_;
  parallel::Bell bell_;
  const std::vector<AdapterPtr>& adapters_;
  std::unique_ptr<SequenceCache> cache_;
  at::Tensor hidden_NH_;  ///< of the last pass, until the layer that predicts has read it
  std::vector<int64_t> words_;
  size_t next_ = 0;
  bool is_called_ = false, is_over_ = false;
};

int64_t index_of(const std::vector<AdapterPtr>& adapters, const layers::AdapterSet* adapter) {
  if (!adapter) return kNoAdapter;
  const auto found = std::find_if(adapters.begin(), adapters.end(),
                                  [&](const AdapterPtr& known) { return known.get() == adapter; });
  if (found == adapters.end())
    throw InternalError("[followers] an adapter that other ranks do not have");
  return found - adapters.begin();
}

}  // namespace

Followers::Followers(const parallel::Group& group, parallel::World& world,
                     std::vector<AdapterPtr> adapters)
    : group_(group), bell_(world), adapters_(std::move(adapters)), message_{0} {}

void Followers::begin_cache(int64_t max_pages, int64_t kept_pages) {
  message_.insert(message_.end(), {kBeginCache, max_pages, kept_pages});
}

void Followers::add_sequence(std::span<const int32_t> pages, int64_t tokens) {
  message_.insert(message_.end(), {kAdd, tokens, std::ssize(pages)});
  message_.insert(message_.end(), pages.begin(), pages.end());
}

void Followers::fork_sequence(SequenceId id) { message_.insert(message_.end(), {kFork, id}); }

void Followers::remove_sequence(SequenceId id) { message_.insert(message_.end(), {kRemove, id}); }

void Followers::truncate_sequence(SequenceId id, int64_t length) {
  message_.insert(message_.end(), {kTruncate, id, length});
}

void Followers::keep_page(int32_t page, bool is_kept) {
  message_.insert(message_.end(), {kKeep, page, is_kept ? 1 : 0});
}

void Followers::begin_pass(const std::vector<StepInput>& inputs) {
  message_.insert(message_.end(), {kPass, std::ssize(inputs)});
  for (const StepInput& input : inputs) {
    if (input.pictures) throw InternalError("[followers] pictures are not sent to other ranks");
    message_.insert(message_.end(), {input.sequence, static_cast<int64_t>(input.logits_after),
                                     index_of(adapters_, input.adapter), std::ssize(input.ids)});
    message_.insert(message_.end(), input.ids.begin(), input.ids.end());
  }
  send();
}

void Followers::begin_prediction(const std::vector<PredictionInput>& inputs) {
  message_.insert(message_.end(), {kPredict, std::ssize(inputs)});
  for (const PredictionInput& input : inputs) {
    message_.insert(message_.end(), {input.sequence, input.first, input.first_row, input.most,
                                     input.num_tokens, std::ssize(input.next)});
    message_.insert(message_.end(), input.next.begin(), input.next.end());
  }
  send();
}

void Followers::rest() {
  if (is_resting_) return;
  message_.push_back(kRest);
  send();
  is_resting_ = true;
}

void Followers::end() {
  message_.push_back(kEnd);
  send();
}

void Followers::send() {
  if (is_resting_) bell_.ring();
  is_resting_ = false;
  message_.front() = std::ssize(message_);
  exchange(group_, message_);
  message_.assign(1, 0);
}

void follow(const models::CausalLM& model, const parallel::Group& group, parallel::World& world,
            const std::vector<AdapterPtr>& adapters) {
  Follower(model, group, world, adapters).run();
}

}  // namespace danlu::infer
