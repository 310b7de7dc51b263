// data/megatron/preference_datasets.h: samples of preference training, process rewards and
// reinforcement learning, stored as indexed data sets.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/megatron/indexed_dataset.h"
#include "data/megatron/instruction_dataset.h"
#include "data/sample_kind.h"
#include "data/sample_source.h"
#include "text/tokenizer.h"

namespace danlu::data {

/// What the files under a prefix hold, by their names alone; empty: no samples. kTokens also where
/// they may be steps, or prompts with an answer, whose files have the same names.
std::optional<SampleKind> kind_of_files(const std::string& prefix);

inline bool samples_exist(const std::string& prefix) { return kind_of_files(prefix).has_value(); }

/// The samples of a prefix, read as being of this kind. tokenizer: its size bounds ids, and it
/// decodes the additional keys of prompts; may be null. ends: of kTokens. Errors: as those of the
/// classes below.
std::shared_ptr<const SampleSource> samples_of_files(
    const std::string& prefix, SampleKind kind, std::shared_ptr<const text::Tokenizer> tokenizer,
    const std::optional<SegmentEnds>& ends = std::nullopt);

/// `<prefix>_packed_{chosen,rejected}_{input_ids,labels}_document` as MindSpeed-LLM writes them,
/// and `…_margin_document` (bits of floats) if it is there. Errors of all: as InstructionDataset.
class PairDataset : public SampleSource {
 public:
  explicit PairDataset(const std::string& prefix, int64_t vocab_size = 0);
  int64_t size() const override { return fields_[0].num_sequences(); }
  Sample get(int64_t index) const override;
  int64_t length(int64_t index) const override {
    return fields_[0].length(index) + fields_[2].length(index);
  }
  uint64_t content_hash() const override;

 private:
  std::vector<IndexedDataset> fields_;  ///< ids and labels of chosen, then of rejected
  std::optional<IndexedDataset> margin_;
  int64_t vocab_size_;
};

/// `<prefix>_packed_{input_ids,labels,liked}_document`. Samples have one segment, and one value: 1
/// liked or 0 (see with_previous_answers).
class UnpairedDataset : public SampleSource {
 public:
  explicit UnpairedDataset(const std::string& prefix, int64_t vocab_size = 0);
  int64_t size() const override { return ids_.num_sequences(); }
  Sample get(int64_t index) const override;
  int64_t length(int64_t index) const override { return ids_.length(index); }
  uint64_t content_hash() const override;

 private:
  IndexedDataset ids_, labels_, liked_;
  int64_t vocab_size_;
};

/// The files of an InstructionDataset, whose labels stand at their places: see SampleKind::kSteps.
class StepsDataset : public SampleSource {
 public:
  explicit StepsDataset(const std::string& prefix, int64_t vocab_size = 0)
      : base_(prefix, std::nullopt, vocab_size) {}
  int64_t size() const override { return base_.size(); }
  Sample get(int64_t index) const override;
  int64_t length(int64_t index) const override { return base_.length(index); }
  uint64_t content_hash() const override { return base_.content_hash() ^ 1; }

 private:
  InstructionDataset base_;
};

/// `<prefix>_packed_{input_ids,label}_document`: see SampleKind::kLabelled.
class LabelledDataset : public SampleSource {
 public:
  explicit LabelledDataset(const std::string& prefix, int64_t vocab_size = 0);
  int64_t size() const override { return ids_.num_sequences(); }
  Sample get(int64_t index) const override;
  int64_t length(int64_t index) const override { return ids_.length(index); }
  uint64_t content_hash() const override;

 private:
  IndexedDataset ids_, label_;
  int64_t vocab_size_;
};

/// `<prefix>_packed_{input_ids,group}_document`: see SampleKind::kGroups. The second holds
/// group_record.
class GroupDataset : public SampleSource {
 public:
  explicit GroupDataset(const std::string& prefix, int64_t vocab_size = 0);
  int64_t size() const override { return ids_.num_sequences(); }
  Sample get(int64_t index) const override;
  int64_t length(int64_t index) const override { return ids_.length(index); }
  uint64_t content_hash() const override;

 private:
  IndexedDataset ids_, group_;
  int64_t vocab_size_;
};

/// `<prefix>_packed_input_ids_document` and what lies beside it: columns (text_record), or
/// MindSpeed's additional keys, whose tokens are decoded. From instruction samples it takes the
/// prompts alone.
class PromptDataset : public SampleSource {
 public:
  /// tokenizer: may be null where there are columns.
  PromptDataset(const std::string& prefix, std::shared_ptr<const text::Tokenizer> tokenizer);
  int64_t size() const override { return ids_.num_sequences(); }
  Sample get(int64_t index) const override;
  int64_t length(int64_t index) const override { return ids_.length(index); }
  uint64_t content_hash() const override;
  std::string columns(int64_t index) const override;

 private:
  /// Labels of instruction samples, whose masked beginning is the prompt.
  const IndexedDataset* answer_labels() const;
  IndexedDataset ids_;
  std::optional<IndexedDataset> columns_;
  std::vector<std::pair<std::string, IndexedDataset>> keys_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  bool holds_answers_ = false;
};

}  // namespace danlu::data
