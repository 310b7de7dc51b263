#include "cli/engine/model_record.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "weights/tensor_source.h"

namespace danlu::cli {
namespace model_record_detail {

constexpr const char* kFile = "args.json";
constexpr const char* kMerged = "merged_adapters";
/// Names a copied template file has in a merged directory. transformers reads the first one itself.
constexpr const char* kJinjaCopy = "chat_template.jinja";
constexpr const char* kTemplatesCopy = "templates.json";

std::string text_at(const Json& record, const char* key) {
  const auto value = record.find(key);
  return value != record.end() && value->is_string() ? value->get<std::string>() : "";
}

fs::path found_from(const fs::path& directory, const std::string& file) {
  for (const fs::path& candidate : {directory / file, fs::path(file)}) {
    if (fs::is_regular_file(candidate)) return candidate;
  }
  throw ModelError(fmt::format("{}: the template file {} it names is not there",
                               (directory / kFile).string(), file),
                   {"name the template with --prompt-type (and --prompt-type-path)",
                    "请用 --prompt-type（及 --prompt-type-path）指定对话模板"});
}

/// The weights' bytes tell adapters apart: names and places change.
std::string fingerprint(const fs::path& adapter) {
  const auto source = weights::open_weights(adapter);
  if (source->tensors().empty()) return "";
  const MappedFile file(source->file_of(source->tensors().front().name));
  return fmt::format("{:016x}", hash_bytes(file.text()));
}

Json merges_of(const Json& record) {
  const auto list = record.find(kMerged);
  return list != record.end() && list->is_array() ? *list : Json::array();
}

std::string absolute_text(const fs::path& path) {
  return fs::absolute(path).lexically_normal().string();
}

}  // namespace model_record_detail

Json read_record(const fs::path& directory) {
  const fs::path file = directory / model_record_detail::kFile;
  if (!fs::is_regular_file(file)) return Json::object();
  try {
    Json record = read_json_file(file);
    if (record.is_object()) return record;
  } catch (const DataError& error) {
    throw ModelError(error.what());
  }
  throw ModelError(fmt::format("{}: must hold a JSON object", file.string()));
}

RecordedTemplate recorded_template(const Json& record, const fs::path& directory) {
  using namespace model_record_detail;
  RecordedTemplate recorded;
  // MindSpeed-LLM's name for it comes second: a record has one of them.
  for (const char* key : {"template", "prompt_type"}) {
    if (recorded.name.empty()) recorded.name = text_at(record, key);
  }
  if (!recorded.is_named()) return recorded;
  if (recorded.name.ends_with(".jinja"))
    recorded.name = found_from(directory, recorded.name).string();
  const std::string file = text_at(record, "templates_file");
  if (!file.empty()) recorded.templates_file = found_from(directory, file);
  return recorded;
}

bool warn_if_merged_already(const fs::path& base, const fs::path& adapter) {
  using namespace model_record_detail;
  const Json merges = merges_of(read_record(base));
  if (merges.empty()) return false;
  const std::string ours = fingerprint(adapter);
  for (const Json& merge : merges) {
    if (!merge.is_object() || text_at(merge, "fingerprint") != ours) continue;
    log::warning(
        "{} already holds this adapter (its {} says it was merged from {}): adding it again "
        "doubles its effect",
        base.string(), kFile, text_at(merge, "adapter"));
    return true;
  }
  return false;
}

void write_merged_record(const fs::path& directory, const fs::path& base, const fs::path& adapter) {
  using namespace model_record_detail;
  const Json of_base = read_record(base), of_adapter = read_record(adapter);
  const bool by_adapter = !of_adapter.empty();
  Json record = by_adapter ? of_adapter : of_base;
  const RecordedTemplate recorded = recorded_template(record, by_adapter ? adapter : base);
  if (recorded.name.ends_with(".jinja")) {
    write_file_atomic(directory / kJinjaCopy, read_file(recorded.name));
    record["template"] = "auto";
  }
  if (!recorded.templates_file.empty()) {
    write_file_atomic(directory / kTemplatesCopy, read_file(recorded.templates_file));
    record["templates_file"] = kTemplatesCopy;
  }
  Json merges = merges_of(of_base);
  merges.push_back({{"adapter", absolute_text(adapter)},
                    {"base", absolute_text(base)},
                    {"fingerprint", fingerprint(adapter)}});
  record[kMerged] = std::move(merges);
  write_json_file(directory / kFile, record);
}

}  // namespace danlu::cli
