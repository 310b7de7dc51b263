#include "cli/engine/eval_arguments.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <iterator>

#include "base/error.h"
#include "base/log.h"
#include "base/lower_case.h"
#include "base/nearest_name.h"
#include "base/option_text.h"

namespace danlu::cli {
namespace {

constexpr const char* kModelArgs = "--model_args";

double number_of(const std::string& key, const std::string& text) {
  errno = 0;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || errno != 0 || !std::isfinite(value))
    throw UsageError(tr("[{}] must be a number, got '{}'", key, text));
  return value;
}

int64_t whole_number_of(const std::string& key, const std::string& text, int64_t least) {
  const double value = number_of(key, text);
  const auto whole = static_cast<int64_t>(value);
  if (static_cast<double>(whole) != value || whole < least)
    throw UsageError(tr("[{}] must be a whole number of at least {}, got '{}'", key, least, text));
  return whole;
}

/// Text that a user typed for a flag as JSON.
Json json_of(const std::string& key, const std::string& text) {
  try {
    return parse_json(text, key);
  } catch (const DataError& error) {
    throw UsageError(error.what());
  }
}

/// A text, or a JSON list of texts.
std::vector<std::string> texts_of(const std::string& key, const std::string& text) {
  if (!text.starts_with("[")) return {text};
  std::vector<std::string> texts;
  for (const Json& one : json_of(key, text)) {
    if (!one.is_string()) {
      throw UsageError(tr("[{}] must be a text or a list of texts, got {}", key, text));
    }
    texts.push_back(one.get<std::string>());
  }
  return texts;
}

bool switch_of(const std::string& key, const std::string& text) {
  const std::optional<bool> value = option_text::parse_bool(text);
  if (!value) throw UsageError(tr("[{}] must be true or false, got '{}'", key, text));
  return *value;
}

[[noreturn]] void refuse_key(const std::string& flag, const std::string& key,
                             const std::vector<std::string>& known) {
  const std::optional<std::string> near = nearest_name(key, known);
  throw UsageError(tr("[{}] unknown key '{}'", flag, key),
                   near ? tr("did you mean {}?", *near)
                        : tr("it has: {}", fmt::format("{}", fmt::join(known, ", "))));
}

/// This program's name for one of lm-eval's names of types.
std::string dtype_name(const std::string& named) {
  const std::string lower = lower_case(named.starts_with("torch.") ? named.substr(6) : named);
  if (lower == "float32" || lower == "float") return "fp32";
  if (lower == "bfloat16") return "bf16";
  if (lower == "float16" || lower == "half") return "fp16";
  return named;
}

bool has_no_meaning_here(const std::string& key) {
  static const std::vector<std::string> keys = {
      "trust_remote_code", "use_fast_tokenizer",  "parallelize",    "device_map",
      "revision",          "attn_implementation", "backend",        "low_cpu_mem_usage",
      "max_memory",        "max_batch_size",      "offload_folder", "gpus",
      "logits_cache",      "truncation",          "subfolder",      "device_map_option"};
  return std::ranges::find(keys, key) != keys.end();
}

Options with_model_arg(const Options& options, const std::string& key, const std::string& text,
                       ModelArguments* rest) {
  const std::string origin = std::string(kModelArgs) + " " + key;
  if (key == "pretrained" || key == "model") return options.with("model", text, origin);
  if (key == "peft") return options.with("adapters", text, origin);
  if (key == "tokenizer") return options.with("tokenizer", text, origin);
  if (key == "dtype") return options.with("dtype", dtype_name(text), origin);
  if (key == "device") return options.with("device", text, origin);
  if (key == "batch_size") return options.with("batch_size", text, origin);
  if (key == "enable_thinking") return options.with("enable_thinking", text, origin);
  if (key == "load_in_4bit" || key == "load_in_8bit") return options.with(key, text, origin);
  if (key == "chat_template_args") return options.with("chat_template_kwargs", text, origin);
  if (key == "max_length") {
    rest->max_length = whole_number_of(origin, text, 1);
  } else if (key == "prefix_token_id") {
    rest->prefix_token_id = whole_number_of(origin, text, 0);
  } else if (key == "think_end_token") {
    const bool is_id = !text.empty() && text.find_first_not_of("0123456789") == text.npos;
    if (is_id) {
      rest->think_end_id = whole_number_of(origin, text, 0);
    } else {
      rest->think_end = text;
    }
  } else if (key == "add_bos_token") {
    rest->add_bos_token = switch_of(origin, text);
  } else if (key == "autogptq" || key == "delta") {
    if (option_text::parse_bool(text).value_or(true))
      throw UsageError(tr("[{}] is not in this version", origin));
  } else if (has_no_meaning_here(key)) {
    log::notice("{} has no effect here: there is one engine, and files say what they are", origin);
  } else {
    refuse_key(kModelArgs, key,
               {"pretrained", "peft", "tokenizer", "dtype", "device", "batch_size", "max_length",
                "prefix_token_id", "add_bos_token", "enable_thinking", "think_end_token",
                "chat_template_args", "load_in_4bit", "load_in_8bit"});
  }
  return options;
}

/// As lm-eval: numbers of the thoughts are none of the answer's.
void require_end_of_thoughts(const std::vector<std::pair<std::string, std::string>>& pairs,
                             const ModelArguments& arguments) {
  if (!arguments.think_end.empty() || arguments.think_end_id) return;
  for (const auto& [key, text] : pairs) {
    if (key != "enable_thinking" || !option_text::parse_bool(text).value_or(false)) continue;
    throw UsageError(tr("[{} enable_thinking] think_end_token is missing: without it thoughts are "
                        "scored with the answer",
                        kModelArgs),
                     "think_end_token=</think>");
  }
}

}  // namespace

