#include "data/megatron/preference_datasets.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/json.h"
#include "base/rng.h"
#include "data/answer_cut.h"
#include "data/groups.h"
#include "data/text_record.h"
#include "data/vocabulary_check.h"

namespace danlu::data {
namespace {

constexpr const char* kPairFields[] = {"chosen_input_ids", "chosen_labels", "rejected_input_ids",
                                       "rejected_labels"};

bool has_field(const std::string& prefix, const std::string& field) {
  return indexed_dataset_exists(instruction_field_prefix(prefix, field));
}

IndexedDataset open_field(const std::string& prefix, const std::string& field) {
  return IndexedDataset(instruction_field_prefix(prefix, field));
}

void require_same_count(const IndexedDataset& first, const IndexedDataset& other) {
  if (other.num_sequences() == first.num_sequences()) return;
  throw DataError(tr("{}: has {} samples, {} has {}", index_path(other.prefix()).string(),
                     other.num_sequences(), index_path(first.prefix()).string(),
                     first.num_sequences()));
}

/// One value of each sample. Errors: DataError.
int32_t single_value(const IndexedDataset& values, int64_t index) {
  if (values.length(index) != 1) {
    throw DataError(tr("{}: sample {} has {} values, 1 is needed",
                       tokens_path(values.prefix()).string(), index, values.length(index)));
  }
  int32_t value = 0;
  values.read(index, 0, 1, &value);
  return value;
}

/// Adds the tokens of one sequence as a segment of the sample. Errors: DataError.
void add_segment(const IndexedDataset& ids, const IndexedDataset& labels, int64_t index,
                 int64_t vocab_size, Sample* sample) {
  const std::vector<int32_t> more = ids.tokens(index), targets = labels.tokens(index);
  if (more.empty() || more.size() != targets.size()) {
    throw DataError(tr("{}: sample {} has {} values, {} has {}",
                       index_path(labels.prefix()).string(), index, targets.size(),
                       index_path(ids.prefix()).string(), more.size()));
  }
  check_vocabulary(tokens_path(ids.prefix()), index, 0, more, vocab_size);
  check_vocabulary(tokens_path(labels.prefix()), index, 0, targets, vocab_size);
  if (!sample->ids.empty()) sample->segments.push_back(static_cast<int32_t>(sample->ids.size()));
  sample->ids.insert(sample->ids.end(), more.begin(), more.end());
  sample->labels.insert(sample->labels.end(), targets.begin(), targets.end());
}

}  // namespace

std::optional<SampleKind> kind_of_files(const std::string& prefix) {
  if (std::all_of(std::begin(kPairFields), std::end(kPairFields),
                  [&](const char* field) { return has_field(prefix, field); })) {
    return SampleKind::kPairs;
  }
  if (!has_field(prefix, "input_ids")) return std::nullopt;
  if (has_field(prefix, "liked") && has_field(prefix, "labels")) return SampleKind::kUnpaired;
  if (has_field(prefix, "group")) return SampleKind::kGroups;
  if (has_field(prefix, "columns")) return SampleKind::kPrompts;
  if (instruction_dataset_exists(prefix)) return SampleKind::kTokens;
  if (has_field(prefix, "attention_mask")) return SampleKind::kPrompts;
  return std::nullopt;
}

std::shared_ptr<const SampleSource> samples_of_files(
    const std::string& prefix, SampleKind kind, std::shared_ptr<const text::Tokenizer> tokenizer,
    const std::optional<SegmentEnds>& ends) {
  const auto vocab_size = static_cast<int64_t>(tokenizer ? tokenizer->size() : 0);
  switch (kind) {
    case SampleKind::kTokens:
      return std::make_shared<InstructionDataset>(prefix, ends, vocab_size);
    case SampleKind::kPairs:
      return std::make_shared<PairDataset>(prefix, vocab_size);
    case SampleKind::kUnpaired:
      return std::make_shared<UnpairedDataset>(prefix, vocab_size);
    case SampleKind::kSteps:
      return std::make_shared<StepsDataset>(prefix, vocab_size);
    case SampleKind::kPrompts:
      return std::make_shared<PromptDataset>(prefix, std::move(tokenizer));
    case SampleKind::kLabelled:
      return std::make_shared<LabelledDataset>(prefix, vocab_size);
    case SampleKind::kGroups:
      return std::make_shared<GroupDataset>(prefix, vocab_size);
  }
  throw InternalError("samples of a kind without files");
}

PairDataset::PairDataset(const std::string& prefix, int64_t vocab_size) : vocab_size_(vocab_size) {
  for (const char* field : kPairFields) {
    fields_.push_back(open_field(prefix, field));
    require_same_count(fields_[0], fields_.back());
  }
  if (!has_field(prefix, "margin")) return;
  margin_.emplace(open_field(prefix, "margin"));
  require_same_count(fields_[0], *margin_);
}

Sample PairDataset::get(int64_t index) const {
  Sample sample;
  for (size_t side = 0; side < 4; side += 2)
    add_segment(fields_[side], fields_[side + 1], index, vocab_size_, &sample);
  const float margin = margin_ ? std::bit_cast<float>(single_value(*margin_, index)) : 0.0F;
  sample.segment_values = {margin, 0.0F};
  return sample;
}

uint64_t PairDataset::content_hash() const {
  uint64_t hash = margin_ ? margin_->content_hash() : 0;
  for (const IndexedDataset& field : fields_) hash = mix64(hash, field.content_hash());
  return hash;
}

UnpairedDataset::UnpairedDataset(const std::string& prefix, int64_t vocab_size)
    : ids_(open_field(prefix, "input_ids")),
      labels_(open_field(prefix, "labels")),
      liked_(open_field(prefix, "liked")),
      vocab_size_(vocab_size) {
  require_same_count(ids_, labels_);
  require_same_count(ids_, liked_);
}

Sample UnpairedDataset::get(int64_t index) const {
  Sample sample;
  add_segment(ids_, labels_, index, vocab_size_, &sample);
  sample.segment_values = {single_value(liked_, index) != 0 ? 1.0F : 0.0F};
  return sample;
}

uint64_t UnpairedDataset::content_hash() const {
  return mix64(mix64(ids_.content_hash(), labels_.content_hash()), liked_.content_hash());
}

Sample StepsDataset::get(int64_t index) const {
  Sample sample = base_.get(index);
  sample.labels_are_targets = true;
  return sample;
}

LabelledDataset::LabelledDataset(const std::string& prefix, int64_t vocab_size)
    : ids_(open_field(prefix, "input_ids")),
      label_(open_field(prefix, "label")),
      vocab_size_(vocab_size) {
  require_same_count(ids_, label_);
}

Sample LabelledDataset::get(int64_t index) const {
  Sample sample;
  sample.ids = ids_.tokens(index);
  check_vocabulary(tokens_path(ids_.prefix()), index, 0, sample.ids, vocab_size_);
  sample.labels.assign(sample.ids.size(), kIgnoreLabel);
  if (!sample.ids.empty()) sample.labels.back() = sample.ids.back();
  sample.labels_are_targets = true;
  for (const int32_t bits : label_.tokens(index))
    sample.segment_labels.push_back(std::bit_cast<float>(bits));
  return sample;
}

uint64_t LabelledDataset::content_hash() const {
  return mix64(ids_.content_hash(), label_.content_hash());
}

GroupDataset::GroupDataset(const std::string& prefix, int64_t vocab_size)
    : ids_(open_field(prefix, "input_ids")),
      group_(open_field(prefix, "group")),
      vocab_size_(vocab_size) {
  require_same_count(ids_, group_);
}

Sample GroupDataset::get(int64_t index) const {
  std::vector<int32_t> ids = ids_.tokens(index);
  check_vocabulary(tokens_path(ids_.prefix()), index, 0, ids, vocab_size_);
  return sample_of_group(
      std::move(ids), group_.tokens(index),
      fmt::format("{}: sample {}", tokens_path(group_.prefix()).string(), index));
}

uint64_t GroupDataset::content_hash() const {
  return mix64(ids_.content_hash(), group_.content_hash());
}

PromptDataset::PromptDataset(const std::string& prefix,
                             std::shared_ptr<const text::Tokenizer> tokenizer)
    : ids_(open_field(prefix, "input_ids")), tokenizer_(std::move(tokenizer)) {
  if (has_field(prefix, "columns")) {
    columns_.emplace(open_field(prefix, "columns"));
    require_same_count(ids_, *columns_);
    return;
  }
  const fs::path path = fs::absolute(prefix);
  const std::string beginning = path.filename().string() + "_packed_", ending = "_document.idx";
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path.parent_path())) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(beginning) || !name.ends_with(ending) ||
        name.size() <= beginning.size() + ending.size()) {
      continue;
    }
    names.push_back(name.substr(beginning.size(), name.size() - beginning.size() - ending.size()));
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    if (name == "input_ids" || name == "attention_mask" || !has_field(prefix, name)) continue;
    keys_.emplace_back(name, open_field(prefix, name));
    require_same_count(ids_, keys_.back().second);
  }
  const IndexedDataset* labels = answer_labels();
  if (!labels) return;
  const std::vector<int32_t> first = labels->tokens(0);
  holds_answers_ = std::find(first.begin(), first.end(), kIgnoreLabel) != first.end();
}

