// data/tokenized_dataset.h: what training reads: raw rows tokenised once into a cache, or files
// that were preprocessed before.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "data/megatron/instruction_dataset.h"
#include "data/preprocess_encode.h"
#include "data/preprocess_manifest.h"
#include "data/preprocess_report.h"
#include "data/readers/row_choice.h"
#include "data/sample_source.h"

namespace danlu::data {

struct SampleSpec {
  /// What the samples are for. Rows and prefixes of another kind are refused.
  SampleKind kind = SampleKind::kTokens;
  /// Each: path[:split][#n] (see resolve_dataset), or the prefix of preprocessed samples.
  std::vector<std::string> datasets;
  /// The same for validation; empty: val_ratio splits it off `datasets`.
  std::vector<std::string> val_datasets;
  std::shared_ptr<const text::Tokenizer> tokenizer;       ///< null: only tokenised rows or prefixes
  std::shared_ptr<const text::ChatEncoder> chat_encoder;  ///< null: only texts and tokenised rows
  FormatOptions format;
  /// Tokens of a sample (of pairs: of each answer with its prompt; of groups: of each text), and of
  /// a pack (of pairs and unpaired answers: twice as many; of groups: at least as many as the
  /// largest has); 0: any (then no packs).
  int64_t max_length = 2048;
  Truncation truncation = Truncation::kDelete;
  bool append_eod_text = true;           ///< end plain texts with the tokenizer's eos
  bool append_eod = false;               ///< end every sample with it
  std::optional<SegmentEnds> ends = {};  ///< of samples in files tokenised beforehand
  bool pack_sequences =
      false;             ///< fill sequences of max_length with several samples, segments kept
  double val_ratio = 0;  ///< share of samples split off for validation, drawn by `seed`
  int64_t val_rows = 0;  ///< > 0: so many instead of a share
  /// Megatron's --split, "949,50,1": shares of the samples in file order, as MindSpeed-LLM cuts
  /// instruction data (legacy_split_ranges). The test share is left out. Wins over val_ratio.
  std::string split_text = {};
  uint64_t seed = 42;
  /// Which rows #n takes, and num_samples of a dataset_info.json; drawn by `seed`.
  RowChoice choice = RowChoice::kFirst, choice_by_info = RowChoice::kFirst;
  std::set<std::string> first_rows_of = {};  ///< of `datasets`, those of which #n takes the first
  int64_t max_rows_of_all = -1;              ///< as RunSettings', of `datasets` alone
  /// How pictures and videos are read; empty: the model reads text alone. Other kinds than kTokens
  /// are text alone.
  std::optional<MediaSettings> media = {};
  StepTokens steps = {};                        ///< of kSteps
  LabelForm label_form = {};                    ///< of kLabelled
  GroupForm group_form = {};                    ///< of kGroups
  bool strict = false;                          ///< bad rows are errors
  double max_dropped_ratio = kMaxDroppedRatio;  ///< of a data set's rows; more is an error
  std::filesystem::path cache_dir = {};         ///< "": default_cache_dir()
  bool overwrite_cache = false;
  size_t num_workers = 0;  ///< 0: every CPU
  std::filesystem::path dataset_info_dir = {};
  /// val_ratio is rounded down. Where #n is given, rows of each data set are split, one of each at
  /// least, before n of them are drawn and repeated: no row is on both sides. Not beside
  /// max_rows_of_all, nor with files tokenised beforehand.
  bool splits_rows = false;
};

/// Files that were tokenised by `danlu preprocess` or by another program: template, system prompt,
/// columns and handler of the run have no effect on them.
struct TokenisedBeforehand {
  std::string prefix;
  /// What `danlu preprocess` recorded beside the files; empty: nothing, or no template was used.
  RecordedTemplate recorded_template;
};

struct TrainValSamples {
  std::shared_ptr<const SampleSource> train;     ///< packed if asked for
  std::shared_ptr<const SampleSource> val;       ///< never packed; null if there is none
  int64_t num_train_rows = 0, num_val_rows = 0;  ///< samples before packing
  PreprocessReport report;                       ///< of all training data sets
  PreprocessReport val_report;  ///< of val_datasets, and of rows split off (splits_rows)
  std::vector<TokenisedBeforehand> tokenised_beforehand;  ///< of training, then of validation
};

/// DANLU_CACHE, else $XDG_CACHE_HOME/danlu, else ~/.cache/danlu.
std::filesystem::path default_cache_dir();
/// Makes a directory of the cache. Errors: IoError that says how to choose another place.
void require_cache_directory(const std::filesystem::path& directory);

/// Opens or builds the samples of a run. Answers that are liked or not are given the answer of the
/// row before them after validation was split off, so that the two sides know nothing of each
/// other. max_length and truncation hold for rows and for files tokenised beforehand alike. A cache
/// entry is found by the content of files, tokenizer, template and settings; work that was killed
/// is continued; several processes may ask at once. Logs the layout detected and what was taken
/// from the cache. Errors: UsageError (split_text beside val_datasets), DataError (nothing left for
/// training), IoError, ModelError as the parts below say.
TrainValSamples open_or_build_samples(const SampleSpec& spec);

/// Plain texts as a Megatron data set for pre-training (`<result>.bin`, `<result>.idx`), from rows
/// (cached as above; eod after each text if spec.append_eod_text) or from a prefix that exists.
/// Uses: datasets, tokenizer, format, seed, cache_dir, overwrite_cache, num_workers, strict.
/// One prefix for each data set, so that they can be blended.
std::vector<std::filesystem::path> open_or_build_texts(const SampleSpec& spec,
                                                       PreprocessReport* report);

}  // namespace danlu::data
