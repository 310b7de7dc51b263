#include "data/formats/row_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "base/lower_case.h"
#include "base/nearest_name.h"
#include "base/not_here.h"
#include "data/formats/handlers.h"
#include "data/formats/media.h"
#include "data/formats/unread_columns.h"

namespace danlu::data {
namespace {

/// MindSpeed's names, and a short one each. LlamaFactoryInstructionHandler leaves the choice to
/// dataset_info.json, which was looked at before.
const std::map<std::string, std::optional<RowFormat>>& available_handlers() {
  static const std::map<std::string, std::optional<RowFormat>> kHandlers{
      {"GeneralPretrainHandler", RowFormat::kText},
      {"AlpacaStyleInstructionHandler", RowFormat::kAlpaca},
      {"SharegptStyleInstructionHandler", RowFormat::kShareGpt},
      {"OpenAIInstructionHandler", RowFormat::kMessages},
      {"LlamaFactoryInstructionHandler", std::nullopt},
      {"text", RowFormat::kText},
      {"alpaca", RowFormat::kAlpaca},
      {"sharegpt", RowFormat::kShareGpt},
      {"messages", RowFormat::kMessages},
      {"query_response", RowFormat::kQueryResponse},
      {"tokens", RowFormat::kTokens}};
  return kHandlers;
}

/// Handlers that exist elsewhere and why they are not here.
const std::map<std::string, std::string>& unavailable_handlers() {
  static const std::string kPreference = "belongs to preference training, which is not available";
  static const std::string kOneDataset = "reads one particular data set in a wording of its own; ";
  static const std::map<std::string, std::string> kHandlers{
      {"AlpacaStylePairwiseHandler", kPreference},
      {"SharegptStylePairwiseHandler", kPreference},
      {"PPOAlpacaStyleInstructionHandler", kNoReinforcement},
      {"R1AlpacaStyleInstructionHandler", kNoReinforcement},
      {"R1SharegptStyleInstructionHandler", kNoReinforcement},
      {"AlpacaStyleProcessRewardHandler", kPreference},
      {"AlpacaPretrainHandler",
       tr("{}use GeneralPretrainHandler with --json-keys, or AlpacaStyleInstructionHandler",
          kOneDataset)},
      {"StackOverflowPythonPretrainHandler",
       tr("{}use GeneralPretrainHandler with --json-keys", kOneDataset)},
      {"GeneralInstructionHandler",
       tr("{}use AlpacaStyleInstructionHandler with --prompt-type alpaca", kOneDataset)},
      {"HunyuanInstructionHandler",
       "is AlpacaStyleInstructionHandler with the tokenizer's own template; use that one without "
       "--prompt-type"},
      {"BelleMultiTurnInstructionHandler",
       tr("{}use SharegptStyleInstructionHandler", kOneDataset)},
      {"MOSSMultiTurnHandler", tr("{}use SharegptStyleInstructionHandler", kOneDataset)},
      {"MOSSInstructionHandler", tr("{}use SharegptStyleInstructionHandler", kOneDataset)},
      {"LeetcodePythonInstructionHandler", tr("{}use AlpacaStyleInstructionHandler", kOneDataset)}};
  return kHandlers;
}

std::optional<RowFormat> format_by_name(const std::string& name) {
  if (name.empty()) return std::nullopt;
  std::vector<std::string> names;
  for (const auto& [known, format] : available_handlers()) {
    if (lower_case(known) == lower_case(name)) return format;
    names.push_back(known);
  }
  for (const auto& [known, reason] : unavailable_handlers()) {
    if (lower_case(known) == lower_case(name)) {
      const bool reinforcement = reason == kNoReinforcement;
      throw UsageError(tr("[handler_name] {}{} {}", known, reinforcement ? ":" : "", reason),
                       reinforcement ? kSftInsteadHint : std::string{});
    }
  }
  std::string hint = tr("known: {}", fmt::join(names, ", "));
  if (const auto near = nearest_name(name, names)) {
    hint = tr("did you mean {}?", *near);
  }
  throw UsageError(tr("[handler_name] unknown handler \"{}\"", name), hint);
}

/// What detection looks at: the columns that occur in the first rows.
struct FirstRows {
  /// --columns speaks for all data sets at once: here counts what this one has.
  static Json present(const std::vector<Json>& rows, const Json& renames) {
    Json kept = renames;
    if (rows.empty()) return kept;
    for (const std::string& column : ColumnNames(renames).absent_from(rows)) kept.erase(column);
    return kept;
  }

