#include "weights/lora/peft.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/finite.h"
#include "base/lfs_pointer.h"
#include "base/log.h"
#include "base/lower_case.h"
#include "base/pattern.h"
#include "weights/hf/tower_file.h"
#include "weights/hf/tower_names.h"
#include "weights/megatron/place.h"

namespace danlu::weights {
namespace {

/// Typed access to adapter_config.json; null counts as missing, as PEFT writes it.
class AdapterReader {
 public:
  AdapterReader(const Json& json, const std::string& origin) : json_(json), origin_(origin) {}

  [[noreturn]] void fail(std::string_view key, std::string_view rule, const Json& got) const {
    throw ModelError(tr("{}: {} must be {}, got {}", origin_, key, rule,
                        got.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60)));
  }
  const Json* value(const char* key) const {
    const auto at = json_.find(key);
    return at == json_.end() || at->is_null() ? nullptr : &*at;
  }
  double number(const char* key, double fallback) const {
    const Json* got = value(key);
    if (!got) return fallback;
    if (!got->is_number()) fail(key, "a number", *got);
    return got->get<double>();
  }
  bool boolean(const char* key) const {
    const Json* got = value(key);
    if (!got) return false;
    if (!got->is_boolean()) fail(key, "true or false", *got);
    return got->get<bool>();
  }
  std::string text(const char* key, const char* fallback) const {
    const Json* got = value(key);
    if (!got) return fallback;
    if (!got->is_string()) fail(key, "a string", *got);
    return got->get<std::string>();
  }
  /// A list of strings, or one string; `is_string` tells which.
  std::vector<std::string> texts(const char* key, bool* is_string = nullptr) const {
    const Json* got = value(key);
    if (is_string) *is_string = got && got->is_string();
    if (!got) return {};
    if (got->is_string()) return {got->get<std::string>()};
    if (!got->is_array()) fail(key, "a string or a list of strings", *got);
    std::vector<std::string> all;
    for (const Json& item : *got) {
      if (!item.is_string()) fail(key, "a string or a list of strings", *got);
      all.push_back(item.get<std::string>());
    }
    return all;
  }
  std::vector<int64_t> integers(const char* key) const {
    const Json* got = value(key);
    if (!got) return {};
    const Json list = got->is_array() ? *got : Json::array({*got});
    std::vector<int64_t> all;
    for (const Json& item : list) {
      if (!item.is_number_integer()) fail(key, "a whole number or a list of them", *got);
      all.push_back(item.get<int64_t>());
    }
    return all;
  }
  std::vector<std::pair<std::string, double>> pattern(const char* key) const {
    const Json* got = value(key);
    if (!got) return {};
    if (!got->is_object()) fail(key, "an object", *got);
    std::vector<std::pair<std::string, double>> all;
    for (const auto& [name, item] : got->items()) {
      if (!item.is_number()) fail(key, "an object of numbers", *got);
      all.emplace_back(name, item.get<double>());
    }
    return all;
  }

 private:
  const Json& json_;
  const std::string& origin_;
};

/// JSON written elsewhere may hold 8.0; 8.5 and numbers that no matrix has are refused.
int64_t whole_rank(const std::string& key, double rank, const std::string& origin) {
  if (rank >= 1 && rank < 1e6 && rank == std::floor(rank)) return static_cast<int64_t>(rank);
  throw ModelError(tr("{}: {} must be a whole number from 1, got {}", origin, key, rank));
}

/// Adapters are computed in f32: beyond its range the scale, alpha / r, could be infinite.
void require_alpha(const std::string& key, double alpha, const std::string& origin) {
  if (std::abs(alpha) <= largest_finite(DType::kF32)) return;
  throw ModelError(tr("{}: {} must be a number that fp32 can hold, got {:g}", origin, key, alpha),
                   tr("the file is damaged: PEFT's lora_alpha is about as large as r"));
}

/// Refuses what would silently give other numbers than PEFT.
void refuse_other_arithmetic(const AdapterReader& reader) {
  for (const char* key :
       {"use_qalora", "lora_bias", "use_bdlora", "alora_invocation_tokens", "layer_replication",
        "trainable_token_indices", "target_parameters", "arrow_config"}) {
    const Json* got = reader.value(key);
    const bool set = got && !(got->is_boolean() && !got->get<bool>()) && !got->empty();
    if (set) reader.fail(key, "unset: this variant of LoRA is not supported", *got);
  }
  // Such files are for a base that has lost a part, unless they were converted.
  const Json* const start = reader.value("init_lora_weights");
  if (!start || !start->is_string()) return;
  const auto name = start->get<std::string>();
  for (const char* taking : {"pissa", "olora", "corda", "loftq", "lora_ga", "lora-ga"}) {
    if (name.starts_with(taking))
      reader.fail(
          "init_lora_weights",
          "true: adapters that took a part from their base are read when PEFT has converted "
          "them (path_initial_model_for_weight_conversion)",
          *start);
  }
}

bool listed(const std::vector<std::string>& entries, bool is_pattern, const std::string& module) {
  if (is_pattern) {
    const std::string& pattern = entries.front();
    return Pattern(pattern).matches(speaks_of_newer_names(pattern) ? newer_name(module) : module);
  }
  return std::any_of(entries.begin(), entries.end(),
                     [&](const std::string& entry) { return is_named(module, entry); });
}

/// The layer index of a module name: the number after `patterns` ("layers"), else after any
/// component.
std::optional<int64_t> layer_of(const std::string& module,
                                const std::vector<std::string>& patterns) {
  static const std::vector<std::string> kAny = {"[^.]*"};
  for (const std::string& pattern : patterns.empty() ? kAny : patterns) {
    const Pattern numbered(".*\\." + pattern + "\\.(\\d+)\\..*");
    if (const auto number = numbered.last_group(module)) return std::stoll(number->substr(0, 18));
  }
  return std::nullopt;
}

template <typename Number>
Number pattern_value(const std::vector<std::pair<std::string, Number>>& patterns,
                     const std::string& module, Number fallback) {
  for (const auto& [pattern, value] : patterns) {
    if (Pattern("(.*\\.)?(" + pattern + ")").matches(module)) return value;
  }
  return fallback;
}

}  // namespace

