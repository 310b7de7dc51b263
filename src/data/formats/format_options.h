// data/formats/format_options.h: what a user may say about the meaning of a data set's columns.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/formats/self_names.h"
#include "data/sample_kind.h"

namespace danlu::data {

/// Everything empty: the format is detected from the first rows.
struct FormatOptions {
  /// MindSpeed's handler name ("AlpacaStyleInstructionHandler", …).
  std::string handler_name = {};
  /// MindSpeed's role -> column map, e.g. {"prompt":"instruction","tags":{"role_tag":"from"}}.
  Json map_keys = Json::object();
  /// The map names every column that is to be read, as dataset_info.json does: a role that it
  /// leaves out has none. Of another map that holds for system, history and tools alone.
  bool map_is_whole = false;
  /// Where that map stands, for errors. Not part of to_json().
  std::string map_keys_from = "map_keys";
  /// ms-swift's column -> standard name map, e.g. {"question":"query"}: columns are renamed first.
  Json columns = Json::object();
  /// Columns that hold pre-training texts; given: every row is plain text.
  std::vector<std::string> json_keys = {};
  /// Where the format is detected, a column `text` outweighs the columns of conversations, as in
  /// MindSpeed's preprocess_data.py. Not part of to_json(): the handler tells.
  bool text_first = false;
  /// Rows are questions: an answer may be missing (or empty), as where a model is to give it. Not
  /// part of to_json(): such rows are never cached.
  bool answers_optional = false;
  /// The model reads pictures and videos: conversations may hold them. Not part of to_json(): the
  /// settings for pictures are part of cache keys.
  bool reads_media = false;
  /// What the rows are to be; rows of another kind are refused. Empty: what their columns say they
  /// are.
  std::optional<SampleKind> kind = SampleKind::kTokens;
  /// dataset_info.json says that rows hold preference pairs. Not part of to_json(): the handler
  /// tells.
  bool ranking = false;
  /// Answers of earlier rounds are learnt too, of pairs and of rows that are liked or not; false:
  /// what follows the last question that they have in common.
  bool learns_all_rounds = false;
  /// What {{NAME}} and {{AUTHOR}} become in answers.
  SelfNames names = {};
  /// Columns of prompts get the conversation itself, as `messages` and `tools`.
  bool keeps_messages = false;

  bool operator==(const FormatOptions&) const = default;
  /// All of it as JSON: part of cache keys. `kind` is not: the kind of the handler's rows is.
  Json to_json() const {
    Json json{{"handler_name", handler_name},
              {"map_keys", map_keys},
              {"columns", columns},
              {"json_keys", json_keys}};
    if (map_is_whole) json["map_is_whole"] = true;
    if (learns_all_rounds) json["learns_all_rounds"] = true;
    if (keeps_messages) json["keeps_messages"] = true;
    if (!names.empty()) json["names"] = names.to_json();
    return json;
  }
};

}  // namespace danlu::data
