#include "infer/likelihood.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/max.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "arch/attention_size.h"
#include "arch/gated_delta.h"
#include "base/error.h"
#include "infer/kv_cache.h"
#include "infer/prefix_tree.h"
#include "infer/sampling.h"
#include "infer/step.h"
#include "ops/pointwise.h"

namespace danlu::infer {
namespace {

using Node = PrefixTree::Node;

/// A logit row of a pass of which somebody wants the probability of an id.
struct Wanted {
  int64_t row;
  text::TokenId id;
  double* sum;
  bool* is_greedy;  ///< nullptr: nobody asks
};

/// What a node's passes have found so far.
struct Progress {
  SequenceId sequence = -1;
  double whole_sum = 0;  ///< of ids [1, end) of those below
  bool wants_whole = false;
};

class Scorer {
 public:
  Scorer(const models::CausalLM& model, const std::vector<ScoredText>& texts,
         const LikelihoodSettings& settings, const OnLikelihood& on_likelihood,
         LikelihoodStats& stats, const IsCancelled& is_cancelled)
      : model_(model),
        texts_(texts),
        settings_(settings),
        on_likelihood_(on_likelihood),
        stats_(stats),
        is_cancelled_(is_cancelled),
        results_(texts.size()),
        cache_(model),
        cache_bytes_per_token_(arch::count_key_layers(model.config()) *
                               arch::kept_of_token(model.config()).elements() *
                               static_cast<int64_t>(c10::elementSize(model.dtype()))) {
    std::vector<std::span<const text::TokenId>> inputs;
    named_.reserve(texts.size());
    PictureNames names;
    for (const ScoredText& text : texts) {
      pictures_.push_back(PromptPictures::of(model.config(), std::ssize(text.ids), text.pictures));
      const PromptPictures* own = pictures_.back().get();
      if (own) named_.push_back(names.named(text.ids, own));
      // The last id is predicted, never read.
      inputs.push_back(std::span(own ? named_.back() : text.ids).first(text.ids.size() - 1));
      stats_.given_tokens += std::ssize(inputs.back());
    }
    tree_ = make_prefix_tree(inputs, settings.share_prefixes && !is_turned_by_length(inputs));
    progress_.resize(tree_.nodes.size());
    note_who_wants_whole();
  }

  bool run() { return run_siblings(tree_.roots); }

 private:
  /// Whether a beginning would be turned by its own length where its text is by a greater one.
  bool is_turned_by_length(const std::vector<std::span<const text::TokenId>>& inputs) const {
    const arch::RopeConfig& rope = model_.config().rope;
    return arch::turns_by_length(rope) &&
           std::any_of(inputs.begin(), inputs.end(), [&](const auto& ids) {
             return std::ssize(ids) > rope.original_max_positions;
           });
  }
  const Node& node(int index) const { return tree_.nodes[static_cast<size_t>(index)]; }
  Progress& progress(int index) { return progress_[static_cast<size_t>(index)]; }

  void note_who_wants_whole() {
    for (size_t i = tree_.nodes.size(); i-- > 0;) {
      const Node& here = tree_.nodes[i];
      for (const size_t text : here.ending) progress_[i].wants_whole |= texts_[text].wants_whole;
      if (here.parent >= 0 && progress_[i].wants_whole) progress(here.parent).wants_whole = true;
    }
  }

  /// As many of nodes[from …] as one pass takes; at least one.
  size_t pass_end(const std::vector<int>& nodes, size_t from) const {
    if (settings_.batch_size > 0)
      return std::min(nodes.size(), from + static_cast<size_t>(settings_.batch_size));
    int64_t tokens = 0, cache_bytes = 0;
    size_t end = from;
    for (; end < nodes.size(); ++end) {
      const Node& next = node(nodes[end]);
      tokens += next.end - next.begin;
      cache_bytes += next.end * cache_bytes_per_token_;
      const bool is_full =
          tokens > settings_.pass_tokens || cache_bytes > settings_.pass_cache_bytes;
      if (end > from && is_full) break;
    }
    return end;
  }