int64_t PeftConfig::rank_of(const std::string& module) const {
  return pattern_value(rank_pattern, module, rank);
}

double PeftConfig::scale_of(const std::string& module) const {
  const double module_alpha = pattern_value(alpha_pattern, module, alpha);
  const auto r = static_cast<double>(rank_of(module));
  return module_alpha / (rslora ? std::sqrt(r) : r);
}

AdapterStart AdapterStart::named(const std::string& given) {
  const std::string name = lower_case(given);
  if (name == "true") return {};
  if (name == "gaussian") return {Kind::kGaussian};
  if (name == "pissa") return {Kind::kPissa};
  if (name == "olora") return {Kind::kOlora};
  const std::string prefix = "pissa_niter_";
  if (name.starts_with(prefix)) {
    const std::string digits = name.substr(prefix.size());
    const bool is_number = !digits.empty() && digits.size() < 4 &&
                           digits.find_first_not_of("0123456789") == std::string::npos;
    if (is_number && std::stoll(digits) > 0) return {Kind::kPissa, std::stoll(digits)};
  }
  throw UsageError(tr("[lora] adapters cannot begin as '{}'", given),
                   tr("true, gaussian, pissa, pissa_niter_16 or olora"));
}

std::string AdapterStart::name() const {
  switch (kind) {
    case Kind::kUniform:
      return "true";
    case Kind::kGaussian:
      return "gaussian";
    case Kind::kPissa:
      return iterations > 0 ? fmt::format("pissa_niter_{}", iterations) : "pissa";
    case Kind::kOlora:
      break;
  }
  return "olora";
}

PeftConfig with_fixed_half(const PeftConfig& config) {
  PeftConfig twice = config;
  const double more = config.rslora ? std::sqrt(2.0) : 2.0;
  twice.rank *= 2;
  twice.alpha *= more;
  for (auto& [pattern, rank] : twice.rank_pattern) rank *= 2;
  for (auto& [pattern, alpha] : twice.alpha_pattern) alpha *= more;
  return twice;
}

