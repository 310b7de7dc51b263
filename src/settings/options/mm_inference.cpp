#include "settings/options/mm_inference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/nearest_name.h"

namespace danlu::settings {
namespace {

struct InferenceKey {
  const char* key;
  const char* option = "";  ///< ""; nothing is to be done
};

constexpr std::array kInferenceKeys = {
    InferenceKey{"pipeline_class"},
    InferenceKey{"model_id"},
    InferenceKey{"image_path", "image"},
    InferenceKey{"video_path", "video"},
    InferenceKey{"prompts", "prompt"},
    InferenceKey{"image_processer_path", "image_processor"},
    InferenceKey{"dtype", "dtype"},
    InferenceKey{"tokenizer"},
    InferenceKey{"generation_config"},
    InferenceKey{"min_pixels"},
    InferenceKey{"max_pixels"},
    InferenceKey{"params_dtype"},
    InferenceKey{"device"},
    InferenceKey{"ps_version"},
    InferenceKey{"img_context_token_id"},
    InferenceKey{"video_token_id"},
    InferenceKey{"vision_start_token_id"},
    InferenceKey{"image_token_id"},
    InferenceKey{"video_token_id"},
    InferenceKey{"patch"},
    InferenceKey{"image_encoder"},
    InferenceKey{"text_decoder"},
    InferenceKey{"text_encoder"},
    InferenceKey{"video_encoder"},
    InferenceKey{"from_pretrained_with_deal"},
    InferenceKey{"add_text_encoder"},
    InferenceKey{"pre_process"},
    InferenceKey{"post_process"},
    InferenceKey{"seed", "seed"},
};

/// Keys of generation_config: those that are options too, and others that are read or change no
/// answer.
constexpr std::array kSamplingKeys = {"max_new_tokens", "temperature", "top_k",
                                      "top_p",          "min_p",       "repetition_penalty",
                                      "length_penalty", "num_beams"};
constexpr std::array kOtherGenerationKeys = {"do_sample",    "eos_token_id", "bos_token_id",
                                             "pad_token_id", "use_cache",    "max_length"};

/// Keys of the pipeline's own that look like a misspelt one.
constexpr std::array kIdleGenerationKeys = {"min_length", "encoder_repetition_penalty",
                                            "image_token_id", "video_token_id"};

/// Qwen2VlPipeline, Qwen2_5VlPipeline, qwen2vl, qwen2_5vl.
bool is_pipeline_known(std::string name) {
  std::erase(name, '_');
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name.starts_with("qwen2vl") || name.starts_with("qwen25vl");
}

class InferenceFile {
 public:
  explicit InferenceFile(const Options& options)
      : options_(options), name_(options.get_string("mm_model")), json_(read_json_file(name_)) {
    if (!json_.is_object())
      throw DataError(tr("{}: must be an object, got {}", name_, json_.type_name()));
  }

  Options read() {
    require_known();
    for (const char* key : {"pipeline_class", "model_id"}) {
      const auto found = json_.find(key);
      if (found == json_.end() || found->is_null()) continue;
      if (!is_pipeline_known(text_of(key, *found))) {
        throw UsageError(tr("{}: {} {} is not available, only Qwen2-VL's and Qwen2.5-VL's", name_,
                            key, found->dump()));
      }
    }
    Options result = options_;
    for (const InferenceKey& rule : kInferenceKeys) {
      const auto found = json_.find(rule.key);
      if (*rule.option == '\0' || found == json_.end() || found->is_null()) continue;
      result = given(result, rule.option, text_of(rule.key, *found), rule.key);
    }
    if (const auto tokenizer = json_.find("tokenizer");
        tokenizer != json_.end() && tokenizer->is_object()) {
      if (const auto path = json_get<std::string>(*tokenizer, "from_pretrained")) {
        result = given(result, "tokenizer", *path, "tokenizer.from_pretrained");
        result = given(result, "hf_config", *path, "tokenizer.from_pretrained");
      }
    }
    report_idle();
    return with_generation(result);
  }

