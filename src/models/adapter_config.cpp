#include "models/adapter_config.h"

#include <cmath>

#include "base/error.h"
#include "models/lora_targets.h"

namespace danlu::models {
namespace adapter_config_detail {

std::vector<std::string> names_of(const Json& json, const char* key) {
  const auto it = json.find(key);
  if (it == json.end() || it->is_null()) return {};
  if (it->is_string()) return {it->get<std::string>()};
  return it->get<std::vector<std::string>>();
}

bool is_off(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it == json.end() || it->is_null() || *it == false || it->empty() || *it == "none";
}

void refuse_unsupported(const Json& json, const std::string& file) {
  const std::string type = json.value("peft_type", "");
  if (type != "LORA") throw ModelError("[adapter] " + file + ": peft_type must be \"LORA\", got \"" + type + "\"");
  for (const char* key : {"bias", "fan_in_fan_out", "layer_replication", "lora_bias", "trainable_token_indices",
                          "target_parameters", "use_qalora", "layers_pattern"}) {
    if (!is_off(json, key)) {
      throw ModelError("[adapter] " + file + ": " + key + " = " + json[key].dump() + " cannot be applied; supported: off");
    }
  }
}

Json number(double value) {
  if (value == std::floor(value)) return static_cast<int64_t>(value);
  return value;
}

}  // namespace adapter_config_detail

LoraConfig read_adapter_config(const std::filesystem::path& file) {
  using namespace adapter_config_detail;
  const Json json = read_json_file(file);
  if (!json.is_object()) throw ModelError("[adapter] " + file.string() + " must hold a JSON object");
  refuse_unsupported(json, file.string());
  LoraConfig lora;
  try {
    lora.rank = json_get<int64_t>(json, "r").value_or(8);
    lora.alpha = json_get<double>(json, "lora_alpha").value_or(8);
    lora.dropout = json_get<double>(json, "lora_dropout").value_or(0);
    lora.rslora = json_get<bool>(json, "use_rslora").value_or(false);
    lora.dora = json_get<bool>(json, "use_dora").value_or(false);
    lora.targets = names_of(json, "target_modules");
    lora.exclude = names_of(json, "exclude_modules");
    lora.modules_to_save = names_of(json, "modules_to_save");
    lora.rank_pattern = json_get<std::map<std::string, int64_t>>(json, "rank_pattern").value_or(std::map<std::string, int64_t>{});
    lora.alpha_pattern = json_get<std::map<std::string, double>>(json, "alpha_pattern").value_or(std::map<std::string, double>{});
    if (const auto it = json.find("layers_to_transform"); it != json.end() && !it->is_null()) {
      lora.layers_to_transform = it->is_array() ? it->get<std::vector<int64_t>>() : std::vector<int64_t>{it->get<int64_t>()};
    }
  } catch (const nlohmann::json::exception& error) {
    throw ModelError("[adapter] " + file.string() + ": a key has a value of the wrong type: " + error.what());
  }
  if (lora.targets.empty()) throw ModelError("[adapter] " + file.string() + ": target_modules is missing or empty");
  return lora;
}

Json adapter_config_json(const LoraConfig& lora, const std::vector<std::string>& modules,
                         const std::string& base_model_path) {
  using adapter_config_detail::number;
  const bool all = lora.targets == std::vector<std::string>{"all-linear"};
  const bool is_regex = lora.targets.size() == 1 && lora.targets[0].find_first_of("*+?[](){}|^$\\") != std::string::npos;
  Json alphas = Json::object();
  for (const auto& [pattern, alpha] : lora.alpha_pattern) alphas[pattern] = number(alpha);
  Json json = Json::object();
  json["alpha_pattern"] = alphas;
  json["auto_mapping"] = nullptr;
  json["base_model_name_or_path"] = base_model_path;
  json["bias"] = "none";
  if (!lora.exclude.empty()) json["exclude_modules"] = lora.exclude;
  json["fan_in_fan_out"] = false;
  json["inference_mode"] = true;
  json["init_lora_weights"] = true;
  json["layer_replication"] = nullptr;
  json["layers_pattern"] = nullptr;
  json["layers_to_transform"] = lora.layers_to_transform.empty() ? Json(nullptr) : Json(lora.layers_to_transform);
  json["loftq_config"] = Json::object();
  json["lora_alpha"] = number(lora.alpha);
  json["lora_dropout"] = lora.dropout;
  json["megatron_config"] = nullptr;
  json["megatron_core"] = "megatron.core";
  json["modules_to_save"] = lora.modules_to_save.empty() ? Json(nullptr) : Json(lora.modules_to_save);
  json["peft_type"] = "LORA";
  json["r"] = lora.rank;
  json["rank_pattern"] = lora.rank_pattern;
  json["revision"] = nullptr;
  json["target_modules"] = is_regex ? Json(lora.targets[0]) : Json(all ? last_names(modules) : lora.targets);
  json["task_type"] = "CAUSAL_LM";
  json["use_dora"] = lora.dora;
  json["use_rslora"] = lora.rslora;
  return json;
}

}  // namespace danlu::models