PeftConfig parse_peft_config(const Json& json, const std::string& origin) {
  if (!json.is_object()) throw ModelError(tr("{}: must be a JSON object", origin));
  const AdapterReader reader(json, origin);
  const std::string type = reader.text("peft_type", "");
  if (type != "LORA") {
    throw ModelError(tr("{}: peft_type must be LORA, got \"{}\"", origin, type));
  }
  refuse_other_arithmetic(reader);
  PeftConfig config;
  config.raw = json;
  config.rank = whole_rank("r", reader.number("r", 8), origin);
  config.alpha = reader.number("lora_alpha", 8);
  config.dropout = reader.number("lora_dropout", 0.0);
  config.rslora = reader.boolean("use_rslora");
  config.dora = reader.boolean("use_dora");
  config.fan_in_fan_out = reader.boolean("fan_in_fan_out");
  config.bias = reader.text("bias", "none");
  config.target_modules = reader.texts("target_modules", &config.targets_are_pattern);
  config.exclude_modules = reader.texts("exclude_modules", &config.excludes_are_pattern);
  config.modules_to_save = reader.texts("modules_to_save");
  config.layers_to_transform = reader.integers("layers_to_transform");
  config.layers_pattern = reader.texts("layers_pattern");
  for (const auto& [pattern, rank] : reader.pattern("rank_pattern")) {
    config.rank_pattern.emplace_back(pattern,
                                     whole_rank(tr("rank_pattern of {}", pattern), rank, origin));
  }
  config.alpha_pattern = reader.pattern("alpha_pattern");
  require_alpha("lora_alpha", config.alpha, origin);
  for (const auto& [pattern, alpha] : config.alpha_pattern)
    require_alpha(tr("alpha_pattern of {}", pattern), alpha, origin);
  config.base_model = reader.text("base_model_name_or_path", "");
  config.task_type = reader.text("task_type", "");
  if (!(config.dropout >= 0 && config.dropout < 1)) {
    throw ModelError(tr("{}: lora_dropout must be in [0, 1), got {}", origin, config.dropout));
  }
  if (config.bias != "none" && config.bias != "all" && config.bias != "lora_only") {
    throw ModelError(
        tr("{}: bias must be none, all or lora_only, got \"{}\"", origin, config.bias));
  }
  // Broken patterns are found now, not at the first module.
  try {
    peft_targets(config, "model.layers.0.probe");
    config.scale_of("model.layers.0.probe");
  } catch (const PatternError& error) {
    throw ModelError(tr("{}: {}", origin, error.what()), error.hint());
  }
  return config;
}

PeftConfig load_peft_config(const std::filesystem::path& path) {
  const auto file = std::filesystem::is_directory(path) ? path / "adapter_config.json" : path;
  if (!std::filesystem::exists(file)) {
    throw ModelError(
        tr("{}: no adapter_config.json, so not a PEFT adapter directory", path.string()));
  }
  refuse_lfs_pointer(file, "adapter_config.json");
  Json json;
  try {
    json = read_json_file(file);
  } catch (const DataError& error) {
    throw ModelError(error.what());
  }
  PeftConfig config = parse_peft_config(json, file.string());
  for (std::string& module : modules_in_tower_file(file.parent_path()))
    config.modules_to_save.push_back(std::move(module));
  return config;
}

void report_other_base(const std::filesystem::path& adapter, const std::filesystem::path& base) {
  namespace fs = std::filesystem;
  if (!fs::exists(adapter / "adapter_config.json")) return;
  const std::string named = load_peft_config(adapter).base_model;
  if (named.empty()) return;
  std::error_code error;
  bool is_here = false;
  for (const fs::path& place : {fs::path(named), adapter / named}) {
    if (fs::equivalent(place, base, error)) return;
    is_here = is_here || fs::exists(place, error);
    // A training run wrote down which iteration of a Megatron directory it took.
    if (is_here && megatron::is_megatron_directory(base) &&
        fs::equivalent(place, megatron::find_checkpoint(base).directory, error))
      return;
  }
  // ModelScope's cache writes dots as three underscores, Hugging Face's org/name as
  // models--org--name.
  const auto parts_of = [](const fs::path& path) {
    std::vector<std::string> parts;
    for (const fs::path& part : path) {
      std::string text = part.string();
      for (size_t at; (at = text.find("___")) != text.npos;) text.replace(at, 3, ".");
      if (const size_t at = text.rfind("--"); at != text.npos) text.erase(0, at + 2);
      if (!text.empty() && text != ".") parts.push_back(text);
    }
    return parts;
  };
  const std::vector<std::string> there = parts_of(named),
                                 here = parts_of(fs::weakly_canonical(base));
  const auto holds = [](const std::vector<std::string>& parts, const std::string& name) {
    return std::find(parts.begin(), parts.end(), name) != parts.end();
  };
  const bool same_name =
      !there.empty() && !here.empty() && (holds(here, there.back()) || holds(there, here.back()));
  if (same_name && !is_here) return;
  log::notice("{}: the adapter was trained on {}; here it is put on {}", adapter.string(), named,
              base.string());
}

namespace {

template <typename Number>
Json pattern_object(const std::vector<std::pair<std::string, Number>>& patterns) {
  Json object = Json::object();
  for (const auto& [pattern, value] : patterns) object[pattern] = value;
  return object;
}

}  // namespace

