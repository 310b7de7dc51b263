#include "arch/encoder.h"

#include "arch/model_config.h"
#include "base/file.h"
#include "base/json.h"

namespace danlu::arch {

Pooling pooling_in(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / "1_Pooling" / "config.json";
  std::error_code unknown;
  if (directory.empty() || !std::filesystem::exists(file, unknown)) return Pooling::kFirst;
  const Json json = read_json_file(file);
  int64_t modes = 0;
  for (const auto& [key, value] : json.items())
    modes += key.starts_with("pooling_mode_") && value.is_boolean() && value.get<bool>() ? 1 : 0;
  const auto is_on = [&](const char* key) { return json_get<bool>(json, key).value_or(false); };
  if (modes == 1 && is_on("pooling_mode_cls_token")) return Pooling::kFirst;
  if (modes == 1 && is_on("pooling_mode_mean_tokens")) return Pooling::kMean;
  if (modes == 1 && is_on("pooling_mode_lasttoken")) return Pooling::kLast;
  throw ModelError(tr("{}: the vector of a text must be one of pooling_mode_cls_token, "
                      "pooling_mode_mean_tokens and pooling_mode_lasttoken",
                      file.string()),
                   tr("set one of them to true and the others to false"));
}

bool is_encoder_in(const std::filesystem::path& directory) {
  std::error_code unknown;
  if (directory.empty() || !std::filesystem::exists(directory / "config.json", unknown))
    return false;
  try {
    return load_model_config(directory, Heads::kAny).encoder.has_value();
  } catch (const Error&) {
    return false;  // who opens the model says what is wrong
  }
}

void require_answers(const ModelConfig& config) {
  if (!config.encoder) return;
  throw ModelError(tr("[model config] {}: an encoder gives vectors, labels and ranks, and no text",
                      config.family),
                   tr("--task_type embedding, seq_cls or reranker"));
}

}  // namespace danlu::arch
