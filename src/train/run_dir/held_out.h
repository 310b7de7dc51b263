// train/run_dir/held_out.h: the validation rows a run held out, kept beside it so that they can be
// asked later.
#pragma once
#include <filesystem>

#include "data/sample_source.h"
#include "text/tokenizer.h"

namespace danlu::train {

/// Writes `run_directory`/val_dataset.jsonl: one line a sample with input_ids, labels (not shifted,
/// -100 = no loss) and the text, for `danlu infer --load_dataset_config true`. Packed samples
/// become one line each sub-sample. Errors: IoError.
void write_held_out(const std::filesystem::path& run_directory,
                    const data::SampleSource& validation, const text::Tokenizer& tokenizer);

}  // namespace danlu::train