Json peft_config_json(const PeftConfig& config) {
  // Defaults of every key PEFT 0.13 writes; what was read and has no field stays as it was.
  std::map<std::string, Json> keys = {
      {"auto_mapping", nullptr},      {"init_lora_weights", true},
      {"layer_replication", nullptr}, {"loftq_config", Json::object()},
      {"megatron_config", nullptr},   {"megatron_core", "megatron.core"},
      {"revision", nullptr}};
  for (const auto& [key, value] : config.raw.items()) keys[key] = value;
  const auto name_list = [](const std::vector<std::string>& names, bool is_pattern) -> Json {
    if (names.empty()) return nullptr;
    return is_pattern ? Json(names.front()) : Json(names);
  };
  keys["alpha_pattern"] = pattern_object(config.alpha_pattern);
  keys["base_model_name_or_path"] =
      config.base_model.empty() ? Json(nullptr) : Json(config.base_model);
  keys["bias"] = config.bias;
  keys["exclude_modules"] = name_list(config.exclude_modules, config.excludes_are_pattern);
  keys["fan_in_fan_out"] = config.fan_in_fan_out;
  keys["inference_mode"] = true;
  keys["layers_pattern"] = name_list(config.layers_pattern, false);
  keys["layers_to_transform"] =
      config.layers_to_transform.empty() ? Json(nullptr) : Json(config.layers_to_transform);
  // PEFT's field is an integer; transformers-side tools compare it as one.
  const bool whole = config.alpha == std::floor(config.alpha) && std::abs(config.alpha) < 9e15;
  keys["lora_alpha"] = whole ? Json(static_cast<int64_t>(config.alpha)) : Json(config.alpha);
  keys["lora_dropout"] = config.dropout;
  keys["modules_to_save"] = name_list(config.modules_to_save, false);
  keys["peft_type"] = "LORA";
  keys["r"] = config.rank;
  keys["rank_pattern"] = pattern_object(config.rank_pattern);
  keys["target_modules"] = name_list(config.target_modules, config.targets_are_pattern);
  keys["task_type"] = config.task_type.empty() ? Json(nullptr) : Json(config.task_type);
  keys["use_dora"] = config.dora;
  keys["use_rslora"] = config.rslora;
  Json json = Json::object();
  for (auto& [key, value] : keys) json[key] = std::move(value);
  return json;
}

void set_targets(PeftConfig& config, const std::vector<std::string>& targets) {
  config.target_modules = targets;
  config.targets_are_pattern =
      targets.size() == 1 && (targets[0] == "all-linear" || looks_like_pattern(targets[0]));
}

bool is_named(const std::string& module, const std::string& entry) {
  const std::string name = hub_name(entry);
  return module == name || module.ends_with("." + name);
}

bool peft_targets(const PeftConfig& config, const std::string& module, bool is_linear,
                  bool is_head) {
  if (!config.exclude_modules.empty() &&
      listed(config.exclude_modules, config.excludes_are_pattern, module)) {
    return false;
  }
  if (config.target_modules.empty()) return false;
  // "all-linear" is a keyword only where the file has a string; our own lists may hold it too.
  if (config.target_modules.size() == 1 && config.target_modules.front() == "all-linear")
    return is_linear && !is_head;
  if (!listed(config.target_modules, config.targets_are_pattern, module)) return false;
  const bool exact =
      !config.targets_are_pattern &&
      std::count(config.target_modules.begin(), config.target_modules.end(), module) > 0;
  if (config.layers_to_transform.empty() || config.targets_are_pattern || exact) return true;
  const auto layer = layer_of(module, config.layers_pattern);
  return layer && std::count(config.layers_to_transform.begin(), config.layers_to_transform.end(),
                             *layer) > 0;
}

namespace {

constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::pair<std::string_view, AdapterPart> kEndings[] = {
    {".lora_A.weight", AdapterPart::kLoraA},
    {".lora_B.weight", AdapterPart::kLoraB},
    {".lora_embedding_A", AdapterPart::kEmbeddingA},
    {".lora_embedding_B", AdapterPart::kEmbeddingB},
    {".lora_magnitude_vector", AdapterPart::kMagnitude},
    {".bias", AdapterPart::kBias},
    {".weight", AdapterPart::kSavedModule},
};

}  // namespace

std::optional<AdapterTensorName> parse_adapter_name(const std::string& tensor) {
  const std::string_view name = tensor;
  if (name.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  for (const auto& [ending, part] : kEndings) {
    if (name.size() <= kPrefix.size() + ending.size() ||
        name.substr(name.size() - ending.size()) != ending)
      continue;
    return AdapterTensorName{
        std::string(name.substr(kPrefix.size(), name.size() - kPrefix.size() - ending.size())),
        part};
  }
  return std::nullopt;
}

std::string adapter_tensor_name(const std::string& module, AdapterPart part) {
  for (const auto& [ending, known] : kEndings) {
    if (known == part) return std::string(kPrefix) + module + std::string(ending);
  }
  throw InternalError("[adapter_tensor_name] unknown part");
}

}  // namespace danlu::weights
