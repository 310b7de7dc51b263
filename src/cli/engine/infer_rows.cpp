#include "cli/engine/infer_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "cli/engine/dataset_rows.h"
#include "cli/engine/prompt_media.h"
#include "data/preprocess_run.h"
#include "data/readers/text_encoding.h"

namespace danlu::cli {
namespace {

bool is_blank(const std::string& line) {
  return line.find_first_not_of(" \t\r") == std::string::npos;
}

Question blank_question() {
  Question question;
  question.is_blank = true;
  return question;
}

/// The last labelled run is the answer; everything before it the prompt, all of it if none is.
void split_tokens(const data::TokenRow& row, Question& question) {
  size_t end = row.labels.size();
  while (end > 0 && row.labels[end - 1] == kIgnoreLabel) --end;
  if (end == 0) end = row.labels.size();
  size_t begin = end;
  while (begin > 0 && row.labels[begin - 1] != kIgnoreLabel) --begin;
  question.prompt_ids.assign(row.ids.begin(), row.ids.begin() + static_cast<std::ptrdiff_t>(begin));
  question.reference_ids.assign(row.ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                row.ids.begin() + static_cast<std::ptrdiff_t>(end));
}

Question question_of(data::Row row) {
  Question question;
  if (auto* text_row = std::get_if<data::TextRow>(&row)) {
    question.plain = text_row->texts.empty() ? "" : text_row->texts.front();
  } else if (auto* conversation = std::get_if<text::Conversation>(&row)) {
    question.conversation = std::move(*conversation);
    std::vector<text::Message>& messages = question.conversation.messages;
    if (!messages.empty() && messages.back().role == "assistant") {
      question.reference = messages.back().content;
      messages.pop_back();
    }
  } else {
    split_tokens(std::get<data::TokenRow>(row), question);
  }
  return question;
}

std::vector<Question> read_dataset(const data::PlannedDataset& planned, int64_t limit,
                                   double max_dropped_ratio) {
  std::vector<Question> questions;
  const auto add = [&](Question question, RowPlace place) {
    questions.push_back(std::move(question));
    questions.back().place = std::move(place.text);
    questions.back().folder = std::move(place.folder);
  };
  RowTaker taker;
  taker.wants_more = [&] { return limit == 0 || std::ssize(questions) < limit; };
  taker.take = [&](data::Row row, RowPlace place) {
    add(question_of(std::move(row)), std::move(place));
  };
  taker.take_blank = [&](RowPlace place) { add(blank_question(), std::move(place)); };
  each_row(planned, max_dropped_ratio, taker);
  return questions;
}

std::vector<Question> read_lines(std::istream& in, int64_t limit) {
  std::vector<Question> questions;
  std::string line;
  for (int64_t number = 1;
       (limit == 0 || static_cast<int64_t>(questions.size()) < limit) && std::getline(in, line);
       ++number) {
    Question question;
    question.is_blank = is_blank(line);
    if (!question.is_blank) question.plain = line;
    question.place = fmt::format("<stdin>:{}", number);
    questions.push_back(std::move(question));
  }
  return questions;
}

/// A prompt that has pictures is a conversation.
void add_given_media(const Options& options, const data::MediaSettings& media, Question* question) {
  text::Message message = message_with_media(question->plain, given_media(options), media,
                                             /*holds_files=*/false, options.given_as("prompt"));
  if (message.media.empty()) return;
  question->conversation.messages.push_back(std::move(message));
  question->plain.clear();
}

}  // namespace

std::string held_out_file(const std::string& checkpoint_directory, const Json& run_args) {
  const fs::path checkpoint = fs::path(checkpoint_directory);
  for (const fs::path& candidate : {checkpoint / "val_dataset.jsonl",
                                    fs::absolute(checkpoint).parent_path() / "val_dataset.jsonl"}) {
    if (fs::exists(candidate)) return candidate.string();
  }
  if (const auto named = json_get<Json>(run_args, "val_dataset");
      named && named->is_array() && !named->empty())
    return named->front().get<std::string>();
  throw DataError(
      tr("[--load_dataset_config] {}: the run kept no validation rows (val_dataset.jsonl)",
         checkpoint_directory),
      tr("name the rows with --dataset FILE"));
}

Questions read_questions(const Options& options, const Json& run_args,
                         const std::string& checkpoint_directory,
                         const data::MediaSettings* media) {
  const int64_t limit = std::max<int64_t>(0, options.get_int_or("max_samples", 0));
  Questions found;
  std::vector<Question>& questions = found.rows;
  if (options.has_value("prompt")) {
    questions.emplace_back();
    questions.back().plain = options.get_string("prompt");
    data::require_utf8_argument(options.given_as("prompt"), questions.back().plain);
    questions.back().place = "--prompt";
    if (media) add_given_media(options, *media, &questions.back());
  } else if (const GivenMedia given = given_media(options); !given.empty()) {
    throw UsageError(tr("[{}] goes with a prompt, and there is none",
                        options.given_as(given.images.empty() ? "video" : "image")),
                     tr("add --prompt TEXT; rows of a data set name their own pictures"));
  }
  data::FormatOptions format;
  format.answers_optional = true;
  format.reads_media = media != nullptr;
  if (options.has_value("handler_name")) format.handler_name = options.get_string("handler_name");
  if (options.has_value("columns")) {
    // MindSpeed maps roles to columns, ms-swift columns to roles; both mean the same to the reader.
    const Json columns = options.get_json("columns");
    (columns.contains("prompt") || columns.contains("tags") || columns.contains("messages")
         ? format.map_keys
         : format.columns) = columns;
  }
  std::vector<std::string> names;
  if (options.has_value("dataset")) names = options.get_list("dataset");
  if (options.get_bool_or("load_dataset_config", false))
    names.push_back(held_out_file(checkpoint_directory, run_args));
  std::vector<std::string> files = names;
  std::erase(files, "-");
  const std::vector<data::PlannedDataset> plan =
      files.empty() ? std::vector<data::PlannedDataset>{}
                    : data::plan_datasets(files, format, options.get_string_or("dataset_dir", ""));
  for (const data::PlannedDataset& planned : plan) {
    for (const data::DataFile& file : planned.dataset.files) found.files.push_back(file.path);
  }
  const double max_dropped_ratio =
      options.get_float_or("max_dropped_ratio", data::kMaxDroppedRatio);
  auto planned = plan.begin();
  for (const std::string& name : names) {
    std::vector<Question> more = name == "-" ? read_lines(std::cin, limit)
                                             : read_dataset(*planned++, limit, max_dropped_ratio);
    questions.insert(questions.end(), std::make_move_iterator(more.begin()),
                     std::make_move_iterator(more.end()));
  }
  const bool is_useless = std::all_of(questions.begin(), questions.end(),
                                      [](const Question& question) { return question.is_blank; });
  if (is_useless && !names.empty()) {
    throw DataError(tr("[--dataset] {}: no usable row", names.front()));
  }
  return found;
}

}  // namespace danlu::cli
