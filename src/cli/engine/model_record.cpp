#include "cli/engine/model_record.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "text/template_record.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/megatron/names.h"

namespace danlu::cli {
namespace {

constexpr const char* kMerged = "merged_adapters";
/// Names a copied template file has in a merged directory. transformers reads the first one itself.
constexpr const char* kJinjaCopy = "chat_template.jinja";
constexpr const char* kTemplatesCopy = "templates.json";

/// The weights' bytes tell adapters apart: names and places change.
std::string fingerprint(const fs::path& adapter) {
  if (weights::detect_format(adapter) == weights::Format::kMegatron) {
    const auto place = weights::megatron::find_checkpoint(adapter);
    const fs::path first = place.directory / place.ranks.front() / weights::megatron::kModelFile;
    return fmt::format("{:016x}", hash_bytes(MappedFile(first).text()));
  }
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

}  // namespace

bool warn_if_merged_already(const fs::path& base, const fs::path& adapter) {
  const Json merges = merges_of(text::read_record(base));
  if (merges.empty()) return false;
  const std::string ours = fingerprint(adapter);
  for (const Json& merge : merges) {
    if (!merge.is_object() || text::recorded_text(merge, "fingerprint") != ours) continue;
    log::warning(
        "{} already holds this adapter (its {} says it was merged from {}): adding it again "
        "doubles its effect",
        base.string(), text::kRecordFile, text::recorded_text(merge, "adapter"));
    return true;
  }
  return false;
}

void write_merged_record(const fs::path& directory, const fs::path& base, const fs::path& adapter) {
  const Json of_base = text::read_record(base), of_adapter = text::read_record(adapter);
  const bool by_adapter = !of_adapter.empty();
  Json record = by_adapter ? of_adapter : of_base;
  const text::RecordedTemplate recorded =
      text::recorded_template(record, by_adapter ? adapter : base);
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
  write_json_file(directory / text::kRecordFile, record);
}

}  // namespace danlu::cli
