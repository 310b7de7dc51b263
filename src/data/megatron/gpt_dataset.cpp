#include "data/megatron/gpt_dataset.h"

#include <fmt/format.h>

#include "base/error.h"
#include "data/megatron/md5.h"
#include "data/megatron/python_json.h"
#include "data/vocabulary_check.h"

namespace danlu::data {
namespace {

Json split_matrix_json(const std::string& split_text) {
  if (split_text.empty()) return nullptr;
  Json rows = Json::array();
  for (const auto& share : parse_split(split_text)) {
    if (!share) {
      rows.push_back(nullptr);
      continue;
    }
    // The first bound is Python's integer 0, the others are floats: the text, hence the name,
    // differs.
    Json low = share->first == 0.0 ? Json(0) : Json(share->first);
    rows.push_back(Json::array({std::move(low), share->second}));
  }
  return rows;
}

GptCacheName cache_name(const GptOptions& options, const std::string& prefix, DatasetSplit split,
                        const Json& identity) {
  GptCacheName name;
  name.directory = options.cache_dir.empty() ? fs::path(prefix) / "cache" / "GPTDataset_indices"
                                             : options.cache_dir;
  name.description = python_json(identity);
  name.stem = md5_hex(name.description) + "-GPTDataset";
  if (options.split_in_cache_name) name.stem += fmt::format("-{}", split_name(split));
  return name;
}

}  // namespace

void GptOptions::validate() const {
  if (sequence_length < 1) {
    throw UsageError(tr("--seq-length must be at least 1, got {}", sequence_length));
  }
  if (eod_id < 0 && (eod_mask_loss || reset_position_ids || reset_attention_mask)) {
    throw UsageError(
        tr("--eod-mask-loss, --reset-position-ids and --reset-attention-mask need a tokenizer with "
           "an end-of-document token"));
  }
}

Json gpt_identity(const GptOptions& options, const std::string& prefix, DatasetSplit split,
                  std::optional<int64_t> num_samples) {
  Json identity;
  identity["class"] = "GPTDataset";
  identity["dataset_path"] = prefix;
  identity["num_samples"] = num_samples ? Json(*num_samples) : Json(nullptr);
  identity["index_split"] = split_name(split);
  identity["random_seed"] = options.seed;
  identity["sequence_length"] = options.sequence_length;
  identity["split"] = options.split_text.empty() ? Json(nullptr) : Json(options.split_text);
  identity["split_matrix"] = split_matrix_json(options.split_text);
  identity["tokenizer"] = options.tokenizer;
  return identity;
}

Json content_identity(const Json& identity) {
  Json content = identity;
  // Files may move, and how many samples are drawn is the run's matter.
  for (const char* about_the_run : {"dataset_path", "num_samples", "tokenizer", "size", "datasets"})
    content.erase(about_the_run);
  return content;
}

GptDataset::GptDataset(const GptOptions& options, const std::string& prefix,
                       std::shared_ptr<const IndexedDataset> tokens, IdRange exposed,
                       DatasetSplit split, std::optional<int64_t> num_samples)
    : options_(options), tokens_(std::move(tokens)), split_(split) {
  options_.validate();
  identity_ = gpt_identity(options_, prefix, split, num_samples);
  GptIndexOptions index;
  index.sequence_length = options_.sequence_length;
  index.num_samples = num_samples;
  index.seed = options_.seed;
  index.add_extra_token = options_.add_extra_token;
  index.drop_last_partial =
      split != DatasetSplit::kValid || options_.drop_last_partial_validation_sample;
  std::optional<GptCacheName> cache;
  if (options_.use_cache) cache = cache_name(options_, prefix, split, identity_);
  if (cache && options_.cache_by_content) {
    cache->directory /= fmt::format("{:016x}", tokens_->index_hash());
  }
  indices_ = open_gpt_indices(cache, tokens_->lengths(), exposed, index);
}

std::vector<int32_t> GptDataset::window(int64_t index) const {
  if (index < 0 || index >= size()) {
    throw InternalError(fmt::format("[gpt_dataset] sample {} of {}", index, size()));
  }
  const int64_t sample = indices_->shuffled(index);
  const auto damaged = [&](const std::string& what) {
    throw DataError(tr("{}: the cached sample order was damaged meanwhile, at sample {}: {}",
                       index_path(tokens_->prefix()).string(), index, what),
                    tr("start again: the sample order is built anew"));
  };
  if (sample < 0 || sample >= size()) damaged(tr("shuffle entry {}", sample));
  const auto [first, begin] = indices_->row(sample);
  const auto [last, end] = indices_->row(sample + 1);
  if (first < 0 || last < first || last >= indices_->num_documents()) {
    damaged(fmt::format("documents {}..{} of {}", first, last, indices_->num_documents()));
  }
  const int64_t extra = options_.add_extra_token ? 1 : 0;
  std::vector<int32_t> window;
  window.reserve(static_cast<size_t>(options_.sequence_length + extra));
  for (int64_t position = first; position <= last; ++position) {
    const int64_t sequence = indices_->document(position);
    if (sequence < 0 || sequence >= tokens_->num_sequences()) {
      damaged(fmt::format("sequence {} of {}", sequence, tokens_->num_sequences()));
    }
    const int64_t from = position == first ? begin : 0;
    const int64_t to = position == last ? end + extra : tokens_->length(sequence);
    const size_t have = window.size();
    if (to < from || static_cast<int64_t>(have) + to - from > options_.sequence_length + extra) {
      damaged(tr("tokens [{}, {}) of sequence {}", from, to, sequence));
    }
    window.resize(have + static_cast<size_t>(to - from));
    tokens_->read(sequence, from, to - from, window.data() + have);
    check_vocabulary(tokens_path(tokens_->prefix()), sequence, from,
                     std::span(window).subspan(have), options_.vocab_size);
  }
  return window;
}

Sample GptDataset::finish(const std::vector<int32_t>& window) const {
  Sample sample;
  sample.labels_are_targets = true;
  const size_t count = window.size() - (options_.add_extra_token && !window.empty() ? 1 : 0);
  sample.ids.assign(window.begin(), window.begin() + static_cast<std::ptrdiff_t>(count));
  sample.labels.assign(count, kIgnoreLabel);
  std::vector<int32_t> after_eod{0};
  for (size_t i = 0; i < count; ++i) {
    const bool is_eod = options_.eod_id >= 0 && window[i] == options_.eod_id;
    const bool has_target = i + 1 < window.size() && !(is_eod && options_.eod_mask_loss) &&
                            !(options_.pad_id >= 0 && window[i + 1] == options_.pad_id);
    if (has_target) sample.labels[i] = window[i + 1];
    if (is_eod && i + 1 < count) after_eod.push_back(static_cast<int32_t>(i + 1));
    // Megatron feeds token 0 wherever the data hold the padding token.
    if (options_.pad_id >= 0 && window[i] == options_.pad_id) sample.ids[i] = 0;
  }
  if (options_.reset_attention_mask) sample.segments = after_eod;
  sample.position_starts = options_.reset_position_ids ? after_eod : std::vector<int32_t>{0};
  return sample;
}

Sample GptDataset::get(int64_t index) const { return finish(window(index)); }

int64_t GptDataset::length(int64_t index) const {
  if (index < 0 || index >= size()) {
    throw InternalError(fmt::format("[gpt_dataset] sample {} of {}", index, size()));
  }
  const bool may_be_partial =
      split_ == DatasetSplit::kValid && !options_.drop_last_partial_validation_sample;
  if (!may_be_partial || indices_->shuffled(index) + 1 < size()) return options_.sequence_length;
  return static_cast<int64_t>(window(index).size()) - (options_.add_extra_token ? 1 : 0);
}

uint64_t GptDataset::content_hash() const {
  return hash_bytes(python_json(content_identity(identity_)), tokens_->content_hash());
}

}  // namespace danlu::data
