#include "data/formats/layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"

namespace danlu::data {

std::unique_ptr<RowHandler> alpaca_layout(const FirstRows& first, const FormatOptions& options,
                                          const std::string& response) {
  const Json& map_keys = options.map_keys;
  check_map_keys(map_keys,
                 {"prompt", "query", "response", "system", "history", "tools", "images", "videos"},
                 options.map_keys_from);
  PairColumns columns;
  const auto set = [&](std::string* column, const char* role, const char* standard, bool needed) {
    *column = mapped(map_keys, role, unmapped(options, role, first.names.actual(standard)));
    if (standard == std::string_view("output") && !response.empty()) *column = response;
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
  set(&columns.prompt, "prompt", "instruction", !map_keys.contains("query"));
  set(&columns.query, "query", "input", false);
  set(&columns.response, "response", "output", !options.answers_optional);
  columns.answers_optional = options.answers_optional;
  set(&columns.system, "system", "system", false);
  set(&columns.history, "history", "history", false);
  set(&columns.tools, "tools", "tools", false);
  return make_pair_handler(RowFormat::kAlpaca, columns);
}

std::unique_ptr<RowHandler> query_response_layout(const FirstRows& first, bool required,
                                                  bool answers_optional,
                                                  const std::string& response) {
  // A column named exactly as the role decides, so that --columns can choose between several.
  const auto choose = [&](const char* role, const std::vector<std::string>& names) {
    const std::string column = first.has(role) ? role : column_among(first, names, role);
    return column.empty() ? column : first.names.actual(column);
  };
  PairColumns columns;
  columns.query =
      choose("query", {"query", "prompt", "input", "instruction", "question", "problem"});
  columns.response = response;
  if (response.empty())
    columns.response =
        choose("response", {"response", "answer", "output", "targets", "target", "answer_key",
                            "answers", "solution", "text", "completion", "content"});
  columns.answers_optional = answers_optional;
  if (columns.query.empty() || (columns.response.empty() && !answers_optional)) {
    if (!required) return nullptr;
    throw DataError(tr("[handler_name] query_response: no {} column among: {}",
                       columns.query.empty() ? "query" : "response", first.listed()));
  }
  if (!first.rows.empty() && !first.has_actual(columns.response))
    columns.unseen.insert(columns.response);
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

Json sample_message(const FirstRows& first, const std::string& column) {
  for (const Json& row : first.rows) {
    const Json* value = row.is_object() ? find_value(row, column) : nullptr;
    const auto list = value ? parse_if_text(*value) : std::nullopt;
    if (list && list->is_object()) return *list;
    if (list && list->is_array() && !list->empty() && (*list)[0].is_object()) return (*list)[0];
  }
  return Json::object();
}

std::string messages_column(const FirstRows& first) {
  std::string column;
  for (const char* standard : {"messages", "conversation", "conversations"}) {
    if (first.has(standard)) column = first.names.actual(standard);
  }
  return column;
}

MessageTags message_tags(const FirstRows& first, const FormatOptions& options,
                         const std::string& column, const Json& sample,
                         std::optional<RowFormat> wanted) {
  const Json& map_keys = options.map_keys;
  const Json tags_json = map_keys.value("tags", Json::object());
  check_map_keys(tags_json,
                 {"role_tag", "content_tag", "user_tag", "assistant_tag", "observation_tag",
                  "function_tag", "system_tag"},
                 "map_keys.tags");
  MessageTags tags;
  tags.answers_optional = options.answers_optional;
  tags.reads_media = options.reads_media;
  tags.messages = mapped(map_keys, "messages", column);
  for (const auto& [role, name] : {std::pair{"system", &tags.system}, {"tools", &tags.tools}})
    *name = mapped(map_keys, role, unmapped(options, role, first.names.actual(role)));
  const bool says_role =
      sample.contains("role") || (sample.empty() && wanted == RowFormat::kMessages);
  tags.role = mapped(tags_json, "role_tag", says_role ? "role" : "from");
  tags.content = mapped(tags_json, "content_tag", sample.contains("content") ? "content" : "value");
  tags.user = mapped(tags_json, "user_tag", "");
  tags.assistant = mapped(tags_json, "assistant_tag", "");
  tags.observation = mapped(tags_json, "observation_tag", "");
  tags.function = mapped(tags_json, "function_tag", "");
  tags.system_role = mapped(tags_json, "system_tag", "");
  return tags;
}

RowFormat format_of_tags(const MessageTags& tags) {
  return tags.role == "role" ? RowFormat::kMessages : RowFormat::kShareGpt;
}

std::unique_ptr<RowHandler> messages_layout(const FirstRows& first, const FormatOptions& options,
                                            std::optional<RowFormat> wanted) {
  const Json& map_keys = options.map_keys;
  check_map_keys(map_keys, {"messages", "system", "tools", "tags", "images", "videos"},
                 options.map_keys_from);
  std::string column = messages_column(first);
  if (column.empty()) column = wanted == RowFormat::kMessages ? "messages" : "conversations";
  const std::string named = mapped(map_keys, "messages", column);
  MessageTags tags = message_tags(first, options, column, sample_message(first, named), wanted);
  if (!first.has_actual(tags.messages) && !first.rows.empty()) {
    throw DataError(tr("[map_keys] messages: no row has a column \"{}\"; there are: {}",
                       tags.messages, first.listed()));
  }
  const RowFormat detected = format_of_tags(tags);
  return make_messages_handler(detected, std::move(tags));
}

std::unique_ptr<RowHandler> text_layout(const FirstRows& first, std::vector<std::string> keys) {
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

std::unique_ptr<RowHandler> token_layout(const FirstRows& first, const FormatOptions& options) {
  TokenColumns columns;
  columns.ids = first.names.actual("input_ids");
  columns.labels = first.names.actual("labels");
  columns.attention_mask = first.names.actual("attention_mask");
  columns.answers_optional = options.answers_optional;
  return make_token_handler(std::move(columns));
}

}  // namespace danlu::data
