// data/formats/preference_handlers.h: the handlers that preference_layouts.cpp chooses from. They
// take an instruction row's handler and read with it what such rows have in common.
#pragma once
#include <memory>
#include <string>

#include "data/formats/handlers.h"
#include "data/formats/row_format.h"

namespace danlu::data {

/// Where the answer of a row stands.
enum class AnswerPlace {
  kInRow,    ///< the handler reads it itself
  kBehind,   ///< `column` holds what follows the prompt: text, one message, or a list of messages;
             ///< a list that begins with a question is the whole conversation
  kInstead,  ///< `column` holds the text that stands instead of the last message's
  kWhole     ///< `column` holds the whole conversation
};

struct AnswerSource {
  std::shared_ptr<const RowHandler> handler;
  AnswerPlace place = AnswerPlace::kInRow;
  std::string column = {};
  MessageTags tags = {};  ///< of `handler`, unless kInRow
};

/// margin: a column of numbers, "" for none. learns_all_rounds: as FormatOptions has it.
std::unique_ptr<RowHandler> make_pairs_handler(AnswerSource chosen, AnswerSource rejected,
                                               std::string margin, bool learns_all_rounds);
/// Two texts without a prompt: what both begin with is the prompt.
std::unique_ptr<RowHandler> make_text_pairs_handler(std::string chosen, std::string rejected,
                                                    std::string margin);
/// label: a column of true/false or 1/0.
std::unique_ptr<RowHandler> make_unpaired_handler(AnswerSource answer, std::string label,
                                                  bool learns_all_rounds);

/// Either `text` with placeholders, or `text` before `steps`, which may be "". values: "": steps
/// are still to be judged.
struct StepColumns {
  std::string text, steps, values;
};
std::unique_ptr<RowHandler> make_steps_handler(StepColumns columns);

/// Where the reference answer of a prompt stands.
struct ReferenceAnswer {
  std::string column = {};  ///< "": where the handler reads the answer
  std::string key = {};     ///< of an object in that column; "": the column itself
  bool is_named = false;    ///< it is "labels", whatever column is called so
};
/// keeps_messages: as FormatOptions'.
std::unique_ptr<RowHandler> make_prompts_handler(std::shared_ptr<const RowHandler> handler,
                                                 ReferenceAnswer answer,
                                                 bool keeps_messages = false);

/// label: a column of any values; "": texts are still to be sorted.
std::unique_ptr<RowHandler> make_labelled_handler(std::shared_ptr<const RowHandler> handler,
                                                  std::string label);

/// Where a row has its texts; "": nowhere. positive and negative hold a text, a message, a list of
/// messages, or a list of any of these.
struct GroupColumns {
  std::shared_ptr<const RowHandler> anchor;
  bool answer_is_positive = false;  ///< the anchor's last message, an answer, is the positive text
  bool leaves_answer_out = false;   ///< the last message is dropped where it is an answer
  std::string positive = {}, negative = {}, label = {};
};
/// tags: what messages of positive and negative texts call their parts.
std::unique_ptr<RowHandler> make_group_handler(GroupColumns columns, MessageTags tags);

}  // namespace danlu::data
