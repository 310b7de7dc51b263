// data/formats/handlers.h: the handlers that row_format.cpp chooses from.
#pragma once
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "data/formats/columns.h"
#include "data/formats/row_format.h"

namespace danlu::data {

/// Columns of single-turn rows; a role that rows cannot have is "".
struct PairColumns {
  std::string prompt, query, response, system, history, tools;
  std::set<std::string> unseen;   ///< of these, those that no row had so far
  bool answers_optional = false;  ///< as in FormatOptions
};
/// format: kAlpaca or kQueryResponse; the question is prompt + "\n" + query, empty parts left out.
std::unique_ptr<RowHandler> make_pair_handler(RowFormat format, PairColumns columns);

/// Names inside lists of messages. MindSpeed's tags and their defaults.
struct MessageTags {
  std::string messages = "conversations", system = "system", tools = "tools";
  std::string role = "from", content = "value";
  std::string user, assistant, observation, function, system_role;  ///< "": all usual names
  bool answers_optional = false;                                    ///< as in FormatOptions
  bool takes_lone_answers = false;  ///< behind a system message an answer may be all that there is
  bool reads_media = false;         ///< as in FormatOptions
  bool unseen = false;              ///< no row had the column of messages so far
};
/// format: kShareGpt or kMessages.
std::unique_ptr<RowHandler> make_messages_handler(RowFormat format, MessageTags tags);

std::unique_ptr<RowHandler> make_text_handler(std::vector<std::string> columns);

struct TokenColumns {
  std::string ids = "input_ids", labels = "labels", attention_mask = "attention_mask";
  bool answers_optional = false;  ///< as in FormatOptions: ids without labels are all prompt
};
std::unique_ptr<RowHandler> make_token_handler(TokenColumns columns);

}  // namespace danlu::data
