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

/// Errors name what a client sent, which may be as long as its body.
std::string cut(const std::string& text) {
  constexpr size_t kMost = 1000;
  if (text.size() <= kMost) return text;
  size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(cut(text));
}

}  // namespace

Json error_json(int status, const std::string& message, const std::string& param,
                const std::string& code) {
  return {{"error",
           {{"message", cut(message)},
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
