#include "api/refusal.h"

namespace danlu::api {
namespace {

const char* type_of_status(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "service_unavailable_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

Json error_json(int status, const std::string& message, const std::string& param,
                const std::string& code) {
  return {{"error",
           {{"message", message},
            {"type", type_of_status(status)},
            {"param", text_or_null(param)},
            {"code", text_or_null(code)}}}};
}

Json error_json(const Refusal& refusal) {
  return error_json(refusal.status(), refusal.what(), refusal.param(), refusal.code());
}

bool is_of_client(const Error& error) {
  return error.code() == ExitCode::kData || error.code() == ExitCode::kModel ||
         error.code() == ExitCode::kUsage;
}

}  // namespace danlu::api
