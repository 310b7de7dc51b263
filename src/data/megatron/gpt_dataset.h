// data/megatron/gpt_dataset.h: GPT pre-training samples of S tokens cut from an indexed data set.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "data/megatron/gpt_index.h"
#include "data/megatron/gpt_index_cache.h"
#include "data/megatron/indexed_dataset.h"
#include "data/sample_source.h"

namespace danlu::data {

/// What all splits and all blended data sets of a run share.
struct GptOptions {
  int64_t sequence_length = 0;
  uint32_t seed = 1234;
  bool add_extra_token = true;
  bool drop_last_partial_validation_sample = true;

  int32_t eod_id = -1;                ///< needed by the three switches below; -1: none
  int32_t pad_id = -1;                ///< targets equal to it carry no loss; -1: none
  bool eod_mask_loss = false;         ///< no loss where the input token is eod
  bool reset_position_ids = false;    ///< positions restart after each eod
  bool reset_attention_mask = false;  ///< attention does not cross an eod
  int64_t vocab_size = 0;             ///< of the tokenizer: ids are below it; 0: not checked

  std::string split_text;           ///< --split as given; empty: each split has its own data sets
  std::filesystem::path cache_dir;  ///< --data-cache-path; empty: <prefix>/cache/GPTDataset_indices
  /// In a folder of `cache_dir` named by the content of the .idx: a prefix that is rewritten does
  /// not push out the order of what it held before. False: where Megatron looks.
  bool cache_by_content = false;
  bool use_cache = true;
  /// Identity of the tokenizer in cache names: {"class": …, "tokenizer_path": […], options…}.
  Json tokenizer = Json::object();
  /// MindSpeed-LLM 2.0 leaves the split out of the file names.
  bool split_in_cache_name = true;

  /// Errors: UsageError naming the option.
  void validate() const;
};

/// The object whose md5 names the cache, with keys in Megatron's order.
Json gpt_identity(const GptOptions& options, const std::string& prefix, DatasetSplit split,
                  std::optional<int64_t> num_samples);
/// The part of an identity that says how tokens are cut and ordered: without paths, and without
/// the number of samples drawn.
Json content_identity(const Json& identity);

/// Sample i is S tokens with the next token of each as its target. Targets cross document borders
/// as in Megatron; the switches of GptOptions change that. A kept partial sample is shorter, not
/// padded.
class GptDataset : public SampleSource {
 public:
  /// `prefix` exactly as the user gave it (it is hashed). `exposed`: the split's sequences.
  /// num_samples: none for one epoch.
  GptDataset(const GptOptions& options, const std::string& prefix,
             std::shared_ptr<const IndexedDataset> tokens, IdRange exposed, DatasetSplit split,
             std::optional<int64_t> num_samples);

  int64_t size() const override { return indices_->num_samples(); }
  Sample get(int64_t index) const override;
  int64_t length(int64_t index) const override;
  uint64_t content_hash() const override;

  /// The S + 1 tokens of sample `index` (S without the extra token) before any masking.
  /// Errors: DataError naming file and sequence of an id outside options.vocab_size.
  std::vector<int32_t> window(int64_t index) const;
  const Json& identity() const { return identity_; }
  const GptIndexView& indices() const { return *indices_; }

 private:
  Sample finish(const std::vector<int32_t>& window) const;

  GptOptions options_;
  std::shared_ptr<const IndexedDataset> tokens_;
  DatasetSplit split_;
  Json identity_;
  std::unique_ptr<GptIndexView> indices_;
};

}  // namespace danlu::data