  bool run_siblings(const std::vector<int>& nodes) {
    for (size_t from = 0; from < nodes.size();) {
      if (is_cancelled_ && is_cancelled_()) return false;
      const size_t end = pass_end(nodes, from);
      const std::span<const int> pass(nodes.data() + from, end - from);
      run_pass(pass);
      std::vector<int> below;
      for (const int index : pass)
        below.insert(below.end(), node(index).children.begin(), node(index).children.end());
      if (!run_siblings(below)) return false;
      for (const int index : pass) drop(index);
      from = end;
    }
    return true;
  }

  void drop(int index) {
    if (progress(index).sequence >= 0) cache_.remove(progress(index).sequence);
    progress(index).sequence = -1;
  }

  void run_pass(std::span<const int> pass) {
    std::vector<StepInput> inputs;
    std::vector<Wanted> wanted;
    int64_t tokens = 0;
    for (const int index : pass) {
      const Node& here = node(index);
      const int64_t num_new = here.end - here.begin;
      Progress& own = progress(index);
      own.sequence = here.parent < 0 ? cache_.add() : cache_.fork(progress(here.parent).sequence);
      if (here.parent >= 0) own.whole_sum += progress(here.parent).whole_sum;
      want(index, tokens, wanted);
      tokens += num_new;
      const auto first = texts_[here.example].ids.begin() + here.begin;
      inputs.push_back({.sequence = own.sequence,
                        .ids = {first, first + num_new},
                        .pictures = pictures_[here.example].get(),
                        .logits_after = LogitsAfter::kNone});
    }
    stats_.computed_tokens += tokens;
    add_up(step(model_, cache_, inputs).hidden_NH, wanted);
    for (const int index : pass) finish(index);
  }

  /// Rows of this node's ids, of which the first of the pass is `row`.
  void want(int index, int64_t row, std::vector<Wanted>& wanted) {
    const Node& here = node(index);
    Progress& own = progress(index);
    const std::vector<text::TokenId>& example = texts_[here.example].ids;
    if (own.wants_whole) {
      for (int64_t at = here.begin; at + 1 < here.end; ++at)
        wanted.push_back(
            {row + at - here.begin, example[static_cast<size_t>(at + 1)], &own.whole_sum, nullptr});
      // What comes after the last one differs from child to child.
      for (const int child : here.children) {
        if (!progress(child).wants_whole) continue;
        const text::TokenId next = texts_[node(child).example].ids[static_cast<size_t>(here.end)];
        wanted.push_back(
            {row + here.end - 1 - here.begin, next, &progress(child).whole_sum, nullptr});
      }
    }
    for_each_below(index, [&](size_t text) {
      const ScoredText& scored = texts_[text];
      Likelihood& result = results_[text];
      const int64_t first = std::max(here.begin, scored.num_context - 1);
      const int64_t end = std::min<int64_t>(here.end, std::ssize(scored.ids) - 1);
      for (int64_t at = first; at < end; ++at)
        wanted.push_back({row + at - here.begin, scored.ids[static_cast<size_t>(at + 1)],
                          &result.sum, &result.is_greedy});
      if (scored.wants_whole && std::ssize(scored.ids) - 1 == here.end)
        wanted.push_back(
            {row + here.end - 1 - here.begin, scored.ids.back(), &result.whole_sum, nullptr});
    });
  }

  template <typename Visit>
  void for_each_below(int index, const Visit& visit) const {
    for (const size_t text : node(index).ending) visit(text);
    for (const int child : node(index).children) for_each_below(child, visit);
  }

  /// Rows a block, so that its logits stay near 64 MB. One, where a text's bits must not hang on
  /// which rows others want.
  int64_t rows_of_block() const {
    if (!settings_.share_prefixes) return 1;
    return std::max<int64_t>(1, (int64_t{16} << 20) / model_.config().vocab_size);
  }

