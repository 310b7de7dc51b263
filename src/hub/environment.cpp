#include "hub/environment.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"

namespace danlu::hub {
namespace {

/// Reads a switch as Python's tools do.
bool is_on(const char* name) {
  std::string value = environment_variable(name);
  std::transform(value.begin(), value.end(), value.begin(), ::toupper);
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

fs::path home() {
  return environment_variable("HOME").empty() ? fs::path(".")
                                              : fs::path(environment_variable("HOME"));
}

fs::path huggingface_home() {
  if (!environment_variable("HF_HOME").empty()) return environment_variable("HF_HOME");
  if (!environment_variable("XDG_CACHE_HOME").empty())
    return fs::path(environment_variable("XDG_CACHE_HOME")) / "huggingface";
  return home() / ".cache" / "huggingface";
}

std::string trimmed(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string::npos ? std::string() : text.substr(begin);
}

std::string content_or_nothing(const fs::path& file) {
  std::error_code error;
  return fs::is_regular_file(file, error) ? trimmed(read_file(file)) : std::string();
}

}  // namespace

std::string endpoint_of(Hub hub) {
  std::string endpoint;
  const char* name = hub == Hub::kHuggingFace ? "HF_ENDPOINT" : "MODELSCOPE_ENDPOINT";
  endpoint = trimmed(environment_variable(name));
  if (endpoint.empty() && hub == Hub::kModelScope) {
    endpoint = trimmed(environment_variable("MODELSCOPE_DOMAIN"));
    if (!endpoint.empty() && endpoint.find("://") == std::string::npos)
      endpoint = "https://" + endpoint;
  }
  if (endpoint.empty())
    return hub == Hub::kHuggingFace ? "https://huggingface.co" : "https://www.modelscope.cn";
  while (endpoint.ends_with('/')) endpoint.pop_back();
  if (!endpoint.starts_with("https://") && !endpoint.starts_with("http://"))
    throw UsageError(tr("[download] {}={}: not an address", name, endpoint),
                     tr("it begins with https://, as in {}=https://HOST", name));
  return endpoint;
}

std::string token_of(Hub hub) {
  const auto first = [](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (!trimmed(environment_variable(name)).empty()) return trimmed(environment_variable(name));
    }
    return std::string();
  };
  if (hub == Hub::kModelScope) {
    const std::string token = first({"MODELSCOPE_API_TOKEN"});
    if (!token.empty()) return token;
    const std::string config = environment_variable("MODELSCOPE_HOME");
    return content_or_nothing((config.empty() ? home() / ".modelscope" : fs::path(config)) /
                              "token");
  }
  const std::string token = first({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"});
  if (!token.empty()) return token;
  const std::string path = environment_variable("HF_TOKEN_PATH");
  return content_or_nothing(path.empty() ? huggingface_home() / "token" : fs::path(path));
}

fs::path cache_of(Hub hub) {
  if (hub == Hub::kModelScope) {
    const std::string cache = environment_variable("MODELSCOPE_CACHE");
    return cache.empty() ? home() / ".cache" / "modelscope" : fs::path(cache);
  }
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (!environment_variable(name).empty()) return environment_variable(name);
  }
  return huggingface_home() / "hub";
}

std::string offline_variable() {
  for (const char* name : {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}) {
    if (is_on(name)) return name;
  }
  return {};
}

std::optional<Hub> hub_by_environment() {
  if (is_on("USE_HF")) return Hub::kHuggingFace;
  if (is_on("USE_MODELSCOPE_HUB")) return Hub::kModelScope;
  const bool has_hf = !environment_variable("HF_ENDPOINT").empty();
  const bool has_ms = !environment_variable("MODELSCOPE_ENDPOINT").empty() ||
                      !environment_variable("MODELSCOPE_DOMAIN").empty();
  if (has_hf == has_ms) return std::nullopt;
  return has_hf ? Hub::kHuggingFace : Hub::kModelScope;
}

}  // namespace danlu::hub
