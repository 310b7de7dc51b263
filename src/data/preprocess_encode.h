// data/preprocess_encode.h: one row to tokens and labels: template, truncation, the checks that
// drop it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/formats/row_format.h"
#include "data/formats/unread_columns.h"
#include "data/media_encoder.h"
#include "data/preprocess_report.h"
#include "data/readers/row_reader.h"
#include "data/step_text.h"
#include "text/conversation.h"
#include "text/tokenizer.h"

namespace danlu::data {

/// What happens to a sample longer than allowed.
enum class Truncation {
  kDelete,  ///< dropped and counted
  kLeft,    ///< the end is kept
  kRight,   ///< the beginning is kept
  kSplit,   ///< plain text only: cut into several samples; conversations are dropped
  kShares,  ///< prompts and answers of a conversation both, by cut_turns; others as kRight
};
/// "delete", "left", "right", "split", "shares". Errors: UsageError with the nearest name.
Truncation truncation_from_name(const std::string& name);

enum class EncodedKind {
  kTexts,    ///< one stream per text column: ids only
  kSamples,  ///< streams by SampleKind, see num_sample_streams
};

/// How steps are told apart and judged (SampleKind::kSteps).
struct StepTokens {
  std::string placeholder = "ки";               ///< the token after each step
  std::vector<std::string> reward_tokens = {};  ///< values that are allowed; empty: any
};

/// What the numbers of a label are (SampleKind::kLabelled).
struct LabelForm {
  enum class Kind {
    kClass,    ///< one number: the class, from 0 on
    kClasses,  ///< a number for each class: 1 or 0
    kNumbers,  ///< a number for each label
  };
  Kind kind = Kind::kClass;
  int64_t labels = 1;
  /// Conversations are the text of their messages, without a template.
  bool without_template = false;
  /// How many numbers a text has.
  int64_t numbers() const { return kind == Kind::kClass ? 1 : labels; }
};

/// What of rows of several texts is learnt (SampleKind::kGroups).
struct GroupForm {
  enum class Texts {
    kApart,         ///< each text is a segment, the anchor first
    kBehindAnchor,  ///< a segment for each other text: the anchor's messages and it, as the answer
  };
  enum class Label {
    kNone,     ///< not read
    kNumber,   ///< any; true and false are 1 and 0
    kBinary,   ///< 1 or 0
    kIfGiven,  ///< as kNumber; 1 where a row has none
  };
  Texts texts = Texts::kApart;
  Label label = Label::kNone;
  /// Conversations are the text of their messages, without a template.
  bool without_template = false;
  int64_t max_positives = 0;  ///< 0: any number
  bool needs_negatives = false, takes_negatives = true;
  bool needs_positives = true;
  /// So many are drawn of a row that has more, the same ones in every epoch.
  std::optional<int64_t> most_positives = {}, most_negatives = {};
};

struct EncodeSettings {
  EncodedKind kind = EncodedKind::kSamples;
  SampleKind sample_kind = SampleKind::kTokens;      ///< of kSamples: what the handlers' rows are
  std::shared_ptr<const text::Tokenizer> tokenizer;  ///< may be null for tokenised rows
  std::shared_ptr<const text::ChatEncoder> chat_encoder;  ///< may be null without conversations
  int64_t max_length = 0;  ///< tokens a sample may have; 0: any number
  Truncation truncation = Truncation::kDelete;
  bool append_eod = false;       ///< end of text after every sample or text
  bool append_eod_text = false;  ///< … after plain texts only (kSamples)
  /// Reads the rows' pictures and videos; null: the model reads text alone.
  std::shared_ptr<const MediaEncoder> media;
  StepTokens steps = {};
  LabelForm label_form = {};  ///< for kLabelled
  GroupForm group_form = {};  ///< for kGroups
  /// For kPrompts: columns that are tokenised, without a template, into streams of their own.
  std::vector<std::string> additional_keys = {};
};

/// Streams of samples, one sequence each for every sample:
///   kTokens    ids, labels; with `media` also media_record
///   kPairs     ids and labels of prompt and chosen answer, those of prompt and rejected answer,
///   the
///              margin as the bits of a float
///   kUnpaired  ids, labels, 1 liked or 0
///   kSteps     ids, labels (at their places)
///   kPrompts   ids, text_record of the columns, ids of each additional key
///   kLabelled  ids, the numbers of the label as the bits of floats
///   kGroups    ids of all segments, group_record
size_t num_sample_streams(const EncodeSettings& settings);
/// The streams whose tokens a sample of that kind has.
std::vector<size_t> id_streams(SampleKind kind);

/// A row that was dropped or cut.
struct RowEvent {
  bool dropped = true;
  uint32_t file = 0;
  int64_t index = 0;
  std::string reason, detail;
  std::vector<std::string> media_files = {};  ///< as RowProblem's
};

/// Tokens of some consecutive rows.
struct EncodedBatch {
  std::vector<std::vector<int32_t>> tokens;   ///< per stream, samples one after the other
  std::vector<std::vector<int32_t>> lengths;  ///< per stream, one per sample
  std::vector<RowEvent> events;
  ColumnCounts unread;  ///< columns that were passed by
  VisualCounts visual;
  int64_t rows = 0, rows_kept = 0, target_tokens = 0;

