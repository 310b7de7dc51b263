#include "data/formats/row_format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/lower_case.h"
#include "base/nearest_name.h"
#include "data/formats/layouts.h"
#include "data/formats/media.h"
#include "data/formats/preference_handlers.h"
#include "data/formats/preference_layouts.h"
#include "data/formats/unread_columns.h"

namespace danlu::data {
namespace {

/// What a handler's name says of rows.
struct NamedLayout {
  std::optional<RowFormat> format = {};  ///< empty: detected
  std::optional<SampleKind> kind = {};   ///< empty: what is being trained
  NamedPrompts prompts = NamedPrompts::kNone;
};

/// MindSpeed's names, and a short one each. LlamaFactoryInstructionHandler leaves the choice to
/// dataset_info.json, which was looked at before.
const std::map<std::string, NamedLayout>& available_handlers() {
  static const std::map<std::string, NamedLayout> kHandlers{
      {"GeneralPretrainHandler", {RowFormat::kText}},
      {"AlpacaStyleInstructionHandler", {RowFormat::kAlpaca}},
      {"SharegptStyleInstructionHandler", {RowFormat::kShareGpt}},
      {"OpenAIInstructionHandler", {RowFormat::kMessages}},
      {"LlamaFactoryInstructionHandler", {}},
      {"AlpacaStylePairwiseHandler", {RowFormat::kAlpaca, SampleKind::kPairs}},
      {"SharegptStylePairwiseHandler", {RowFormat::kShareGpt, SampleKind::kPairs}},
      {"AlpacaStyleProcessRewardHandler", {RowFormat::kSteps, SampleKind::kSteps}},
      {"PPOAlpacaStyleInstructionHandler",
       {RowFormat::kAlpaca, SampleKind::kPrompts, NamedPrompts::kAnswer}},
      {"R1AlpacaStyleInstructionHandler",
       {RowFormat::kAlpaca, SampleKind::kPrompts, NamedPrompts::kAnswer}},
      {"R1SharegptStyleInstructionHandler",
       {RowFormat::kShareGpt, SampleKind::kPrompts, NamedPrompts::kAnswer}},
      {"Math17kAlpacaStyleInstructionHandler",
       {RowFormat::kMessages, SampleKind::kPrompts, NamedPrompts::kMath17k}},
      {"text", {RowFormat::kText}},
      {"alpaca", {RowFormat::kAlpaca}},
      {"sharegpt", {RowFormat::kShareGpt}},
      {"messages", {RowFormat::kMessages}},
      {"query_response", {RowFormat::kQueryResponse}},
      {"tokens", {RowFormat::kTokens}}};
  return kHandlers;
}

/// Handlers that exist elsewhere and why they are not here.
const std::map<std::string, std::string>& unavailable_handlers() {
  static const std::string kOneDataset = "reads one particular data set in a wording of its own; ";
  static const std::map<std::string, std::string> kHandlers{
      {"AlpacaPretrainHandler",
       tr("{}use GeneralPretrainHandler with --json-keys, or AlpacaStyleInstructionHandler",
          kOneDataset)},
      {"StackOverflowPythonPretrainHandler",
       tr("{}use GeneralPretrainHandler with --json-keys", kOneDataset)},
      {"GeneralInstructionHandler",
       tr("{}use AlpacaStyleInstructionHandler with --prompt-type alpaca", kOneDataset)},
      {"HunyuanInstructionHandler",
       "is AlpacaStyleInstructionHandler with the tokenizer's own template; use that one without "
       "--prompt-type"},
      {"BelleMultiTurnInstructionHandler",
       tr("{}use SharegptStyleInstructionHandler", kOneDataset)},
      {"MOSSMultiTurnHandler", tr("{}use SharegptStyleInstructionHandler", kOneDataset)},
      {"MOSSInstructionHandler", tr("{}use SharegptStyleInstructionHandler", kOneDataset)},
      {"LeetcodePythonInstructionHandler", tr("{}use AlpacaStyleInstructionHandler", kOneDataset)}};
  return kHandlers;
}

NamedLayout layout_by_name(const std::string& name) {
  if (name.empty()) return {};
  std::vector<std::string> names;
  for (const auto& [known, layout] : available_handlers()) {
    if (lower_case(known) == lower_case(name)) return layout;
    names.push_back(known);
  }
  for (const auto& [known, reason] : unavailable_handlers()) {
    if (lower_case(known) == lower_case(name))
      throw UsageError(tr("[handler_name] {} {}", known, reason));
  }
  std::string hint = tr("known: {}", fmt::join(names, ", "));
  if (const auto near = nearest_name(name, names)) {
    hint = tr("did you mean {}?", *near);
  }
  throw UsageError(tr("[handler_name] unknown handler \"{}\"", name), hint);
}

void refuse_preference_pairs(const FirstRows& first) {
  for (const char* column : {"rejected", "rejected_response", "rejected_messages"}) {
    if (!first.has(column)) continue;
    throw UsageError(
        tr("[dataset] column \"{}\": preference pairs belong to preference training", column),
        tr("{}; to train on one side only, map it: --map-keys or --columns",
           hint_for_kind(SampleKind::kPairs)));
  }
}

/// MindSpeed's preprocess_data.py reads `text` where no handler is named, whatever else is there.
/// False: rows have no such column. Says so where another handler would fit too.
bool takes_text(const FirstRows& first) {
  if (!first.has("text")) return false;
  const char* other = nullptr;
  if (first.has("messages")) {
    other = "OpenAIInstructionHandler";
  } else if (first.has("conversation") || first.has("conversations")) {
    other = "SharegptStyleInstructionHandler";
  } else if (first.has("instruction") && (first.has("input") || first.has("output"))) {
    other = "AlpacaStyleInstructionHandler";
  }
  if (other) {
    log::notice(
        "rows have {}: column \"text\" is taken, as MindSpeed does without a handler; "
        "--handler-name {} takes the others",
        first.listed(), other);
  }
  return true;
}

std::unique_ptr<RowHandler> detect(const FirstRows& first, const FormatOptions& options) {
  refuse_preference_pairs(first);
  if (first.has("input_ids")) return token_layout(first, options);
  if (options.text_first && takes_text(first))
    return make_text_handler({first.names.actual("text")});
  if (first.has("messages") || first.has("conversation") || first.has("conversations")) {
    return messages_layout(first, options, std::nullopt);
  }
  if (first.has("instruction") && first.has("input")) return alpaca_layout(first, options);
  if (auto handler = query_response_layout(first, false, options.answers_optional)) return handler;
  for (const char* column : {"text", "response", "content"}) {
    if (first.has(column)) return make_text_handler({first.names.actual(column)});
  }
  if (!first.rows.empty() && first.rows[0].is_string()) return make_text_handler({"text"});
  if (first.columns.empty() && !first.rows.empty()) {
    throw DataError(
        tr("[dataset] rows have no columns: the first is {}",
           first.rows[0].empty() && !first.rows[0].is_null() ? "empty" : kind_of(first.rows[0])),
        tr("a row is an object such as {{\"instruction\": \"…\", \"output\": \"…\"}}"));
  }
  throw DataError(tr("[dataset] no known layout has these columns: {}", first.listed()),
                  tr("say what they mean: --handler-name with --map-keys, --columns, or "
                     "--json-keys for plain text"));
}

/// {} or {"instruction": null, "output": null}.
bool has_no_value(const Json& row) {
  return row.is_object() &&
         std::all_of(row.begin(), row.end(), [](const Json& value) { return value.is_null(); });
}

std::unique_ptr<RowHandler> instruction_layout(const FirstRows& first, const FormatOptions& options,
                                               std::optional<RowFormat> wanted) {
  if (!wanted) return detect(first, options);
  switch (*wanted) {
    case RowFormat::kText:
      return text_layout(first, options.json_keys);
    case RowFormat::kAlpaca:
      return alpaca_layout(first, options);
    case RowFormat::kQueryResponse:
      return query_response_layout(first, true, options.answers_optional);
    case RowFormat::kShareGpt:
    case RowFormat::kMessages:
      return messages_layout(first, options, wanted);
    case RowFormat::kTokens:
      return token_layout(first, options);
    case RowFormat::kSteps:
      break;
  }
  throw InternalError("a row format without a handler");
}

/// The kind that a handler's name, dataset_info.json or mapped roles say; empty: none of them does.
std::optional<SampleKind> kind_said(const NamedLayout& named, const FormatOptions& options) {
  if (named.kind) return named.kind;
  if (options.ranking) return SampleKind::kPairs;
  if (!options.map_keys.is_object()) return std::nullopt;
  if (options.map_keys.contains("chosen") || options.map_keys.contains("rejected"))
    return SampleKind::kPairs;
  if (options.map_keys.contains("kto_tag")) return SampleKind::kUnpaired;
  return std::nullopt;
}

/// Errors: UsageError if the rows are said to be of another kind than they are to be.
SampleKind kind_of_rows(const NamedLayout& named, const FirstRows& first,
                        const FormatOptions& options) {
  const auto said = kind_said(named, options);
  if (said && options.kind && *said != *options.kind) {
    const std::string are = sample_kind_description(*said),
                      needed = sample_kind_description(*options.kind);
    throw UsageError(named.kind
                         ? tr("[handler_name] {}: the rows are {}, and {} are needed here",
                              options.handler_name, are, needed)
                         : tr("[dataset] the rows are {}, and {} are needed here", are, needed),
                     hint_for_kind(*said));
  }
  if (said) return *said;
  return options.kind ? *options.kind : detected_kind(first);
}

std::unique_ptr<RowHandler> choose_handler(const FormatOptions& options,
                                           const std::vector<Json>& first_rows, bool plain_text) {
  const NamedLayout named = layout_by_name(options.handler_name);
  std::optional<RowFormat> wanted = named.format;
  if (!wanted && !options.json_keys.empty()) wanted = RowFormat::kText;
  if (plain_text) {
    if (wanted && wanted != RowFormat::kText)
      throw UsageError(tr("[handler_name] {}: .txt files hold plain text", options.handler_name));
    auto texts = make_text_handler({options.json_keys.size() == 1 ? options.json_keys[0] : "text"});
    const SampleKind kind = options.kind.value_or(SampleKind::kTokens);
    if (kind == SampleKind::kTokens) return texts;
    if (kind == SampleKind::kPrompts) return make_prompts_handler(std::move(texts), {});
    if (kind == SampleKind::kGroups && options.answers_optional)
      return make_group_handler({.anchor = std::move(texts)}, {});
    if (kind == SampleKind::kLabelled && options.answers_optional)
      return make_labelled_handler(std::move(texts), "");
    throw UsageError(tr("[dataset] .txt files hold plain text, and {} are needed here",
                        sample_kind_description(kind)),
                     hint_for_kind(SampleKind::kTokens));
  }
  const FirstRows first(first_rows, options.columns);
  if (!wanted && options.map_keys.contains("messages")) wanted = RowFormat::kShareGpt;
  if (!wanted && !options.map_keys.empty()) wanted = RowFormat::kAlpaca;
  switch (kind_of_rows(named, first, options)) {
    case SampleKind::kTokens:
      return instruction_layout(first, options, wanted);
    case SampleKind::kPairs:
      return pairs_layout(first, options, wanted);
    case SampleKind::kUnpaired:
      return unpaired_layout(first, options, wanted);
    case SampleKind::kSteps:
      return steps_layout(first, options);
    case SampleKind::kPrompts:
      return prompts_layout(first, options, wanted, named.prompts);
    case SampleKind::kLabelled:
      return labelled_layout(first, options, wanted);
    case SampleKind::kGroups:
      return groups_layout(first, options, wanted);
  }
  throw InternalError("a kind of rows without a handler");
}

}  // namespace

bool RowHandler::needs_template() const {
  const RowFormat layout = format();
  return layout != RowFormat::kText && layout != RowFormat::kTokens && layout != RowFormat::kSteps;
}

RowResult RowHandler::read(const Json& row) const {
  if (has_no_value(row)) return RowProblem{"no column has a value", row.empty() ? "{}" : ""};
  if (const auto what = media_in(row, text_is_named_, media_columns_ ? &*media_columns_ : nullptr))
    media_columns_ ? refuse_unread_media(*what) : refuse_media(*what);
  refuse_late_columns(row);
  RowResult result = read_row(row);
  RowProblem problem;
  Row* read = std::get_if<Row>(&result);
  if (read) teach_names(row, read);
  if (read && !add_media(row, read, &problem)) return problem;
  return result;
}

/// Before pictures are placed, whose offsets count from what stands there in the end.
void RowHandler::teach_names(const Json& row, Row* read) const {
  auto* conversation = std::get_if<text::Conversation>(read);
  if (conversation && !names_.empty()) put_names(names_, row, *conversation);
}

/// False: *problem is set.
bool RowHandler::add_media(const Json& row, Row* read, RowProblem* problem) const {
  if (!media_columns_ || !row.is_object()) return true;
  if (auto* conversation = std::get_if<text::Conversation>(read))
    return attach_media(row, *media_columns_, adds_tags_, conversation, problem);
  const auto what = media_in(row, text_is_named_);
  if (what) *problem = {"pictures or videos beside text that is no conversation", *what};
  return !what;
}

void RowHandler::refuse_late_columns(const Json& row) const {
  if (!row.is_object()) return;
  for (const auto& [column, value] : row.items()) {
    if (value.is_null() || !late_columns_.contains(column)) continue;
    throw DataError(
        tr("column \"{}\" is not part of {}, the layout of the first rows, which lack it", column,
           description()),
        tr("give all rows the same columns, in a file of their own, or name the layout: "
           "--handler-name"));
  }
}

RowResult RowHandler::read_text(const std::string&) const {
  return RowProblem{"row is plain text", fmt::format("expected {}", description())};
}

void DetectionRows::add(Json row, size_t size_bytes) {
  if (has_no_value(row)) return;
  rows_.push_back(std::move(row));
  bytes_ += size_bytes;
}

std::unique_ptr<RowHandler> make_row_handler(const FormatOptions& options,
                                             const std::vector<Json>& first_rows, bool plain_text) {
  auto handler = choose_handler(options, first_rows, plain_text);
  handler->text_is_named_ = !options.json_keys.empty();
  handler->columns_ = handler->columns_read();
  handler->names_ = options.names;
  if (options.reads_media) {
    handler->media_columns_ =
        media_columns(options, ColumnNames(FirstRows::present(first_rows, options.columns)));
    // As ms-swift does. Whoever has described the columns to LLaMA-Factory or MindSpeed-MM counts
    // with the error that these make of it.
    handler->adds_tags_ =
        options.map_keys.empty() && !options.map_is_whole && options.handler_name.empty();
    handler->columns_.push_back(handler->media_columns_->objects);
    for (const auto* columns : {&handler->media_columns_->images, &handler->media_columns_->videos})
      handler->columns_.insert(handler->columns_.end(), columns->begin(), columns->end());
  }
  const bool is_named =
      !options.handler_name.empty() || !options.map_keys.empty() || !options.json_keys.empty();
  if (is_named || plain_text) return handler;
  if (handler->kind() == SampleKind::kPrompts) return handler;  // it keeps all columns
  const std::vector<std::string>& standard = standard_columns(handler->format());
  handler->late_columns_ = {standard.begin(), standard.end()};
  for (const std::string& column : handler->columns_) handler->late_columns_.erase(column);
  for (const Json& row : first_rows) {
    if (!row.is_object()) continue;
    for (const auto& [column, value] : row.items()) handler->late_columns_.erase(column);
  }
  return handler;
}

}  // namespace danlu::data
