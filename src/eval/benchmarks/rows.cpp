#include "eval/benchmarks/rows.h"

#include <map>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "eval/benchmarks/prompt_template.h"

namespace danlu::eval {
namespace {

constexpr std::string_view kThink = "Let's think step by step.";

bool is_of_type(const Json& value, std::string_view type) {
  if (type == "text") return value.is_string();
  if (type == "integer") return value.is_number_integer();
  if (type == "boolean") return value.is_boolean();
  if (type != "texts") return true;
  if (!value.is_array() || value.empty()) return false;
  for (const Json& element : value) {
    if (!element.is_string()) return false;
  }
  return true;
}

/// What the file calls it: "Question" of "=Question"; of a template both.
std::string name_in_file(const Layout& layout, const std::string& field) {
  const auto source = layout.fields.find(field);
  if (source == layout.fields.end()) return field;
  return source->second.starts_with('=') ? source->second.substr(1)
                                         : field + " = " + source->second;
}

void check_row(const Benchmark& benchmark, const Layout& layout, const Json& row,
               const std::string& place) {
  for (const auto& [field, type] : benchmark.row) {
    const bool may_be_null = type.ends_with('?');
    const std::string wanted = type.substr(0, type.size() - (may_be_null ? 1 : 0));
    const auto value = row.find(field);
    if (value == row.end() || value->is_null()) {
      if (may_be_null) continue;
      throw DataError(tr("{}: the field '{}' is missing; the row has: {}", place,
                         name_in_file(layout, field), field_names(row)));
    }
    if (!is_of_type(*value, wanted)) {
      throw DataError(tr("{}: the field '{}' must be {}, got {}", place,
                         name_in_file(layout, field), wanted, dump_text(*value).substr(0, 80)));
    }
  }
}

/// The fields of a layout, their templates parsed once.
class UniformFields {
 public:
  UniformFields(const Benchmark& benchmark, const Layout& layout)
      : benchmark_(benchmark), layout_(layout) {
    for (const auto& [field, source] : layout.fields) {
      if (!source.starts_with('='))
        templates_.emplace(field, PromptTemplate(source, benchmark.name + ": " + field));
    }
  }

  Json row_of(const Json& raw, const std::string& place) const {
    if (layout_.fields.empty()) {
      check_row(benchmark_, layout_, raw, place);
      return raw;
    }
    Json row = Json::object();
    for (const auto& [field, source] : layout_.fields) {
      if (const auto made = templates_.find(field); made != templates_.end()) {
        row[field] = made_of(made->second, field, raw, place);
        continue;
      }
      const auto value = raw.find(source.substr(1));
      if (value == raw.end()) {
        if (may_be_absent(field)) continue;
        throw DataError(tr("{}: the field '{}' is missing; the row has: {}", place,
                           source.substr(1), field_names(raw)));
      }
      row[field] = *value;
    }
    check_row(benchmark_, layout_, row, place);
    return row;
  }

 private:
  Json made_of(const PromptTemplate& source, const std::string& field, const Json& raw,
               const std::string& place) const {
    try {
      return source.value(raw, place);
    } catch (const DataError& error) {
      throw DataError(error.what(), tr("'{}' is made of the file's fields by {}", field,
                                       layout_.fields.at(field)));
    }
  }

  bool may_be_absent(const std::string& field) const {
    for (const auto& [name, type] : benchmark_.row) {
      if (name == field) return type.ends_with('?');
    }
    return false;
  }