  void add_up(const at::Tensor& hidden_NH, std::vector<Wanted>& wanted) {
    std::stable_sort(wanted.begin(), wanted.end(),
                     [](const Wanted& a, const Wanted& b) { return a.row < b.row; });
    std::vector<int64_t> rows, ids;
    for (const Wanted& want : wanted) {
      rows.push_back(want.row);
      ids.push_back(want.id);
    }
    const at::TensorOptions options(at::kLong);
    const ops::TokenLogprobs found =
        model_.token_logprobs(hidden_NH, {}, at::tensor(rows, options), at::tensor(ids, options),
                              {.chunk_rows = rows_of_block()});
    const auto on_host = [](const at::Tensor& values, at::ScalarType type) {
      return values.to(at::kCPU, type).contiguous();
    };
    const at::Tensor logits = on_host(found.logits_M, at::kFloat),
                     norms = on_host(found.norms_M, at::kFloat),
                     is_largest = on_host(found.is_largest_M, at::kBool);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const float norm = norms.data_ptr<float>()[i], logit = logits.data_ptr<float>()[i];
      if (!std::isfinite(norm)) {
        throw NumericError(tr("[likelihood] the model's logits are not numbers"),
                           hint_of_unusable_logits(model_.dtype()));
      }
      *wanted[i].sum += static_cast<double>(logit) - static_cast<double>(norm);
      if (wanted[i].is_greedy && !is_largest.data_ptr<bool>()[i]) *wanted[i].is_greedy = false;
    }
  }

  void finish(int index) {
    const Progress& own = progress(index);
    for (const size_t text : node(index).ending) {
      if (texts_[text].wants_whole) results_[text].whole_sum += own.whole_sum;
      on_likelihood_(text, results_[text]);
    }
    if (node(index).children.empty()) drop(index);
  }

  const models::CausalLM& model_;
  const std::vector<ScoredText>& texts_;
  const LikelihoodSettings settings_;
  const OnLikelihood& on_likelihood_;
  LikelihoodStats& stats_;
  const IsCancelled& is_cancelled_;
  std::vector<std::shared_ptr<const PromptPictures>> pictures_;  ///< of each text; null for none
  std::vector<std::vector<text::TokenId>>
      named_;  ///< ids of texts with pictures, as names write them
  PrefixTree tree_;
  std::vector<Progress> progress_;  ///< of each node
  std::vector<Likelihood> results_;
  SequenceCache cache_;
  const int64_t cache_bytes_per_token_;
};

}  // namespace

void check_scored(const arch::ModelConfig& config, const ScoredText& text) {
  for (const text::TokenId id : text.ids) {
    if (id < 0 || id >= config.vocab_size) {
      throw DataError(
          tr("[likelihood] id {} is outside the model's vocabulary of {}", id, config.vocab_size),
          tr("the tokenizer does not belong to this model"));
    }
  }
  if (config.max_positions > 0 && std::ssize(text.ids) - 1 > config.max_positions) {
    throw DataError(tr("[likelihood] a text of {} tokens, the model's window holds {}",
                       text.ids.size(), config.max_positions),
                    tr("cut it on the left"));
  }
  check_pictures(config, text.ids, text.pictures);
  const int64_t scored = text.wants_whole ? 1 : text.num_context;
  for (const PromptPicture& picture : text.pictures) {
    if (picture.begin + picture.grid.visual_tokens(config.vision->merge_size) > scored)
      throw InternalError("[likelihood] placeholders of a picture are no text to score");
  }
}

bool score_texts(const models::CausalLM& model, const std::vector<ScoredText>& texts,
                 const LikelihoodSettings& settings, const OnLikelihood& on_likelihood,
                 LikelihoodStats* stats, const IsCancelled& is_cancelled) {
  for (const ScoredText& text : texts) check_scored(model.config(), text);
  const c10::InferenceMode no_autograd;
  LikelihoodStats local;
  Scorer scorer(model, texts, settings, on_likelihood, stats ? *stats : local, is_cancelled);
  return scorer.run();
}

}  // namespace danlu::infer