  /// A sample's tokens of one stream.
  void append(size_t stream, std::span<const int32_t> sample);
};

/// Targets after the shift: the first token of a sample is never one.
int64_t count_targets(std::span<const int32_t> labels);

/// The first sample of a batch, decoded, with its masks. REQUIRES: it has one.
std::string describe_first(const EncodeSettings& settings, const EncodedBatch& batch);

/// What `handler` makes of a row of either kind; adds the columns it passes by to `unread`. Errors:
/// DataError naming the place if the row is not JSON or `handler` refuses it.
RowResult read_row(const RowHandler& handler, const Dataset& dataset, const RawRow& row,
                   ColumnCounts* unread);

/// Immutable; thread-safe.
class RowEncoder {
 public:
  /// Errors: UsageError if `handler`'s rows need a tokenizer or a template that is missing, or
  /// cannot be of this kind; ModelError if eod is asked for and the tokenizer has none, or lacks
  /// the tokens of steps.
  RowEncoder(EncodeSettings settings, const RowHandler& handler);

  size_t num_streams() const { return num_streams_; }
  /// Appends the row's tokens, or an event. Errors: as read_row.
  void encode(const Dataset& dataset, const RawRow& row, EncodedBatch* batch) const;

 private:
  bool append_texts(const TextRow& row, EncodedBatch* batch, RowEvent* event) const;
  /// A row on its way to be a sample.
  struct Pieces {
    std::vector<int32_t> ids, labels;
    std::vector<MediaSpan> media;
    std::vector<int32_t> answers = {};  ///< as cut_turns'; empty: the labels are
  };
  bool append_sample(Row row, const Dataset& dataset, EncodedBatch* batch, RowEvent* event) const;
  bool encode_conversation(const text::Conversation& conversation, const Dataset& dataset,
                           Pieces* pieces, RowEvent* event) const;
  bool find_answers(const text::Conversation& conversation, RowEvent* event, Pieces* pieces) const;
  bool has_no_placeholder(const std::vector<int32_t>& ids, RowEvent* event) const;
  bool cut(Pieces* pieces, RowEvent* event) const;
  bool check_vocabulary(const TokenRow& row, RowEvent* event) const;
  bool append_pieces(const std::vector<int32_t>& ids, EncodedBatch* batch) const;
  bool append_row(Row row, const Dataset& dataset, EncodedBatch* batch, RowEvent* event) const;

  void prepare_steps();
  bool encode_answer(AnsweredRow answer, const Dataset& dataset, Pieces* pieces,
                     RowEvent* event) const;
  bool cut_answers(std::span<Pieces> answers, RowEvent* event) const;
  bool append_pair(PairRow row, const Dataset& dataset, EncodedBatch* batch, RowEvent* event) const;
  bool append_unpaired(UnpairedRow row, const Dataset& dataset, EncodedBatch* batch,
                       RowEvent* event) const;
  int32_t reward_token(const Json& value, RowEvent* event) const;
  bool append_steps(const StepsRow& row, EncodedBatch* batch, RowEvent* event) const;
  bool encode_prompt(PromptRow* row, Pieces* pieces, RowEvent* event) const;
  bool append_prompt(PromptRow row, EncodedBatch* batch, RowEvent* event) const;
  std::vector<int32_t> ids_of_pair(const LabelledRow& pair, const text::ChatEncoder* encoder) const;
  bool encode_text_of_group(const LabelledRow& text, Pieces* pieces, RowEvent* event) const;
  bool append_labelled(LabelledRow row, EncodedBatch* batch, RowEvent* event) const;
  bool append_group(GroupRow row, EncodedBatch* batch, RowEvent* event) const;

  EncodeSettings settings_;
  const RowHandler& handler_;
  size_t num_streams_ = 2;
  int32_t eod_ = -1;
  std::shared_ptr<const StepTexts> step_texts_;  ///< of judged steps
};

}  // namespace danlu::data
