#include "weights/hf/value_head.h"

#include <utility>

#include "base/error.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/convert/joined_source.h"
#include "weights/hf/renamed_source.h"

namespace danlu::weights {
namespace {

constexpr const char* kHeadOfTrl = "pytorch_model.bin";

bool is_of_head(const std::string& name) {
  return name == "v_head.summary.weight" || name == "v_head.summary.bias";
}

bool is_file(const std::filesystem::path& path) {
  std::error_code unknown;
  return std::filesystem::is_regular_file(path, unknown);
}

}  // namespace

bool is_adapter_with_head(const std::filesystem::path& directory) {
  return is_file(directory / kHeadOfTrl) && is_file(directory / "adapter_config.json") &&
         !is_file(directory / "config.json") &&
         (is_file(directory / "adapter_model.safetensors") ||
          is_file(directory / "adapter_model.bin"));
}

std::filesystem::path value_head_file(const std::filesystem::path& directory) {
  for (const char* name : {"value_head.safetensors", "value_head.bin"})
    if (is_file(directory / name)) return directory / name;
  return is_adapter_with_head(directory) ? directory / kHeadOfTrl : std::filesystem::path();
}

bool has_value_head(const std::filesystem::path& directory) {
  return !value_head_file(directory).empty();
}

std::shared_ptr<const TensorSource> with_value_head(std::shared_ptr<const TensorSource> source,
                                                    const std::filesystem::path& directory,
                                                    const std::string& prefix) {
  const std::filesystem::path file = value_head_file(directory);
  if (file.empty()) return source;
  auto head = open_weights(file);
  RenamedSource::Names names;
  for (const TensorInfo& info : head->tensors()) {
    if (!is_of_head(info.name)) {
      throw ModelError(
          tr("{}: holds {}, which is none of v_head.summary.weight and "
             "v_head.summary.bias",
             file.string(), info.name));
    }
    names.emplace(prefix + info.name, info.name);
  }
  return join_tensors(std::move(source), std::make_shared<RenamedSource>(std::move(head), names));
}

bool holds_value_head(const TensorSource& source) {
  return source.find("v_head.summary.weight") != nullptr;
}

bool holds_value_head(const std::filesystem::path& directory) {
  std::error_code unknown;
  return std::filesystem::is_directory(directory, unknown) &&
         detect_format(directory) == Format::kHuggingFace &&
         holds_value_head(*open_weights(directory));
}

std::shared_ptr<const TensorSource> without_value_head(std::shared_ptr<const TensorSource> source) {
  RenamedSource::Names names;
  for (const TensorInfo& info : source->tensors())
    if (!is_of_head(info.name)) names.emplace(info.name, info.name);
  return std::make_shared<RenamedSource>(std::move(source), names);
}

}  // namespace danlu::weights