 private:
  void require_known() const {
    std::vector<std::string> known;
    for (const InferenceKey& rule : kInferenceKeys) known.emplace_back(rule.key);
    for (const auto& [key, value] : json_.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end() || value.is_null()) continue;
      const auto near = nearest_name(key, known);
      throw UsageError(tr("{}: {}: unknown key", name_, key),
                       near ? tr("did you mean \"{}\"?", *near) : std::string{});
    }
  }

  /// A list of one stands for its element, as the file's prompts may.
  std::string text_of(const std::string& key, const Json& value) const {
    const Json& one = value.is_array() && value.size() == 1 ? value.front() : value;
    if (one.is_string()) return one.get<std::string>();
    if (key == "seed" && one.is_number_integer()) return one.dump();
    throw DataError(tr("{}: {} must be one text, got {}", name_, key, value.dump()),
                    tr("several questions are rows: --dataset FILE"));
  }

  Options given(const Options& options, const char* option, const std::string& text,
                const std::string& key) const {
    if (options_.is_given(option)) return options;
    return options.with(option, text, name_ + ": " + key);
  }

  /// A key that is nearly one of those that have an effect was mistyped; transformers' further ones
  /// are said to have none.
  void refuse_misspelt(const Json& generation) const {
    std::vector<std::string> known(kSamplingKeys.begin(), kSamplingKeys.end()), idle;
    known.insert(known.end(), kOtherGenerationKeys.begin(), kOtherGenerationKeys.end());
    for (const auto& [key, value] : generation.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end() || value.is_null()) continue;
      const bool is_idle = std::find(kIdleGenerationKeys.begin(), kIdleGenerationKeys.end(), key) !=
                           kIdleGenerationKeys.end();
      if (const auto near = nearest_name(key, known); near && !is_idle) {
        throw UsageError(tr("{}: {}: unknown key", name_, "generation_config." + key),
                         tr("did you mean \"{}\"?", *near));
      }
      idle.push_back("generation_config." + key);
    }
    if (!idle.empty()) log::notice("{}: {} have no effect", name_, fmt::join(idle, ", "));
  }

  /// Sampling that a profile has defaults for: the file outweighs them.
  Options with_generation(Options result) const {
    const auto generation = json_.find("generation_config");
    if (generation == json_.end() || !generation->is_object()) return result;
    refuse_misspelt(*generation);
    for (const char* key : kSamplingKeys) {
      const auto found = generation->find(key);
      if (found == generation->end() || found->is_null()) continue;
      result = given(result, key, found->dump(), std::string("generation_config.") + key);
    }
    // There, a temperature above 0 alone has tokens drawn.
    const double temperature = json_get<double>(*generation, "temperature").value_or(0);
    const bool samples = json_get<bool>(*generation, "do_sample").value_or(temperature > 0);
    return given(result, "do_sample", samples ? "true" : "false", "generation_config.do_sample");
  }

  void report_idle() const {
    std::vector<std::string> idle;
    for (const char* key : {"min_pixels", "max_pixels"}) {
      if (json_.contains(key) && !json_[key].is_null()) idle.emplace_back(key);
    }
    if (idle.empty()) return;
    log::notice(
        "{}: {} have no effect, as in MindSpeed-MM: the processor's limits hold; --min-pixels and "
        "--max-pixels set others",
        name_, fmt::join(idle, ", "));
  }

  const Options& options_;
  const std::string name_;
  const Json json_;
};

}  // namespace

Options with_mm_inference(const Options& options) {
  if (!options.has_value("mm_model")) return options;
  return InferenceFile(options).read();
}

std::optional<Json> mm_generation_config(const Options& options) {
  if (!options.has_value("mm_model")) return std::nullopt;
  const Json json = read_json_file(options.get_string("mm_model"));
  const auto found = json.find("generation_config");
  if (found == json.end() || !found->is_object()) return std::nullopt;
  return *found;
}

}  // namespace danlu::settings
