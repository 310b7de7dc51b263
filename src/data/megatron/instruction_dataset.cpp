#include "data/megatron/instruction_dataset.h"

#include <fmt/format.h>

#include "base/error.h"
#include "data/media_record.h"
#include "data/vocabulary_check.h"

namespace danlu::data {
namespace {

void require_same_shape(const IndexedDataset& ids, const IndexedDataset& other) {
  const std::string name = index_path(other.prefix()).string();
  if (other.num_sequences() != ids.num_sequences()) {
    throw DataError(tr("{}: has {} samples, {} has {}", name, other.num_sequences(),
                       index_path(ids.prefix()).string(), ids.num_sequences()));
  }
  for (int64_t i = 0; i < ids.num_sequences(); ++i) {
    if (other.length(i) == ids.length(i)) continue;
    throw DataError(tr("{}: sample {} has {} values, {} has {}", name, i, other.length(i),
                       index_path(ids.prefix()).string(), ids.length(i)));
  }
}

void cut_at_ends(const SegmentEnds& ends, Sample& sample) {
  for (size_t i = 1; i < sample.ids.size(); ++i) {
    if (sample.ids[i - 1] == ends.id) sample.segments.push_back(static_cast<int32_t>(i));
  }
  if (!ends.restarts_positions && sample.segments.size() > 1) sample.position_starts = {0};
}

}  // namespace

std::string instruction_field_prefix(const std::string& prefix, const std::string& field) {
  return fmt::format("{}_packed_{}_document", prefix, field);
}

bool instruction_dataset_exists(const std::string& prefix) {
  for (const char* field : {"input_ids", "attention_mask", "labels"}) {
    if (!indexed_dataset_exists(instruction_field_prefix(prefix, field))) return false;
  }
  return true;
}

fs::path media_output_of(const fs::path& prefix) {
  return instruction_field_prefix(prefix.string(), kMediaField);
}

std::vector<fs::path> with_media_output(const fs::path& prefix, std::vector<fs::path> outputs) {
  if (indexed_dataset_exists(media_output_of(prefix))) outputs.push_back(media_output_of(prefix));
  return outputs;
}

InstructionDataset::InstructionDataset(const std::string& prefix, std::optional<SegmentEnds> ends,
                                       int64_t vocab_size)
    : ids_(instruction_field_prefix(prefix, "input_ids")),
      mask_(instruction_field_prefix(prefix, "attention_mask")),
      labels_(instruction_field_prefix(prefix, "labels")),
      ends_(ends),
      vocab_size_(vocab_size) {
  require_same_shape(ids_, mask_);
  require_same_shape(ids_, labels_);
  const std::string media = instruction_field_prefix(prefix, kMediaField);
  if (!indexed_dataset_exists(media)) return;
  media_.emplace(media);
  if (media_->num_sequences() != ids_.num_sequences()) {
    throw DataError(tr("{}: has {} samples, {} has {}", index_path(media).string(),
                       media_->num_sequences(), index_path(ids_.prefix()).string(),
                       ids_.num_sequences()));
  }
}

Sample InstructionDataset::get(int64_t index) const {
  const std::vector<int32_t> ids = ids_.tokens(index), mask = mask_.tokens(index),
                             labels = labels_.tokens(index);
  check_vocabulary(tokens_path(ids_.prefix()), index, 0, ids, vocab_size_);
  check_vocabulary(tokens_path(labels_.prefix()), index, 0, labels, vocab_size_);
  Sample sample;
  int32_t previous_mask = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (mask[i] < 0) {
      throw DataError(tr("{}: value {} of sample {} is {}, must be >= 0",
                         tokens_path(mask_.prefix()).string(), i, index, mask[i]));
    }
    if (mask[i] == 0) continue;
    if (!sample.ids.empty() && mask[i] != previous_mask)
      sample.segments.push_back(static_cast<int32_t>(sample.ids.size()));
    previous_mask = mask[i];
    sample.ids.push_back(ids[i]);
    sample.labels.push_back(labels[i]);
  }
  if (ends_ && sample.segments.size() == 1) cut_at_ends(*ends_, sample);
  if (!media_ || media_->length(index) == 0) return sample;
  const std::string origin = media_origin(index);
  sample.media = read_media_record(media_->tokens(index), origin);
  const int64_t size = std::ssize(sample.ids);
  int64_t behind = 0;
  for (const MediaSpan& span : sample.media) {
    if (span.begin < behind || span.count <= 0 || span.count > size - span.begin)
      throw DataError(tr("{}: pictures outside of its {} tokens", origin, size));
    behind = span.end();
  }
  return sample;
}

std::vector<MediaSpan> InstructionDataset::spans(int64_t index) const {
  if (!media_ || media_->length(index) == 0) return {};
  return read_media_heads(media_->tokens(index), media_origin(index));
}

std::string InstructionDataset::media_origin(int64_t index) const {
  return fmt::format("{}: sample {}", tokens_path(media_->prefix()).string(), index);
}

uint64_t InstructionDataset::content_hash() const {
  uint64_t hash = ids_.content_hash();
  if (ends_) {
    const int32_t about[] = {ends_->id, ends_->restarts_positions ? 1 : 0};
    hash = hash_bytes({reinterpret_cast<const char*>(about), sizeof about}, hash);
  }
  for (const IndexedDataset* part : {&mask_, &labels_, media_ ? &*media_ : nullptr}) {
    if (!part) continue;
    const uint64_t one = part->content_hash();
    hash = hash_bytes({reinterpret_cast<const char*>(&one), sizeof one}, hash);
  }
  return hash;
}

}  // namespace danlu::data
