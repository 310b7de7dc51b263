// train/prepare_data.h: from the data sets of a configuration to samples and their order.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "arch/model_config.h"
#include "data/batch_stream.h"
#include "data/preprocess_report.h"
#include "data/sample_source.h"
#include "text/conversation.h"
#include "text/template_choice.h"
#include "text/tokenizer.h"
#include "train/settings.h"

namespace danlu::train {

struct PreparedText {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatEncoder> encoder;  ///< nullptr: no template (plain text only)
  text::TemplateChoice choice;                       ///< why `encoder` is that one
};

/// Errors: ModelError if the tokenizer has ids beyond the model's vocabulary.
PreparedText prepare_text(const TrainConfig& config, const arch::ModelConfig& model);

struct PreparedData {
  std::shared_ptr<const data::SampleSource> train, validation;  ///< validation may be nullptr
  /// Makes the pixels of batches; nullptr: the model reads text alone.
  std::shared_ptr<data::MediaLoader> media;
  data::BatchStream::Order order;
  data::LastBatch last_batch = data::LastBatch::kPartial;
  data::PreprocessReport report;  ///< of raw rows; empty for preprocessed files
  /// The same of validation data sets; empty where rows are held out of those for training.
  data::PreprocessReport validation_report;
  data::LengthStats lengths;   ///< of the training samples
  int64_t longest_prompt = 0;  ///< of samples to which the model draws answers; else 0
  /// Patches of a training sample's pictures, at most, and of one of its frames.
  int64_t most_patches = 0, most_frame_patches = 0;
  std::string description;  ///< one line: what was read
  uint64_t content_hash = 0;
  /// The template that files tokenised beforehand were made with, where they say so: the last
  /// one's.
  std::string tokenised_with;
  /// Whether that is the template of all that is trained on: raw rows have the run's own.
  bool all_tokenised_with_one = false;
};

/// Errors: DataError (nothing usable), UsageError (Megatron flags that do not fit).
PreparedData prepare_data(const TrainConfig& config, const PreparedText& text,
                          int64_t global_batch_size);

}  // namespace danlu::train
