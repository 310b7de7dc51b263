// data/megatron/instruction_dataset.h: instruction samples stored as three indexed data sets.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "data/megatron/indexed_dataset.h"
#include "data/sample_source.h"

namespace danlu::data {

/// Where the fields of an instruction data set lie: "<prefix>_packed_<field>_document".
std::string instruction_field_prefix(const std::string& prefix, const std::string& field);
/// True if input_ids, attention_mask and labels of `prefix` all exist.
bool instruction_dataset_exists(const std::string& prefix);
/// The field of pictures and videos, which files of text lack.
inline constexpr const char* kMediaField = "media";
std::filesystem::path media_output_of(const std::filesystem::path& prefix);
/// `outputs` and that field, if it is there.
std::vector<std::filesystem::path> with_media_output(const std::filesystem::path& prefix,
                                                     std::vector<std::filesystem::path> outputs);

/// Where samples of one sequence end, of packs whose mask does not say it: all of it is one value.
struct SegmentEnds {
  int32_t id = 0;                  ///< behind this token
  bool restarts_positions = true;  ///< false: they run through the sequence
};

/// Reads `<prefix>_packed_{input_ids,attention_mask,labels}_document` as MindSpeed-LLM writes them.
/// One sequence is one sample. Attention mask 0 is padding and left out; each change of a non-zero
/// mask value starts a segment (1,2,3,… in packed samples). Labels are not shifted; kIgnoreLabel =
/// no loss. Where `<prefix>_packed_media_document` exists, it holds a media_record for each sample.
///
/// Errors  IoError, DataError as IndexedDataset; DataError naming the file if the three do not
/// agree
///         in number or length of samples, or a mask value is negative, or an id is not
///         below vocab_size.
class InstructionDataset : public SampleSource {
 public:
  /// ends: of samples packed without 1,2,3,…; nothing: they are one. vocab_size: of the tokenizer;
  /// 0: ids are not checked.
  explicit InstructionDataset(const std::string& prefix,
                              std::optional<SegmentEnds> ends = std::nullopt,
                              int64_t vocab_size = 0);

  int64_t size() const override { return ids_.num_sequences(); }
  Sample get(int64_t index) const override;
  /// Stored tokens, padding included.
  int64_t length(int64_t index) const override { return ids_.length(index); }
  std::vector<MediaSpan> spans(int64_t index) const override;
  uint64_t content_hash() const override;

 private:
  std::string media_origin(int64_t index) const;

  IndexedDataset ids_, mask_, labels_;
  std::optional<IndexedDataset> media_;  ///< of files with pictures or videos
  std::optional<SegmentEnds> ends_;
  int64_t vocab_size_;
};

}  // namespace danlu::data