  const Benchmark& benchmark_;
  const Layout& layout_;
  std::map<std::string, PromptTemplate> templates_;
};

Rows read_split(const Benchmark& benchmark, const Task& task, const Layout& layout,
                const DataTree& tree, const std::string& split) {
  const std::vector<fs::path> files = tree.files(layout, split, task.subject);
  const fs::path& place = files.size() == 1 ? files.front() : tree.path();
  const std::string origin = tr("{}, split {} of {}", task.name, split, place.string());
  if (!files.empty() && files.front().extension() == ".txt")
    return question_answer_rows(read_file(files.front()), files.front().string());
  Rows out{.rows = {}, .origin = origin, .head = ""};
  const UniformFields fields(benchmark, layout);
  for (const Json& raw : tree.rows(layout, split, task.subject)) {
    try {
      out.rows.push_back(fields.row_of(raw, origin));
    } catch (const DataError&) {
      // The same again, with the line, which is not looked up for every row.
      (void)fields.row_of(raw, tree.place_of_row(layout, split, task.subject, out.rows.size()));
      throw;
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> needed_splits(const Task& task, int64_t num_shots) {
  std::vector<std::string> splits = {task.test_split};
  if (num_shots > 0 && task.fixed_shots.empty() && !task.fewshot_split.empty() &&
      task.fewshot_split != task.test_split) {
    splits.push_back(task.fewshot_split);
  }
  return splits;
}

TaskRows read_rows(const Benchmark& benchmark, const Task& task, const Layout& layout,
                   const DataTree& tree, int64_t num_shots) {
  TaskRows out;
  out.test = read_split(benchmark, task, layout, tree, task.test_split);
  if (num_shots == 0) return out;
  if (!task.fixed_shots.empty()) {
    out.shots = {
        .rows = task.fixed_shots, .origin = tr("{}, its own shots", task.name), .head = ""};
  } else if (task.fewshot_split == task.test_split) {
    out.shots = out.test;
  } else if (!task.fewshot_split.empty()) {
    out.shots = read_split(benchmark, task, layout, tree, task.fewshot_split);
  }
  return out;
}

Rows question_answer_rows(const std::string& text, const std::string& origin) {
  Rows out{.rows = {}, .origin = origin, .head = ""};
  std::string_view rest = text;
  if (const size_t line = rest.find("-----\n"); line != rest.npos) rest.remove_prefix(line + 6);
  constexpr std::string_view kQuestion = "Q: ", kBetween = "\n\nQ: ", kAnswer = "\nA:";
  size_t begin = 0;
  if (!rest.starts_with(kQuestion)) {
    begin = rest.find(kBetween);
    if (begin == rest.npos) throw DataError(tr("{}: holds no question (a line `Q: …`)", origin));
    out.head = rest.substr(0, begin);
    begin += 2;
  }
  while (begin != rest.npos) {
    const size_t next = rest.find(kBetween, begin);
    const std::string_view block = rest.substr(begin, next == rest.npos ? next : next - begin);
    begin = next == rest.npos ? next : next + 2;
    const size_t answer = block.find(kAnswer);
    if (answer == block.npos) {
      throw DataError(
          tr("{}: the question '{}' has no line `A: …`", origin, std::string(block.substr(0, 40))));
    }
    std::string_view target = block.substr(answer + kAnswer.size());
    if (target.starts_with(' ')) target.remove_prefix(1);
    if (target.starts_with(kThink)) target.remove_prefix(kThink.size());
    while (target.starts_with('\n')) target.remove_prefix(1);
    while (target.ends_with('\n')) target.remove_suffix(1);
    out.rows.push_back(
        {{"input", block.substr(kQuestion.size(), answer - kQuestion.size())}, {"target", target}});
  }
  return out;
}

std::vector<Json> read_shots_file(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  std::vector<Json> rows;
  if (path.extension() == ".txt") return question_answer_rows(text, path.string()).rows;
  if (path.extension() == ".json") {
    const Json list = parse_json(text, path.string());
    if (!list.is_array()) throw DataError(tr("{}: expected a list of rows", path.string()));
    for (const Json& row : list) rows.push_back(row);
  } else {
    size_t number = 0;
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      const std::string_view line = std::string_view(text).substr(at, end - at);
      at = end + 1;
      ++number;
      if (line.find_first_not_of(" \t\r") == line.npos) continue;
      rows.push_back(parse_json(line, tr("{}, line {}", path.string(), number)));
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].is_object())
      throw DataError(tr("{}: row {} is no map of fields", path.string(), i + 1));
  }
  if (rows.empty()) throw DataError(tr("{}: holds no rows", path.string()));
  return rows;
}

}  // namespace danlu::eval
