// board/answers.h: answers of the board's interface.
#pragma once
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/json.h"
#include "http/message.h"

namespace danlu::board {

/// What somebody asks is not well formed; what() is told to him.
struct BadQuery : std::runtime_error {
  using std::runtime_error::runtime_error;
};

http::Response json_answer(const Json& json);
/// {"error": {"message", "type", "param", "code"}}, as OpenAI's.
http::Response error_answer(int status, std::string_view message);
/// make(), or the 400 that a BadQuery of it is.
http::Response answer_or_error(const std::function<http::Response()>& make);

}  // namespace danlu::board
