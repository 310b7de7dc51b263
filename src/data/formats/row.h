// data/formats/row.h: what a row of a data set means, whatever its columns are called.
#pragma once
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "text/conversation.h"

namespace danlu::data {

/// Pre-training texts: one for each text column, in the order of FormatOptions::json_keys.
struct TextRow {
  std::vector<std::string> texts;
};

/// A row that was tokenised before. labels has the length of ids; not shifted; kIgnoreLabel = no
/// loss.
struct TokenRow {
  std::vector<int32_t> ids;
  std::vector<int32_t> labels;
};

/// A prompt and the answer to it: only messages of the answer have train == true.
using AnsweredRow = std::variant<text::Conversation, TokenRow>;

/// Two answers to one prompt.
struct PairRow {
  AnsweredRow chosen, rejected;
  float margin = 0;  ///< by how much the chosen one is better; 0: not said
};

/// An answer that somebody liked or not.
struct UnpairedRow {
  AnsweredRow answer;
  bool liked = false;
};

/// A solution whose steps were judged.
struct StepsRow {
  /// With the placeholder after each step; or, if there are `steps`, what stands before them.
  std::string text;
  std::vector<std::string> steps = {};
  std::vector<Json> values = {};  ///< of each step: true, false, 1, 0, or a reward token
};

/// A question whose answers are made in training.
struct PromptRow {
  std::variant<TextRow, text::Conversation, TokenRow> prompt;
  /// The row's other columns; "labels" among them is the reference answer, if there is one.
  Json columns = Json::object();
};

/// A text that is sorted.
struct LabelledRow {
  std::variant<TextRow, text::Conversation, TokenRow> text;
  Json label;  ///< as the row has it (data/labelled_text.h); null: it has none
};

/// A text, and others that fit it or do not.
struct GroupRow {
  LabelledRow anchor;  ///< without a label
  std::vector<text::Conversation> positives, negatives;
  Json label;  ///< how well the positive fits; null: the row says nothing
};

using Row = std::variant<TextRow, text::Conversation, TokenRow, PairRow, UnpairedRow, StepsRow,
                         PromptRow, LabelledRow, GroupRow>;

/// RowProblem::reason of an empty line of a .txt file: it separates texts, and nothing is lost.
inline constexpr const char* kBlankLine = "blank line";

/// Reasons that are found in texts and in tokens alike.
inline constexpr const char* kNoDifference = "chosen and rejected do not differ";
inline constexpr const char* kUnequalSteps = "the row has not one value for each step";

/// Why a row cannot be used.
struct RowProblem {
  std::string reason;  ///< the kind of fault; rows are counted by it
  std::string detail;  ///< what this row has; may be empty
  /// Where a picture or a video that cannot be used was looked for.
  std::vector<std::string> media_files = {};
};

using RowResult = std::variant<Row, RowProblem>;

}  // namespace danlu::data
