// Files of a Hugging Face directory that go with the model when its weights are saved elsewhere.
#include <fmt/format.h>

#include <array>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "weights/tensor_source.h"

namespace danlu::weights {
namespace {

bool matches(const std::string& name, std::string_view start, std::string_view ending) {
  return name.size() >= start.size() + ending.size() && name.rfind(start, 0) == 0 &&
         std::string_view(name).substr(name.size() - ending.size()) == ending;
}

/// config.json or tokenizer_config.json names modules of the model's own under auto_map: without
/// them transformers cannot open the copy. Danlu itself never runs them.
bool needs_own_code(const fs::path& directory) {
  for (const char* name : {"config.json", "tokenizer_config.json"}) {
    if (!fs::exists(directory / name)) continue;
    const Json json = read_json_file(directory / name);
    if (json.is_object() && json.contains("auto_map")) return true;
  }
  return false;
}

}  // namespace

bool is_carried_over(const std::string& name) {
  static const std::set<std::string> kExact = {"config.json",
                                               "generation_config.json",
                                               "special_tokens_map.json",
                                               "added_tokens.json",
                                               "vocab.json",
                                               "vocab.txt",
                                               "merges.txt",
                                               "preprocessor_config.json",
                                               "video_preprocessor_config.json",
                                               "processor_config.json"};
  if (kExact.count(name)) return true;
  return matches(name, "tokenizer", ".json") || matches(name, "chat_template", ".json") ||
         matches(name, "chat_template", ".jinja") || matches(name, "", ".model") ||
         matches(name, "", ".tiktoken");
}

void carry_over_files(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (fs::is_regular_file(from)) {
    if (!fs::exists(to / "config.json")) write_file_atomic(to / "config.json", read_file(from));
    return;
  }
  if (!fs::is_directory(from)) throw IoError(tr("{}: no such directory", from.string()));
  const bool takes_code = needs_own_code(from);
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    const bool wanted = is_carried_over(name) || (takes_code && matches(name, "", ".py"));
    if (!entry.is_regular_file() || !wanted || fs::exists(to / name)) continue;
    write_file_atomic(to / name, read_file(entry.path()));
  }
  if (!fs::is_directory(from / kMoreTemplates)) return;
  for (const auto& entry : fs::directory_iterator(from / kMoreTemplates)) {
    const fs::path written = to / kMoreTemplates / entry.path().filename();
    if (entry.path().extension() != ".jinja" || fs::exists(written)) continue;
    fs::create_directories(written.parent_path());
    write_file_atomic(written, read_file(entry.path()));
  }
}

}  // namespace danlu::weights
