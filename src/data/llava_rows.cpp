#include "data/llava_rows.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/new_output.h"
#include "data/formats/columns.h"
#include "data/readers/row_json.h"
#include "data/readers/row_reader.h"

namespace danlu::data {
namespace {

/// Converts one row after the other.
class LlavaRows {
 public:
  explicit LlavaRows(const LlavaRowsSpec& spec)
      : spec_(spec), dataset_(resolve_dataset(spec.input)) {
    report_.datasets = {fmt::format("{}: {}", spec.input, dataset_.summary)};
  }

  PreprocessReport write(AtomicFile* file) {
    RowReader reader(dataset_);
    file->write("[");
    for (std::vector<RawRow> block; reader.next_block(&block); block.clear()) {
      for (const RawRow& row : block) {
        if (const int signal = pending_interrupt()) throw_interrupted(signal, "stopped");
        take(row, file);
      }
    }
    file->write("\n]\n");
    return std::move(report_);
  }

  std::vector<fs::path> inputs() const {
    std::vector<fs::path> paths;
    for (const DataFile& file : dataset_.files) paths.push_back(file.path);
    return paths;
  }

 private:
  void take(const RawRow& raw, AtomicFile* file) {
    ++report_.rows_read;
    if (!raw.is_json) refuse(raw, tr("the row is plain text"));
    const Json row = parse_row(dataset_, raw);
    Json converted = {{"images", Json::array()}, {"messages", messages_of(raw, row)}};
    for (const std::string& name : pictures_of(raw, row)) {
      const fs::path picture = spec_.image_dir / name;
      std::error_code ignored;
      if (!fs::is_regular_file(picture, ignored)) return drop(raw, picture);
      converted["images"].push_back(picture.string());
    }
    file->write(report_.rows_kept++ == 0 ? "\n" : ",\n");
    file->write(dump_text(converted));
  }

  void drop(const RawRow& raw, const fs::path& picture) {
    const std::string place = row_place(dataset_, raw.file, raw.index);
    if (spec_.strict) {
      throw DataError(tr("{}: there is no {}", place, picture.string()),
                      tr("without --strict such rows are dropped and counted"));
    }
    count_reason(&report_.dropped, "missing file", [&] { return place + ": " + picture.string(); });
  }

  [[noreturn]] void refuse(const RawRow& raw, const std::string& why) const {
    throw DataError(tr("{}: {}", row_place(dataset_, raw.file, raw.index), why),
                    tr("LLaVA's rows are {{\"image\": …, \"conversations\": [{{\"from\": "
                       "\"human\", \"value\": …}}, …]}}"));
  }

  std::vector<std::string> pictures_of(const RawRow& raw, const Json& row) const {
    const Json* image = find_value(row, "image");
    if (!image) return {};
    std::vector<std::string> names;
    for (const Json& name : image->is_array() ? *image : Json::array({*image})) {
      if (!name.is_string()) refuse(raw, tr("\"image\" is {}", kind_of(name)));
      names.push_back(name.get<std::string>());
    }
    return names;
  }

  Json messages_of(const RawRow& raw, const Json& row) const {
    const Json* list = row.is_object() ? find_value(row, "conversations") : nullptr;
    if (!list || !list->is_array()) refuse(raw, tr("\"conversations\" is no list"));
    Json messages = Json::array();
    for (const Json& message : *list) {
      const Json* from = message.is_object() ? find_value(message, "from") : nullptr;
      const Json* value = message.is_object() ? find_value(message, "value") : nullptr;
      if (!from || !from->is_string() || !value || !value->is_string())
        refuse(raw, tr("a message without \"from\" and \"value\""));
      const std::string& role = from->get_ref<const std::string&>();
      if (role != "human" && role != "gpt")
        refuse(raw, tr("the role \"{}\" is neither human nor gpt", role));
      messages.push_back({{"role", role == "human" ? "user" : "assistant"}, {"content", *value}});
    }
    return messages;
  }

  const LlavaRowsSpec& spec_;
  Dataset dataset_;
  PreprocessReport report_;
};

void require_free(const fs::path& output) {
  if (!is_taken(place_of(output))) return;
  throw UsageError(tr("[output] {} exists, and is never replaced", output.string()),
                   tr("choose another name"));
}

}  // namespace

PreprocessReport convert_llava_rows(const LlavaRowsSpec& spec) {
  const fs::path output = place_of(spec.output);
  const MadeDirectory parent = parent_of(output);
  // Before the refusal: one that was killed after its last word has left its lock's file.
  const FileLock lock = lock_output(output);
  require_free(spec.output);
  LlavaRows rows(spec);
  refuse_to_replace_inputs(output, rows.inputs());
  AtomicFile file(output);
  PreprocessReport report = rows.write(&file);
  judge_dropped(&report, spec.max_dropped_ratio);
  file.commit();
  return report;
}

}  // namespace danlu::data
