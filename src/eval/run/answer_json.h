// eval/run/answer_json.h: answers as JSON, bit by bit: for journals, and between ranks.
#pragma once
#include <optional>

#include "base/json.h"
#include "eval/item.h"

namespace danlu::eval {

/// Numbers as hexadecimal texts; text that is no UTF-8 (a token may end within a character) as a
/// list of bytes.
Json answer_json(const Answer& answer);
/// Reads it from an object that may have other members too; nothing if that is not what answer_json
/// gave.
std::optional<Answer> read_answer(const Json& json);

}  // namespace danlu::eval