std::vector<int64_t> seeds_of(const Options& options) {
  static const std::vector<int64_t> usual = {0, 1234, 1234, 1234};
  const std::vector<std::string> given = options.get_list("seed");
  const std::string flag = options.given_as("seed");
  if (given.size() != 1 && given.size() != 3 && given.size() != 4)
    throw UsageError(tr("[--seed] one number or four, got {}", given.size()));
  std::vector<int64_t> seeds = usual;
  for (size_t i = 0; i < usual.size(); ++i) {
    if (given.size() > 1 && i >= given.size()) break;
    const std::string& text = given.size() == 1 ? given[0] : given[i];
    if (lower_case(text) == "none") continue;
    seeds[i] = whole_number_of(flag, text, 0);
  }
  return seeds;
}

std::vector<std::pair<std::string, std::string>> key_values(
    const std::vector<std::string>& elements, const std::string& flag) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& element : elements) {
    if (element.starts_with("{")) {
      const Json json = json_of(flag, element);
      for (const auto& [key, value] : json.items())
        pairs.emplace_back(key, value.is_string() ? value.get<std::string>() : value.dump());
      continue;
    }
    const size_t equals = element.find('=');
    if (equals == std::string::npos || equals == 0)
      throw UsageError(tr("[{}] must be key=value,key=value, got '{}'", flag, element));
    pairs.emplace_back(element.substr(0, equals), element.substr(equals + 1));
  }
  return pairs;
}

Options with_model_args(const Options& options, ModelArguments* rest) {
  Options result = options;
  const std::string named = options.get_string_or("model", "");
  const bool is_kind = named == "hf" || named == "hf-auto" || named == "huggingface";
  if (named == "vllm" || named == "sglang" || named == "gguf" || named == "ggml") {
    if (!std::filesystem::exists(named)) {
      throw UsageError(tr("[--model] {} is another program; this one opens models itself", named),
                       tr("--model DIR, or --model hf --model_args pretrained=DIR"));
    }
  }
  const std::vector<std::string> elements = options.get_list("model_args");
  if (elements.empty() && is_kind && !std::filesystem::exists(named)) {
    throw UsageError(tr("[--model] {} names no model", named),
                     tr("--model DIR, or --model hf --model_args pretrained=DIR"));
  }
  const auto pairs = key_values(elements, kModelArgs);
  const bool names_model = std::ranges::any_of(
      pairs, [](const auto& pair) { return pair.first == "pretrained" || pair.first == "model"; });
  if (names_model && !named.empty() && !is_kind) {
    throw UsageError(tr("[{}] two models are named: {} and {}", kModelArgs, named,
                        fmt::format("{}", fmt::join(elements, ","))),
                     tr("--model hf --model_args pretrained=DIR, or --model DIR alone"));
  }
  for (const auto& [key, value] : pairs) result = with_model_arg(result, key, value, rest);
  require_end_of_thoughts(pairs, *rest);
  if (is_kind && !elements.empty() && !names_model)
    throw UsageError(tr("[{}] no model is named: pretrained=DIR is missing", kModelArgs));
  return result;
}

