// data/preprocess.h: `danlu preprocess`: data sets to Megatron files under a prefix.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/formats/format_options.h"
#include "data/media_settings.h"
#include "data/preprocess_encode.h"
#include "data/preprocess_manifest.h"
#include "data/preprocess_output.h"
#include "data/preprocess_report.h"
#include "text/conversation.h"
#include "text/tokenizer.h"

namespace danlu::data {

struct PreprocessSpec {
  std::vector<std::string> inputs;      ///< path[:split][#n], see resolve_dataset
  std::filesystem::path output_prefix;  ///< its directory is made if missing
  /// format.kind is not looked at: what the rows are decides which files are written.
  FormatOptions format;
  StepTokens steps = {};                          ///< of rows with judged steps
  std::vector<std::string> additional_keys = {};  ///< of prompts: columns to be tokenised
  bool append_eod = false;
  PackMode pack = PackMode::kNone;
  int64_t seq_length = 0;  ///< 0: no limit; else samples of seq_length tokens or more are dropped
                           ///< (kNeat: cut to seq_length - 1), as MindSpeed-LLM does
  bool document_per_file = false;
  int64_t max_rows_of_all = -1;  ///< as RunSettings'
  size_t num_workers = 0;        ///< 0: every CPU; the result does not depend on it
  bool strict = false;
  double max_dropped_ratio = kMaxDroppedRatio;  ///< of a data set's rows; more is an error
  /// How pictures and videos are read; empty: the model reads text alone.
  std::optional<MediaSettings> media;
  /// Replace a data set of other content, or files without a manifest, at the prefix; do the work
  /// again although nothing changed.
  bool overwrite = false;
  bool show_progress = true;
  double commit_interval_s = 5;
  std::filesystem::path work_dir = {};  ///< unfinished work; "": hidden, beside the output
};

/// Loaded when the rows turn out to need them. Either function may be empty.
struct PreprocessText {
  std::function<std::shared_ptr<const text::Tokenizer>()> load_tokenizer;
  std::function<std::shared_ptr<const text::ChatEncoder>(std::shared_ptr<const text::Tokenizer>)>
      make_chat_encoder;
  bool embeds_plainly = false;  ///< rows of groups are read without a template
};

struct PreprocessResult {
  bool up_to_date = false;  ///< nothing was done: the files were there, from the same content
  std::vector<std::filesystem::path> outputs;  ///< prefixes of the data sets written
  uint64_t input_bytes = 0;
  PreprocessReport report;
  SampleKind kind = SampleKind::kTokens;
  RecordedTemplate recorded_template;  ///< empty without conversations; also in the manifest
};

/// Plain text becomes `<prefix>_<key>_document`, everything else
/// `<prefix>_packed_{input_ids,attention_mask,labels}_document`, with pictures or videos also
/// `<prefix>_packed_media_document` (see media_record.h), or for pairs, judged answers, steps and
/// prompts the files that write_kind_datasets names; `<prefix>_preprocess.json` holds
/// the report and what the files were made from. Killed work is continued by the same call, which
/// may then replace the files that it had begun to write. Errors: UsageError (packing without
/// seq_length, packing of texts, texts mixed with conversations; other data at the prefix without
/// `overwrite`), and those of plan_datasets, encode_datasets and the writers. On an error the files
/// of an earlier run stay as they are.
PreprocessResult preprocess(const PreprocessSpec& spec, const PreprocessText& text);

/// Merges the data sets in `directory` whose names contain `key`, in the order of their names, into
/// `<output_prefix>_<key>`; returns its prefix. Errors: DataError if there is none; UsageError if
/// the output exists, without `overwrite`.
std::filesystem::path merge_preprocessed(const std::filesystem::path& directory,
                                         const std::string& key,
                                         const std::filesystem::path& output_prefix,
                                         bool overwrite = false);

}  // namespace danlu::data