  const std::vector<Json>& rows;
  ColumnNames names;
  std::set<std::string> columns;

  FirstRows(const std::vector<Json>& rows, const Json& renames)
      : rows(rows), names(present(rows, renames)) {
    for (const Json& row : rows) columns.merge(names.standard_names(row));
    take_other_cases();
  }
  bool has(const std::string& column) const { return columns.contains(column); }
  /// "Instruction" where no row has "instruction".
  void take_other_cases() {
    for (const RowFormat format : {RowFormat::kAlpaca, RowFormat::kMessages}) {
      for (const std::string& standard : standard_columns(format)) {
        const auto same = [&](const std::string& name) { return lower_case(name) == standard; };
        if (has(standard) || std::count_if(columns.begin(), columns.end(), same) != 1) continue;
        const auto found = std::find_if(columns.begin(), columns.end(), same);
        names.rename(*found, standard);
        columns.erase(found);
        columns.insert(standard);
      }
    }
  }
  std::string listed() const {
    constexpr size_t kShown = 40;
    if (columns.size() <= kShown) return fmt::format("{}", fmt::join(columns, ", "));
    return fmt::format("{} and {} more",
                       fmt::join(columns.begin(), std::next(columns.begin(), kShown), ", "),
                       columns.size() - kShown);
  }
};

std::string mapped(const Json& map_keys, const std::string& role, const std::string& fallback) {
  const auto found = map_keys.find(role);
  if (found == map_keys.end()) return fallback;
  if (found->is_null()) return "";
  if (!found->is_string()) {
    throw UsageError(tr("[map_keys] \"{}\" must name a column, got {}", role, kind_of(*found)));
  }
  return found->get<std::string>();
}

void check_map_keys(const Json& map_keys, const std::vector<std::string>& roles,
                    const std::string& what) {
  if (!map_keys.is_object()) {
    throw UsageError(tr("[{}] must be an object, got {}", what, kind_of(map_keys)));
  }
  for (const auto& [role, column] : map_keys.items()) {
    if (role == "chosen" || role == "rejected" || role == "kto_tag") {
      throw UsageError(
          tr("[{}] \"{}\" belongs to preference training, which is not available", what, role));
    }
    if (role == "audios") throw UsageError(tr("[{}] \"{}\": sound is not read", what, role));
    if (std::find(roles.begin(), roles.end(), role) != roles.end()) continue;
    std::string hint = tr("known: {}", fmt::join(roles, ", "));
    if (const auto near = nearest_name(role, roles)) {
      hint = tr("did you mean \"{}\"?", *near);
    }
    throw UsageError(tr("[{}] unknown role \"{}\"", what, role), hint);
  }
}

std::unique_ptr<RowHandler> alpaca_handler(const FirstRows& first, const FormatOptions& options) {
  const Json& map_keys = options.map_keys;
  check_map_keys(map_keys,
                 {"prompt", "query", "response", "system", "history", "tools", "images", "videos"},
                 options.map_keys_from);
  PairColumns columns;
  const auto set = [&](std::string* column, const char* role, const char* standard, bool needed) {
    *column = mapped(map_keys, role, first.names.actual(standard));
    const bool is_there = std::any_of(first.rows.begin(), first.rows.end(), [&](const Json& row) {
      return row.is_object() && row.contains(*column);
    });
    if (is_there || first.rows.empty() || (column->empty() && !needed)) return;
    const bool may_lack = options.answers_optional && standard == std::string_view("output");
    if (needed || (map_keys.contains(role) && !may_lack)) {
      throw DataError(tr("[map_keys] {}: no row has a column \"{}\"; there are: {}", role, *column,
                         first.listed()),
                      tr("name the columns with --map-keys "
                         "'{{\"prompt\":\"…\",\"query\":\"…\",\"response\":\"…\"}}'"));
    }
    columns.unseen.insert(*column);
  };
  set(&columns.prompt, "prompt", "instruction", true);
  set(&columns.query, "query", "input", false);
  set(&columns.response, "response", "output", !options.answers_optional);
  columns.answers_optional = options.answers_optional;
  set(&columns.system, "system", "system", false);
  set(&columns.history, "history", "history", false);
  set(&columns.tools, "tools", "tools", false);
  return make_pair_handler(RowFormat::kAlpaca, columns);
}

/// The single column of `columns` (any case) that is among `names`; "" if none.
std::string column_among(const FirstRows& first, const std::vector<std::string>& names,
                         const char* role) {
  std::vector<std::string> found;
  for (const std::string& column : first.columns) {
    if (std::find(names.begin(), names.end(), lower_case(column)) != names.end()) {
      found.push_back(column);
    }
  }
  if (found.size() > 1) {
    throw DataError(tr("[columns] {} could all be the {}", fmt::join(found, ", "), role),
                    tr("choose with --columns '{{\"{}\":\"{}\"}}'", found[0], role));
  }
  return found.empty() ? "" : found[0];
}

std::unique_ptr<RowHandler> query_response_handler(const FirstRows& first, bool required,
                                                   bool answers_optional) {
  // A column named exactly as the role decides, so that --columns can choose between several.
  const auto choose = [&](const char* role, const std::vector<std::string>& names) {
    const std::string column = first.has(role) ? role : column_among(first, names, role);
    return column.empty() ? column : first.names.actual(column);
  };
  PairColumns columns;
  columns.query =
      choose("query", {"query", "prompt", "input", "instruction", "question", "problem"});
  columns.response =
      choose("response", {"response", "answer", "output", "targets", "target", "answer_key",
                          "answers", "solution", "text", "completion", "content"});
  columns.answers_optional = answers_optional;
  if (columns.query.empty() || (columns.response.empty() && !answers_optional)) {
    if (!required) return nullptr;
    throw DataError(tr("[handler_name] query_response: no {} column among: {}",
                       columns.query.empty() ? "query" : "response", first.listed()));
  }
  columns.system = choose("system", {"system", "system_prompt"});
  if (columns.system.empty()) columns.unseen.insert(columns.system = "system");
  const auto take = [&](std::string* column, const char* standard) {
    *column = first.names.actual(standard);
    if (!first.has(standard)) columns.unseen.insert(*column);
  };
  take(&columns.history, "history");
  take(&columns.tools, "tools");
  return make_pair_handler(RowFormat::kQueryResponse, columns);
}

/// The first message object found in `column`, to see what its keys are called.
Json sample_message(const FirstRows& first, const std::string& column) {
  for (const Json& row : first.rows) {
    const Json* value = row.is_object() ? find_value(row, column) : nullptr;
    const auto list = value ? parse_if_text(*value) : std::nullopt;
    if (list && list->is_array() && !list->empty() && (*list)[0].is_object()) return (*list)[0];
  }
  return Json::object();
}

std::unique_ptr<RowHandler> messages_handler(const FirstRows& first, const FormatOptions& options,
                                             std::optional<RowFormat> wanted) {
  const Json& map_keys = options.map_keys;
  check_map_keys(map_keys, {"messages", "system", "tools", "tags", "images", "videos"},
                 options.map_keys_from);
  const Json tags_json = map_keys.value("tags", Json::object());
  check_map_keys(tags_json,
                 {"role_tag", "content_tag", "user_tag", "assistant_tag", "observation_tag",
                  "function_tag", "system_tag"},
                 "map_keys.tags");
  std::string column;
  for (const char* standard : {"messages", "conversation", "conversations"}) {
    if (first.has(standard)) column = first.names.actual(standard);
  }
  if (column.empty()) column = wanted == RowFormat::kMessages ? "messages" : "conversations";
  MessageTags tags;
  tags.answers_optional = options.answers_optional;
  tags.reads_media = options.reads_media;
  tags.messages = mapped(map_keys, "messages", column);
  tags.system = mapped(map_keys, "system", first.names.actual("system"));
  tags.tools = mapped(map_keys, "tools", first.names.actual("tools"));
  const Json message = sample_message(first, tags.messages);
  tags.role = mapped(tags_json, "role_tag",
                     message.contains("role") || (message.empty() && wanted == RowFormat::kMessages)
                         ? "role"
                         : "from");
  tags.content =
      mapped(tags_json, "content_tag", message.contains("content") ? "content" : "value");
  tags.user = mapped(tags_json, "user_tag", "");
  tags.assistant = mapped(tags_json, "assistant_tag", "");
  tags.observation = mapped(tags_json, "observation_tag", "");
  tags.function = mapped(tags_json, "function_tag", "");
  tags.system_role = mapped(tags_json, "system_tag", "");
  const RowFormat detected = tags.role == "role" ? RowFormat::kMessages : RowFormat::kShareGpt;
  const bool is_there = std::any_of(first.rows.begin(), first.rows.end(), [&](const Json& row) {
    return row.is_object() && row.contains(tags.messages);
  });
  if (!is_there && !first.rows.empty()) {
    throw DataError(tr("[map_keys] messages: no row has a column \"{}\"; there are: {}",
                       tags.messages, first.listed()));
  }
  return make_messages_handler(detected, tags);
}

std::unique_ptr<RowHandler> text_handler(const FirstRows& first, std::vector<std::string> keys) {
  if (keys.empty()) keys = {"text"};
  for (std::string& key : keys) {
    key = first.names.actual(key);
    const bool is_there = std::any_of(first.rows.begin(), first.rows.end(), [&](const Json& row) {
      return row.is_string() || (row.is_object() && row.contains(key));
    });
    if (!is_there && !first.rows.empty()) {
      throw DataError(
          tr("[json_keys] no row has a column \"{}\"; there are: {}", key, first.listed()),
          tr("name the text column with --json-keys"));
    }
  }
  return make_text_handler(std::move(keys));
}

void refuse_preference_pairs(const FirstRows& first) {
  for (const char* column : {"rejected", "rejected_response", "rejected_messages"}) {
    if (!first.has(column)) continue;
    throw UsageError(
        tr("[dataset] column \"{}\": preference pairs belong to preference training, which "
           "is not available",
           column),
        tr("to train on one side only, map it: --map-keys or --columns"));
  }
}

std::unique_ptr<RowHandler> token_handler(const FirstRows& first, const FormatOptions& options) {
  TokenColumns columns;
  columns.ids = first.names.actual("input_ids");
  columns.labels = first.names.actual("labels");
  columns.attention_mask = first.names.actual("attention_mask");
  columns.answers_optional = options.answers_optional;
  return make_token_handler(std::move(columns));
}

/// MindSpeed's preprocess_data.py reads `text` where no handler is named, whatever else is there.
/// False: rows have no such column. Says so where another handler would fit too.
bool takes_text(const FirstRows& first) {
  if (!first.has("text")) return false;
  const char* other = nullptr;
  if (first.has("messages")) {
    other = "OpenAIInstructionHandler";
  } else if (first.has("conversation") || first.has("conversations")) {
    other = "SharegptStyleInstructionHandler";
  } else if (first.has("instruction") && (first.has("input") || first.has("output"))) {
    other = "AlpacaStyleInstructionHandler";
  }
  if (other) {
    log::notice(
        "rows have {}: column \"text\" is taken, as MindSpeed does without a handler; "
        "--handler-name {} takes the others",
        first.listed(), other);
  }
  return true;
}

std::unique_ptr<RowHandler> detect(const FirstRows& first, const FormatOptions& options) {
  refuse_preference_pairs(first);
  if (first.has("input_ids")) return token_handler(first, options);
  if (options.text_first && takes_text(first))
    return make_text_handler({first.names.actual("text")});
  if (first.has("messages") || first.has("conversation") || first.has("conversations")) {
    return messages_handler(first, options, std::nullopt);
  }
  if (first.has("instruction") && first.has("input")) return alpaca_handler(first, options);
  if (auto handler = query_response_handler(first, false, options.answers_optional)) return handler;
  for (const char* column : {"text", "response", "content"}) {
    if (first.has(column)) return make_text_handler({first.names.actual(column)});
  }
  if (!first.rows.empty() && first.rows[0].is_string()) return make_text_handler({"text"});
  if (first.columns.empty() && !first.rows.empty()) {
    throw DataError(
        tr("[dataset] rows have no columns: the first is {}",
           first.rows[0].empty() && !first.rows[0].is_null() ? "empty" : kind_of(first.rows[0])),
        tr("a row is an object such as {{\"instruction\": \"…\", \"output\": \"…\"}}"));
  }
  throw DataError(tr("[dataset] no known layout has these columns: {}", first.listed()),
                  tr("say what they mean: --handler-name with --map-keys, --columns, or "
                     "--json-keys for plain text"));
}

/// {} or {"instruction": null, "output": null}.
bool has_no_value(const Json& row) {
  return row.is_object() &&
         std::all_of(row.begin(), row.end(), [](const Json& value) { return value.is_null(); });
}

std::unique_ptr<RowHandler> choose_handler(const FormatOptions& options,
                                           const std::vector<Json>& first_rows, bool plain_text) {
  std::optional<RowFormat> wanted = format_by_name(options.handler_name);
  if (!wanted && !options.json_keys.empty()) wanted = RowFormat::kText;
  if (plain_text) {
    if (!wanted || wanted == RowFormat::kText) {
      return make_text_handler({options.json_keys.size() == 1 ? options.json_keys[0] : "text"});
    }
    throw UsageError(tr("[handler_name] {}: .txt files hold plain text", options.handler_name));
  }
  const FirstRows first(first_rows, options.columns);
  if (!wanted && options.map_keys.contains("messages")) wanted = RowFormat::kShareGpt;
  if (!wanted && !options.map_keys.empty()) wanted = RowFormat::kAlpaca;
  if (!wanted) return detect(first, options);
  switch (*wanted) {
    case RowFormat::kText:
      return text_handler(first, options.json_keys);
    case RowFormat::kAlpaca:
      return alpaca_handler(first, options);
    case RowFormat::kQueryResponse:
      return query_response_handler(first, true, options.answers_optional);
    case RowFormat::kShareGpt:
    case RowFormat::kMessages:
      return messages_handler(first, options, wanted);
    case RowFormat::kTokens:
      return token_handler(first, options);
  }
  throw InternalError("a row format without a handler");
}

}  // namespace

RowResult RowHandler::read(const Json& row) const {
  if (has_no_value(row)) return RowProblem{"no column has a value", row.empty() ? "{}" : ""};
  if (const auto what = media_in(row, text_is_named_, media_columns_ ? &*media_columns_ : nullptr))
    media_columns_ ? refuse_unread_media(*what) : refuse_media(*what);
  refuse_late_columns(row);
  RowResult result = read_row(row);
  RowProblem problem;
  if (Row* read = std::get_if<Row>(&result); read && !add_media(row, read, &problem))
    return problem;
  return result;
}

/// False: *problem is set.
bool RowHandler::add_media(const Json& row, Row* read, RowProblem* problem) const {
  if (!media_columns_ || !row.is_object()) return true;
  if (auto* conversation = std::get_if<text::Conversation>(read))
    return attach_media(row, *media_columns_, lone_media_first_, conversation, problem);
  const auto what = media_in(row, text_is_named_);
  if (what) *problem = {"pictures or videos beside text that is no conversation", *what};
  return !what;
}

void RowHandler::refuse_late_columns(const Json& row) const {
  if (!row.is_object()) return;
  for (const auto& [column, value] : row.items()) {
    if (value.is_null() || !late_columns_.contains(column)) continue;
    throw DataError(
        tr("column \"{}\" is not part of {}, the layout of the first rows, which lack it", column,
           description()),
        tr("give all rows the same columns, in a file of their own, or name the layout: "
           "--handler-name"));
  }
}

RowResult RowHandler::read_text(const std::string&) const {
  return RowProblem{"row is plain text", fmt::format("expected {}", description())};
}

void DetectionRows::add(Json row, size_t size_bytes) {
  if (has_no_value(row)) return;
  rows_.push_back(std::move(row));
  bytes_ += size_bytes;
}

std::unique_ptr<RowHandler> make_row_handler(const FormatOptions& options,
                                             const std::vector<Json>& first_rows, bool plain_text) {
  auto handler = choose_handler(options, first_rows, plain_text);
  handler->text_is_named_ = !options.json_keys.empty();
  handler->columns_ = handler->columns_read();
  if (options.reads_media) {
    handler->media_columns_ =
        media_columns(options, ColumnNames(FirstRows::present(first_rows, options.columns)));
    // Of ms-swift's own layout; its messages look like everybody's.
    handler->lone_media_first_ = handler->format() == RowFormat::kQueryResponse;
    for (const auto* columns : {&handler->media_columns_->images, &handler->media_columns_->videos})
      handler->columns_.insert(handler->columns_.end(), columns->begin(), columns->end());
  }
  const bool is_named =
      !options.handler_name.empty() || !options.map_keys.empty() || !options.json_keys.empty();
  if (is_named || plain_text) return handler;
  const std::vector<std::string>& standard = standard_columns(handler->format());
  handler->late_columns_ = {standard.begin(), standard.end()};
  for (const std::string& column : handler->columns_) handler->late_columns_.erase(column);
  for (const Json& row : first_rows) {
    if (!row.is_object()) continue;
    for (const auto& [column, value] : row.items()) handler->late_columns_.erase(column);
  }
  return handler;
}

}  // namespace danlu::data