Options with_named_template(const Options& options) {
  const std::string named = options.get_string_or("apply_chat_template", "");
  if (named.empty() || named == "true" || named == "false") return options;
  const std::string flag = options.given_as("apply_chat_template");
  std::error_code unknown;
  if (std::filesystem::is_directory(named, unknown)) {
    throw UsageError(tr("[{}] {} is a directory, no template", flag, named),
                     tr("the word behind this flag names a template; a model is named by --model"));
  }
  const std::string other = options.get_string_or("prompt_type", "");
  if (options.is_given("prompt_type") && other != named) {
    throw UsageError(tr("[{}] two templates are named: {} and {}", flag, named, other),
                     tr("give one of them"));
  }
  return options.with("prompt_type", named, flag).with("apply_chat_template", "true", flag);
}

void GenerationOverrides::add(const std::string& flag, const std::vector<std::string>& elements) {
  for (const auto& [key, text] : key_values(elements, flag)) values_.push_back({flag, key, text});
}

void GenerationOverrides::add_flags_of_swift(const Options& options) {
  const bool is_mindspeed = options.get_string("style").starts_with("mindspeed");
  for (const char* key : {"temperature", "top_p", "top_k"}) {
    if (!options.has_value(key)) continue;
    if (is_mindspeed) {
      log::notice("{} has no effect here: in the style mindspeed answers are the likeliest",
                  options.given_as(key));
      continue;
    }
    const bool is_whole = std::string_view(key) == "top_k";
    // ms-swift's -1 is none.
    const std::string text = is_whole ? std::to_string(std::max<int64_t>(0, options.get_int(key)))
                                      : fmt::format("{}", options.get_float(key));
    values_.push_back({options.given_as(key), key, text});
  }
  if (options.has_value("eval_generation_config"))
    add(options.given_as("eval_generation_config"), options.get_list("eval_generation_config"));
}

GenerationOverrides::GenerationOverrides(const Options& options) {
  add_flags_of_swift(options);
  add("--gen_kwargs", options.get_list("gen_kwargs"));
  if (options.has_value("max_new_tokens"))
    values_.push_back(
        {"--max_new_tokens", "max_gen_toks", std::to_string(options.get_int("max_new_tokens"))});
  eval::GenerationRules scratch;
  apply(scratch);  // what is wrong is said before anything is loaded
}

std::string GenerationOverrides::text() const {
  std::string all;
  for (const Value& value : values_) {
    if (value.flag == "--max_new_tokens") continue;
    all += (all.empty() ? "" : ",") + value.key + "=" + value.text;
  }
  return all;
}

void GenerationOverrides::apply(eval::GenerationRules& rules) const {
  bool says_temperature = false;
  for (const auto& [flag, key, text] : values_) {
    const std::string where = flag == "--" + key ? flag : flag + " " + key;
    if (key == "max_gen_toks" || key == "max_new_tokens" || key == "max_tokens") {
      rules.max_tokens = whole_number_of(where, text, 1);
    } else if (key == "temperature") {
      rules.temperature = number_of(where, text);
      if (rules.temperature < 0)
        throw UsageError(tr("[{}] must be at least 0, got {}", where, text));
      says_temperature = true;
    } else if (key == "top_p") {
      rules.top_p = number_of(where, text);
      if (rules.top_p <= 0 || rules.top_p > 1)
        throw UsageError(tr("[{}] must be above 0 and at most 1, got {}", where, text));
    } else if (key == "top_k") {
      rules.top_k = whole_number_of(where, text, 0);
    } else if (key == "num_beams") {
      rules.num_beams = whole_number_of(where, text, 1);
    } else if (key == "repetition_penalty") {
      rules.repetition_penalty = number_of(where, text);
      if (rules.repetition_penalty <= 0)
        throw UsageError(tr("[{}] must be above 0, got {}", where, text));
    } else if (key == "do_sample") {
      rules.do_sample = switch_of(where, text);
      rules.says_sampling = true;
    } else if (key == "until" || key == "stop") {
      rules.until = texts_of(where, text);
    } else {
      refuse_key(flag, key,
                 {"max_gen_toks", "temperature", "top_p", "top_k", "num_beams",
                  "repetition_penalty", "do_sample", "until"});
    }
  }
  eval::settle_sampling(rules, says_temperature);
}

}  // namespace danlu::cli
