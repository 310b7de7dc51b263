#include "weights/hf/value_head.h"

#include <utility>

#include "base/error.h"
#include "weights/convert/joined_source.h"
#include "weights/hf/renamed_source.h"

namespace danlu::weights {
namespace {

/// Empty: there is none.
std::filesystem::path value_head_file(const std::filesystem::path& directory) {
  for (const char* name : {"value_head.safetensors", "value_head.bin"}) {
    std::error_code unknown;
    if (std::filesystem::is_regular_file(directory / name, unknown)) return directory / name;
  }
  return {};
}

}  // namespace

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
    if (info.name != "v_head.summary.weight" && info.name != "v_head.summary.bias") {
      throw ModelError(
          tr("{}: holds {}, which is none of v_head.summary.weight and "
             "v_head.summary.bias",
             file.string(), info.name));
    }
    names.emplace(prefix + info.name, info.name);
  }
  return join_tensors(std::move(source), std::make_shared<RenamedSource>(std::move(head), names));
}

}  // namespace danlu::weights
