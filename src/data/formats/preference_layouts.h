// data/formats/preference_layouts.h: handlers for rows of preference training, process rewards and
// reinforcement learning.
#pragma once
#include <memory>
#include <optional>

#include "data/formats/first_rows.h"
#include "data/formats/row_format.h"
#include "data/sample_kind.h"

namespace danlu::data {

/// What the columns say that rows are, where nobody says it: pairs (a rejected answer), unpaired
/// (an answer with a true/false label), steps (lists of steps and labels), else kTokens.
SampleKind detected_kind(const FirstRows& first);

/// Whether rows that are learnt as they stand say of answers whether these are liked.
bool are_judged_answers(const std::vector<Json>& first_rows, const FormatOptions& options);

/// `wanted`: the layout that a handler's name asks for; empty: detected. Errors: UsageError (a
/// malformed map); DataError naming the columns that are there if rows lack what such rows have.
std::unique_ptr<RowHandler> pairs_layout(const FirstRows& first, const FormatOptions& options,
                                         std::optional<RowFormat> wanted);
std::unique_ptr<RowHandler> unpaired_layout(const FirstRows& first, const FormatOptions& options,
                                            std::optional<RowFormat> wanted);
std::unique_ptr<RowHandler> steps_layout(const FirstRows& first, const FormatOptions& options);

/// Where prompts come from that a handler was named for.
enum class NamedPrompts {
  kNone,    ///< no handler: rows as in instruction tuning, answers optional
  kAnswer,  ///< R1 and PPO handlers: the mapped answer is the column "labels"
  kMath17k  ///< prompt: a list of messages; the answer: reward_model.ground_truth
};
std::unique_ptr<RowHandler> prompts_layout(const FirstRows& first, const FormatOptions& options,
                                           std::optional<RowFormat> wanted, NamedPrompts named);

/// Rows as in instruction tuning, answers optional, or plain texts, with a column "label". With
/// FormatOptions::answers_optional rows may lack the label.
std::unique_ptr<RowHandler> labelled_layout(const FirstRows& first, const FormatOptions& options,
                                            std::optional<RowFormat> wanted);

/// A text, as rows of instruction tuning have it or in a column anchor, sentence1 or text, beside
/// positive_messages and negative_messages (also: positive, pos, sentence2, negative, neg), or
/// ms-swift's older response and rejected_response; and a column label (or score), which rows may
/// lack.
std::unique_ptr<RowHandler> groups_layout(const FirstRows& first, const FormatOptions& options,
                                          std::optional<RowFormat> wanted);

}  // namespace danlu::data
