// api/refusal.h: what a client is told when its request cannot be answered, in OpenAI's words.
#pragma once
#include <optional>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "base/json.h"

namespace danlu::api {

/// A request that is refused. Clients read English: what() is not translated.
class Refusal : public std::runtime_error {
 public:
  /// param: the field that is wrong ("messages[0].content"), "" for none. code: a word for programs
  /// ("context_length_exceeded"), "" for none.
  explicit Refusal(const std::string& message, std::string param = {}, int status = 400,
                   std::string code = {})
      : std::runtime_error(message),
        status_(status),
        param_(std::move(param)),
        code_(std::move(code)) {}
  int status() const { return status_; }
  const std::string& param() const { return param_; }
  const std::string& code() const { return code_; }

 private:
  int status_;
  std::string param_, code_;
};

/// {"error": {"message", "type", "param", "code"}}; the type follows from the status.
Json error_json(int status, const std::string& message, const std::string& param = {},
                const std::string& code = {});
Json error_json(const Refusal& refusal);

/// Whether an error is the client's, a 400, and not the server's, a 500: what it sent or named
/// cannot be used.
bool is_of_client(const Error& error);

}  // namespace danlu::api
