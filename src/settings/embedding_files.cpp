#include "settings/embedding_files.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <string>

#include "base/file.h"
#include "base/lower_case.h"
#include "data/formats/columns.h"
#include "text/template_record.h"

namespace danlu::settings {
namespace fs = std::filesystem;
namespace {

constexpr const char* kModules = "modules.json";
constexpr const char* kPrompts = "config_sentence_transformers.json";

Json module_of(int64_t number, const std::string& path, const std::string& type) {
  return {{"idx", number},
          {"name", std::to_string(number)},
          {"path", path},
          {"type", "sentence_transformers.models." + type}};
}

const char* pooling_name(arch::Pooling pooling) {
  switch (pooling) {
    case arch::Pooling::kFirst:
      return "cls_token";
    case arch::Pooling::kMean:
      return "mean_tokens";
    case arch::Pooling::kLast:
      break;
  }
  return "lasttoken";
}

Json pooling_of(const arch::ModelConfig& model) {
  const std::string used =
      pooling_name(model.encoder ? model.encoder->pooling : arch::Pooling::kLast);
  Json pooling{{"word_embedding_dimension", model.hidden_size}};
  for (const char* mode : {"cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens",
                           "weightedmean_tokens", "lasttoken"})
    pooling[std::string("pooling_mode_") + mode] = used == mode;
  pooling["include_prompt"] = true;
  return pooling;
}

}  // namespace

bool has_sentence_files(const fs::path& model) {
  std::error_code unknown;
  return !model.empty() && fs::exists(model / kModules, unknown);
}

std::optional<RecordedPooling> recorded_pooling(const fs::path& model) {
  std::error_code unknown;
  if (model.empty() || !fs::exists(model / kPoolingFile, unknown)) return std::nullopt;
  const Json json = read_json_file(model / kPoolingFile);
  const auto has = [&](const char* key) { return json_get<bool>(json, key).value_or(false); };
  if (has("pooling_mode_mean_tokens")) return RecordedPooling::kMean;
  return has("pooling_mode_lasttoken") ? RecordedPooling::kLastToken : RecordedPooling::kOther;
}

bool is_embedding_record(const Json& record) {
  return lower_case(text::recorded_text(record, "task_type")) == "embedding";
}

std::vector<int64_t> recorded_sizes(const Json& record) {
  std::vector<int64_t> sizes;
  const auto given = record.find("mrl_dims");
  if (given == record.end()) return sizes;
  const Json wanted = data::parse_if_text(*given).value_or(nullptr);
  if (!wanted.is_object()) return sizes;
  for (const auto& [name, weight] : wanted.items()) {
    int64_t size = 0;
    const char* const end = name.data() + name.size();
    const auto read = std::from_chars(name.data(), end, size);
    if (read.ec == std::errc() && read.ptr == end && size > 0) sizes.push_back(size);
  }
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

std::optional<bool> embedded_by_template(const fs::path& model) {
  std::error_code unknown;
  if (!model.empty() && fs::is_directory(model, unknown)) {
    const Json record = text::read_record(model);
    if (is_embedding_record(record)) return !text::was_plain(record);
  }
  if (has_sentence_files(model)) return false;
  return std::nullopt;
}

void write_sentence_files(const fs::path& directory, const arch::ModelConfig& model,
                          const fs::path& from) {
  const auto write = [&](const char* name, const Json& fallback, bool takes) {
    std::error_code unknown;
    const fs::path to = directory / name;
    if (fs::exists(to, unknown)) return;
    fs::create_directories(to.parent_path());
    if (takes && !from.empty() && fs::is_regular_file(from / name, unknown)) {
      write_file_atomic(to, read_file(from / name));
    } else {
      write_json_file(to, fallback);
    }
  };
  write(kPoolingFile, pooling_of(model), /*takes=*/false);
  write(kPrompts,
        {{"prompts", Json::object()},
         {"default_prompt_name", nullptr},
         {"similarity_fn_name", "cosine"}},
        /*takes=*/true);
  write(kModules,
        Json::array({module_of(0, "", "Transformer"), module_of(1, "1_Pooling", "Pooling"),
                     module_of(2, "2_Normalize", "Normalize")}),
        /*takes=*/false);
}

}  // namespace danlu::settings
