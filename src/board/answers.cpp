#include "board/answers.h"

namespace danlu::board {
namespace {

http::Response as_json(int status, const Json& json) {
  return {.status = status,
          .headers = {{"Content-Type", "application/json"},
                      {"Cache-Control", "no-store"},
                      {"X-Content-Type-Options", "nosniff"}},
          .body = dump_text(json)};
}

const char* error_type(int status) {
  if (status == 401) return "AuthenticationError";
  if (status == 404) return "NotFoundError";
  return status < 500 ? "BadRequestError" : "InternalServerError";
}

}  // namespace

http::Response json_answer(const Json& json) { return as_json(200, json); }

http::Response error_answer(int status, std::string_view message) {
  return as_json(status, {{"error",
                           {{"message", std::string(message)},
                            {"type", error_type(status)},
                            {"param", nullptr},
                            {"code", status}}}});
}

http::Response answer_or_error(const std::function<http::Response()>& make) {
  try {
    return make();
  } catch (const BadQuery& error) {
    return error_answer(400, error.what());
  }
}

}  // namespace danlu::board