const IndexedDataset* PromptDataset::answer_labels() const {
  if (ids_.num_sequences() == 0) return nullptr;
  for (const auto& [name, field] : keys_) {
    if (name == "labels") return &field;
  }
  return nullptr;
}

Sample PromptDataset::get(int64_t index) const {
  Sample sample;
  sample.ids = ids_.tokens(index);
  if (holds_answers_) {
    const int64_t prompt = prompt_length(answer_labels()->tokens(index));
    sample.ids.resize(static_cast<size_t>(std::min<int64_t>(prompt, std::ssize(sample.ids))));
  }
  sample.labels.assign(sample.ids.size(), kIgnoreLabel);
  return sample;
}

uint64_t PromptDataset::content_hash() const {
  uint64_t hash = mix64(ids_.content_hash(), columns_ ? columns_->content_hash() : 0);
  for (const auto& [name, field] : keys_) hash = mix64(hash, field.content_hash());
  return hash;
}

std::string PromptDataset::columns(int64_t index) const {
  if (columns_) {
    return read_text_record(
        columns_->tokens(index),
        fmt::format("{}: sample {}", tokens_path(columns_->prefix()).string(), index));
  }
  Json columns = Json::object();
  for (const auto& [name, field] : keys_) {
    std::vector<int32_t> ids = field.tokens(index);
    if (name == "labels" && holds_answers_) std::erase(ids, kIgnoreLabel);
    if (tokenizer_) columns[name] = tokenizer_->decode(ids, name == "labels");
  }
  return columns.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace danlu::data
