#include "text/template_record.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "text/template_file.h"

namespace danlu::text {
namespace {

fs::path found_from(const fs::path& directory, const std::string& file) {
  for (const fs::path& candidate : {directory / file, fs::path(file)}) {
    if (fs::is_regular_file(candidate)) return candidate;
  }
  throw ModelError(tr("{}: the template file {} it names is not there",
                      (directory / kRecordFile).string(), file),
                   tr("name the template with --template (and --prompt-type-path)"));
}

}  // namespace

std::string recorded_text(const Json& record, const char* key) {
  const auto value = record.find(key);
  return value != record.end() && value->is_string() ? value->get<std::string>() : "";
}

Json read_record(const fs::path& directory) {
  const fs::path file = directory / kRecordFile;
  if (!fs::is_regular_file(file)) return Json::object();
  try {
    Json record = read_json_file(file);
    if (record.is_object()) return record;
  } catch (const DataError& error) {
    throw ModelError(error.what());
  }
  throw ModelError(tr("{}: must hold a JSON object", file.string()));
}

bool was_plain(const Json& record) {
  return recorded_text(record, "template") == kPlainTexts ||
         !json_get<bool>(record, "use_chat_template").value_or(true);
}

fs::path directory_of_record(const fs::path& model, const fs::path& adapter) {
  return !adapter.empty() && fs::exists(adapter / kRecordFile) ? adapter : model;
}

RecordedTemplate recorded_template(const Json& record, const fs::path& directory) {
  RecordedTemplate recorded;
  // MindSpeed-LLM's name for it comes second: a record has one of them.
  for (const char* key : {"template", "prompt_type"}) {
    if (recorded.name.empty()) recorded.name = recorded_text(record, key);
  }
  if (recorded.name == kPlainTexts) recorded.name.clear();
  if (!recorded.is_named()) return recorded;
  if (recorded.name.ends_with(".jinja"))
    recorded.name = found_from(directory, recorded.name).string();
  const std::string file = recorded_text(record, "templates_file");
  if (!file.empty()) recorded.templates_file = found_from(directory, file);
  return recorded;
}

std::string template_of_earlier_run(const Json& record, const std::string& now) {
  if (!now.starts_with(kOfLlamaFactory)) return now;
  const std::string plain = now.substr(kOfLlamaFactory.size());
  const bool is_of_before = recorded_text(record, "template") == plain &&
                            recorded_text(record, "profile") == "llamafactory";
  return is_of_before ? plain : now;
}

}  // namespace danlu::text
