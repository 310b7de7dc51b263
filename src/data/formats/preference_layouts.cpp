#include "data/formats/preference_layouts.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "data/formats/layouts.h"
#include "data/formats/preference_handlers.h"

namespace danlu::data {
namespace {

/// `options` whose map has only the roles of instruction rows.
FormatOptions without_roles(FormatOptions options, std::initializer_list<const char*> roles) {
  options.kind = SampleKind::kTokens;
  options.ranking = false;
  if (!options.map_keys.is_object()) return options;
  for (const char* role : roles) options.map_keys.erase(role);
  return options;
}

std::string column_or_none(const FirstRows& first, const char* standard) {
  return first.has(standard) ? first.names.actual(standard) : "";
}

/// What to do with rows that lack a column which those of `wanted` have.
std::string hint_for_rows(const FirstRows& first, SampleKind wanted) {
  const SampleKind are = detected_kind(first);
  if (are == SampleKind::kTokens || are == wanted) {
    return tr(
        "name the columns with --map-keys or --columns; rows of questions and answers alone: "
        "danlu sft");
  }
  if (wanted == SampleKind::kLabelled && are == SampleKind::kPairs) {
    return tr(
        "the rows are pairs: danlu rlhf --rlhf_type rm makes a reward model of them, "
        "--rlhf_type dpo one that answers");
  }
  return tr("the rows are {}: {}", sample_kind_description(are), hint_for_kind(are));
}

/// Errors: DataError if no row has `column`.
void require_column(const FirstRows& first, const std::string& column, SampleKind kind) {
  if (first.has_actual(column) || first.rows.empty()) return;
  throw DataError(tr("[dataset] {} have a column \"{}\"; there are: {}",
                     sample_kind_description(kind), column, first.listed()),
                  hint_for_rows(first, kind));
}

bool has_instructions(const FirstRows& first) {
  return first.has("instruction") && first.has("input");
}

bool is_messages(std::optional<RowFormat> wanted) {
  return wanted == RowFormat::kShareGpt || wanted == RowFormat::kMessages;
}

/// Answers that stand beside the messages of their prompt, in `column`.
AnswerSource behind_messages(const FirstRows& first, const FormatOptions& options,
                             std::optional<RowFormat> wanted, AnswerPlace place,
                             const std::string& column) {
  check_map_keys(options.map_keys, {"messages", "system", "tools", "tags", "images", "videos"},
                 options.map_keys_from);
  std::string fallback = messages_column(first);
  if (fallback.empty()) fallback = first.names.actual("prompt");
  Json sample = sample_message(first, mapped(options.map_keys, "messages", fallback));
  if (sample.empty()) sample = sample_message(first, column);
  MessageTags tags = message_tags(first, options, fallback, sample, wanted);
  tags.unseen = !first.rows.empty() && !first.has_actual(tags.messages);
  const RowFormat format = format_of_tags(tags);
  AnswerSource source{make_messages_handler(format, tags), place, column, {}};
  source.tags = std::move(tags);
  return source;
}

/// Instruction rows that are read by themselves.
std::shared_ptr<const RowHandler> instruction_rows(const FirstRows& first,
                                                   const FormatOptions& options,
                                                   std::optional<RowFormat> wanted,
                                                   const std::string& response) {
  if (wanted == RowFormat::kTokens || (!wanted && first.has("input_ids")))
    return token_layout(first, options);
  if (is_messages(wanted) || (!wanted && !messages_column(first).empty()))
    return messages_layout(first, options, wanted);
  if (wanted == RowFormat::kAlpaca || (!wanted && has_instructions(first))) {
    return alpaca_layout(first, options, response);
  }
  return query_response_layout(first, true, options.answers_optional, response);
}

/// ms-swift's: the chosen answer stands where instruction rows have theirs.
std::unique_ptr<RowHandler> rejected_beside(const FirstRows& first, const FormatOptions& options,
                                            std::optional<RowFormat> wanted,
                                            const std::string& margin) {
  const bool whole = first.has("rejected_messages");
  std::string column = "rejected";
  if (whole) {
    column = "rejected_messages";
  } else if (first.has("rejected_response")) {
    column = "rejected_response";
  }
  column = first.names.actual(column);
  AnswerSource chosen{instruction_rows(first, options, wanted, ""), AnswerPlace::kInRow, {}, {}};
  const bool in_messages = chosen.handler->format() == RowFormat::kMessages ||
                           chosen.handler->format() == RowFormat::kShareGpt;
  AnswerSource rejected;
  if (in_messages) {
    rejected = behind_messages(first, options, wanted,
                               whole ? AnswerPlace::kWhole : AnswerPlace::kInstead, column);
  } else {
    rejected.handler = instruction_rows(first, options, wanted, column);
  }
  return make_pairs_handler(std::move(chosen), std::move(rejected), margin,
                            options.learns_all_rounds);
}

std::unique_ptr<RowHandler> token_pairs(const FirstRows& first, const std::string& margin) {
  const auto side = [&](const std::string& name) {
    TokenColumns columns;
    columns.ids = first.names.actual(name + "_input_ids");
    columns.labels = first.names.actual(name + "_labels");
    columns.attention_mask = first.names.actual(name + "_attention_mask");
    return AnswerSource{make_token_handler(std::move(columns)), AnswerPlace::kInRow, {}, {}};
  };
  return make_pairs_handler(side("chosen"), side("rejected"), margin, /*learns_all_rounds=*/false);
}

bool holds_text(const FirstRows& first, const std::string& column) {
  return shape_of(first.first_value(column)) == ValueShape::kText;
}

/// Whether all values of the column are true or false.
bool is_true_or_false(const FirstRows& first, const std::string& column) {
  return first.first_value(column) &&
         std::all_of(first.rows.begin(), first.rows.end(), [&](const Json& row) {
           const Json* value = row.is_object() ? find_value(row, column) : nullptr;
           return !value || value->is_boolean();
         });
}

bool is_list(const FirstRows& first, const char* standard) {
  return shape_of(first.first_value(first.names.actual(standard))) == ValueShape::kList ||
         (first.first_value(first.names.actual(standard)) &&
          first.first_value(first.names.actual(standard))->is_array());
}

/// A message of the lists of conversations in `column`; where there is none, one as OpenAI has it.
Json sample_of_texts(const FirstRows& first, const std::string& column) {
  const Json* given = column.empty() ? nullptr : first.first_value(column);
  Json value = given ? parse_if_text(*given).value_or(nullptr) : nullptr;
  while (value.is_array() && !value.empty()) value = Json(value.front());
  return value.is_object() ? value : Json{{"role", ""}, {"content", ""}};
}

/// Where prompts have their reference answer, if rows are no instruction rows.
std::string reference_column(const FirstRows& first) {
  for (const char* name : {"answer", "solution", "response", "output"}) {
    if (first.has(name)) return first.names.actual(name);
  }
  return "answer";
}

}  // namespace

SampleKind detected_kind(const FirstRows& first) {
  if (first.has("positive_messages")) return SampleKind::kGroups;
  for (const char* column :
       {"rejected", "rejected_response", "rejected_messages", "rejected_input_ids"}) {
    if (first.has(column)) return SampleKind::kPairs;
  }
  if (first.has("completions") && first.has("labels") && is_list(first, "completions") &&
      is_list(first, "labels")) {
    return SampleKind::kSteps;
  }
  if (first.has("input") && first.has("value") && is_list(first, "value"))
    return SampleKind::kSteps;
  if (first.has("kto_tag")) return SampleKind::kUnpaired;
  const bool has_answer =
      !messages_column(first).empty() || (first.has("prompt") && first.has("completion"));
  if (has_answer && first.has("label") && is_true_or_false(first, first.names.actual("label")))
    return SampleKind::kUnpaired;
  return SampleKind::kTokens;
}

bool are_judged_answers(const std::vector<Json>& first_rows, const FormatOptions& options) {
  return options.kind == SampleKind::kTokens && !options.answers_optional &&
         detected_kind(FirstRows(first_rows, options.columns)) == SampleKind::kUnpaired;
}

std::unique_ptr<RowHandler> pairs_layout(const FirstRows& first, const FormatOptions& options,
                                         std::optional<RowFormat> wanted) {
  const std::string margin = column_or_none(first, "margin");
  const Json& map_keys = options.map_keys;
  const FormatOptions common = without_roles(options, {"chosen", "rejected"});
  if (first.has("chosen_input_ids") && !wanted) return token_pairs(first, margin);
  const bool is_mapped =
      map_keys.is_object() && (map_keys.contains("chosen") || map_keys.contains("rejected"));
  const bool has_rejected =
      first.has("rejected") || first.has("rejected_response") || first.has("rejected_messages");
  if (!is_mapped && !first.has("chosen") && has_rejected)
    return rejected_beside(first, common, wanted, margin);
  const std::string chosen = mapped(map_keys, "chosen", first.names.actual("chosen"));
  const std::string rejected = mapped(map_keys, "rejected", first.names.actual("rejected"));
  require_column(first, chosen, SampleKind::kPairs);
  require_column(first, rejected, SampleKind::kPairs);
  if (is_messages(wanted) ||
      (!wanted && (!messages_column(first).empty() || !holds_text(first, chosen) ||
                   is_list(first, "prompt")))) {
    return make_pairs_handler(
        behind_messages(first, common, wanted, AnswerPlace::kBehind, chosen),
        behind_messages(first, common, wanted, AnswerPlace::kBehind, rejected), margin,
        options.learns_all_rounds);
  }
  const bool has_question =
      wanted || has_instructions(first) || query_response_layout(first, false, false, chosen);
  if (!has_question) return make_text_pairs_handler(chosen, rejected, margin);
  const auto side = [&](const std::string& column) {
    return AnswerSource{
        instruction_rows(first, common, wanted, column), AnswerPlace::kInRow, {}, {}};
  };
  return make_pairs_handler(side(chosen), side(rejected), margin, options.learns_all_rounds);
}

std::unique_ptr<RowHandler> unpaired_layout(const FirstRows& first, const FormatOptions& options,
                                            std::optional<RowFormat> wanted) {
  const std::string standard = first.has("kto_tag") ? "kto_tag" : "label";
  const std::string label = mapped(options.map_keys, "kto_tag", first.names.actual(standard));
  require_column(first, label, SampleKind::kUnpaired);
  const FormatOptions common = without_roles(options, {"kto_tag"});
  const std::string completion = column_or_none(first, "completion");
  const bool in_messages = !completion.empty() && !holds_text(first, completion);
  if (!wanted && messages_column(first).empty() && in_messages) {
    return make_unpaired_handler(
        behind_messages(first, common, wanted, AnswerPlace::kBehind, completion), label,
        options.learns_all_rounds);
  }
  return make_unpaired_handler({instruction_rows(first, common, wanted, wanted ? "" : completion),
                                AnswerPlace::kInRow,
                                {},
                                {}},
                               label, options.learns_all_rounds);
}

std::unique_ptr<RowHandler> steps_layout(const FirstRows& first, const FormatOptions& options) {
  check_map_keys(options.map_keys, {"input", "value", "prompt", "completions", "labels"},
                 options.map_keys_from);
  const auto column = [&](const char* role) {
    return mapped(options.map_keys, role, first.names.actual(role));
  };
  StepColumns columns;
  if (first.has_actual(column("completions"))) {
    columns = {column("prompt"), column("completions"), column("labels")};
  } else {
    columns = {column("input"), "", column("value")};
  }
  require_column(first, columns.text, SampleKind::kSteps);
  if (options.answers_optional && !first.has_actual(columns.values)) columns.values.clear();
  if (!columns.values.empty()) require_column(first, columns.values, SampleKind::kSteps);
  return make_steps_handler(std::move(columns));
}

std::unique_ptr<RowHandler> labelled_layout(const FirstRows& first, const FormatOptions& options,
                                            std::optional<RowFormat> wanted) {
  std::string label = mapped(options.map_keys, "label", first.names.actual("label"));
  if (options.answers_optional && !first.has_actual(label)) label.clear();
  if (!label.empty()) require_column(first, label, SampleKind::kLabelled);
  FormatOptions common = without_roles(options, {"label"});
  common.answers_optional = true;
  const bool is_plain = wanted == RowFormat::kText ||
                        (!wanted && !first.has("input_ids") && messages_column(first).empty() &&
                         first.has("text") && !query_response_layout(first, false, true, "text"));
  const bool is_lines = !wanted && !first.rows.empty() && first.rows[0].is_string();
  if (is_plain || is_lines)
    return make_labelled_handler(text_layout(first, options.json_keys), std::move(label));
  return make_labelled_handler(instruction_rows(first, common, wanted, ""), std::move(label));
}

std::unique_ptr<RowHandler> groups_layout(const FirstRows& first, const FormatOptions& options,
                                          std::optional<RowFormat> wanted) {
  const auto one_of = [&](const char* role, std::initializer_list<const char*> standards) {
    for (const char* standard : standards)
      if (first.has(standard)) return mapped(options.map_keys, role, first.names.actual(standard));
    return mapped(options.map_keys, role, "");
  };
  GroupColumns columns;
  columns.positive =
      one_of("positive_messages", {"positive_messages", "positive", "pos", "sentence2"});
  columns.negative = one_of("negative_messages", {"negative_messages", "negative", "neg"});
  columns.label = one_of("label", {"label", "score"});
  FormatOptions common =
      without_roles(options, {"positive_messages", "negative_messages", "label"});
  common.answers_optional = true;
  if (columns.positive.empty() && !options.answers_optional) {
    const bool has_answer =
        first.has("response") || first.has("output") || !messages_column(first).empty() || wanted;
    if (!has_answer)
      require_column(first, first.names.actual("positive_messages"), SampleKind::kGroups);
    columns.answer_is_positive = true;
    if (columns.negative.empty()) columns.negative = column_or_none(first, "rejected_response");
  }
  columns.leaves_answer_out = columns.positive.empty() && options.answers_optional;
  const std::string plain = one_of("anchor", {"anchor", "sentence1", "text"});
  const bool is_plain = !plain.empty() && !wanted && messages_column(first).empty() &&
                        !first.has("input_ids") && !first.has("query") && !first.has("instruction");
  const bool is_lines = !wanted && !first.rows.empty() && first.rows[0].is_string();
  if (is_plain) {
    columns.anchor = make_text_handler({plain});
    columns.answer_is_positive = false;
    if (columns.positive.empty() && !options.answers_optional)
      require_column(first, first.names.actual("positive_messages"), SampleKind::kGroups);
  } else if (is_lines || wanted == RowFormat::kText) {
    columns.anchor = text_layout(first, options.json_keys);
  } else {
    columns.anchor = instruction_rows(first, common, wanted, "");
  }
  MessageTags tags = message_tags(first, common, "messages",
                                  sample_of_texts(first, columns.positive), RowFormat::kMessages);
  tags.messages = "messages";
  tags.takes_lone_answers = true;
  return make_group_handler(std::move(columns), std::move(tags));
}

std::unique_ptr<RowHandler> prompts_layout(const FirstRows& first, const FormatOptions& options,
                                           std::optional<RowFormat> wanted, NamedPrompts named) {
  FormatOptions common = without_roles(options, {});
  common.answers_optional = true;
  ReferenceAnswer answer;
  answer.is_named = named != NamedPrompts::kNone;
  const auto from_messages = [&](const std::string& column) {
    Json map = common.map_keys;
    for (const char* role : {"prompt", "query", "response", "history"}) map.erase(role);
    std::swap(common.map_keys, map);
    MessageTags tags = message_tags(first, common, column, sample_message(first, column), wanted);
    const RowFormat format = format_of_tags(tags);
    return make_prompts_handler(make_messages_handler(format, std::move(tags)), answer,
                                options.keeps_messages);
  };
  if (named == NamedPrompts::kMath17k) {
    const std::string prompt = mapped(options.map_keys, "prompt", first.names.actual("prompt"));
    answer.column = mapped(options.map_keys, "response", first.names.actual("reward_model"));
    answer.key = "ground_truth";
    require_column(first, prompt, SampleKind::kPrompts);
    require_column(first, answer.column, SampleKind::kPrompts);
    return from_messages(prompt);
  }
  if (!wanted && !first.has("input_ids") && messages_column(first).empty() &&
      is_list(first, "prompt")) {
    return from_messages(first.names.actual("prompt"));
  }
  if (!wanted && !first.rows.empty() && first.rows[0].is_string())
    return make_prompts_handler(text_layout(first, {}), answer);
  if (wanted == RowFormat::kText || (!wanted && first.has("text") && first.columns.size() == 1))
    return make_prompts_handler(text_layout(first, options.json_keys), answer);
  const bool is_alpaca = wanted == RowFormat::kAlpaca || (!wanted && has_instructions(first));
  std::string response;
  if (is_alpaca) {
    answer.column = mapped(options.map_keys, "response", first.names.actual("output"));
  } else if (messages_column(first).empty() && !is_messages(wanted)) {
    answer.column = response = reference_column(first);
  }
  return make_prompts_handler(instruction_rows(first, common, wanted, response), answer,
                              options.keeps_messages);
}

}  // namespace danlu::data
