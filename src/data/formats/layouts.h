// data/formats/layouts.h: handlers for each layout, from what a user said and what the first rows
// hold.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "data/formats/first_rows.h"
#include "data/formats/handlers.h"

namespace danlu::data {

/// Errors of all: UsageError (a malformed map), DataError (a mapped column that no row has).
/// `response`: the column of the answers, whatever the map says; "" asks it.
std::unique_ptr<RowHandler> alpaca_layout(const FirstRows& first, const FormatOptions& options,
                                          const std::string& response = "");

/// `response`: the column of the answers, "" looks for it. Null if rows have no such columns,
/// unless they are `required`.
std::unique_ptr<RowHandler> query_response_layout(const FirstRows& first, bool required,
                                                  bool answers_optional,
                                                  const std::string& response = "");

/// The column of messages that rows have; "" if none.
std::string messages_column(const FirstRows& first);
/// What lists of messages call their parts. `column`: theirs if none is mapped; `sample`: one of
/// their messages, or an empty object.
MessageTags message_tags(const FirstRows& first, const FormatOptions& options,
                         const std::string& column, const Json& sample,
                         std::optional<RowFormat> wanted);
/// The first message of the lists in `column`; an empty object if there is none.
Json sample_message(const FirstRows& first, const std::string& column);
/// The layout whose names these are.
RowFormat format_of_tags(const MessageTags& tags);
std::unique_ptr<RowHandler> messages_layout(const FirstRows& first, const FormatOptions& options,
                                            std::optional<RowFormat> wanted);

std::unique_ptr<RowHandler> text_layout(const FirstRows& first, std::vector<std::string> keys);
std::unique_ptr<RowHandler> token_layout(const FirstRows& first, const FormatOptions& options);

}  // namespace danlu::data
