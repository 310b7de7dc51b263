// `danlu render`: messages to the text, ids and training mask that a model's template makes of
// them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "arch/model_config.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "cli/commands/commands.h"
#include "cli/commands/media_options.h"
#include "cli/commands/text_input.h"
#include "data/formats/media.h"
#include "data/formats/row_format.h"
#include "data/media_encoder.h"
#include "data/preprocess_report.h"
#include "settings/options/media_flags.h"
#include "settings/options/model_names.h"
#include "text/conversation.h"
#include "text/media.h"
#include "text/template_choice.h"
#include "text/tokenizer.h"

namespace danlu::cli {
namespace {

/// What is shown: text, its ids, and labels where an answer is trained on (empty for a prompt).
struct Rendering {
  std::string text;
  std::vector<text::TokenId> ids;
  std::vector<text::TokenId> labels;
  std::vector<data::MediaSpan> media;
};

/// Whether a value holds a number as an integer beyond 64 bits becomes one.
bool holds_large_number(const Json& value) {
  if (value.is_number_float()) return std::abs(value.get<double>()) >= 0x1p63;
  return value.is_structured() && std::any_of(value.begin(), value.end(), holds_large_number);
}

/// Refuses what rows of a data set refuse, because digits would change here as well.
void refuse_wide_integers(const text::Conversation& conversation, std::string_view text,
                          const std::string& origin) {
  const std::string_view digits = wide_integer_in(text);
  if (digits.empty()) return;
  bool is_used = holds_large_number(conversation.tools);
  for (const text::Message& message : conversation.messages)
    is_used = is_used || holds_large_number(message.extra);
  if (!is_used) return;
  throw DataError(
      tr("{}: an integer of tools or their calls does not fit 64 bits: {}", origin, digits),
      tr("write it as a string"));
}

text::Conversation read_conversation(const Options& options, const std::string& text,
                                     const Json& given, bool reads_media) {
  const std::string origin = input_name(options.get_string("input"));
  text::Conversation conversation = text::parse_conversation(given, origin);
  data::take_media(given, origin, reads_media, &conversation);
  refuse_wide_integers(conversation, text, origin);
  if (conversation.messages.empty()) throw DataError(tr("{}: there are no messages", origin));
  if (options.has_value("tools")) conversation.tools = read_json_file(options.get_string("tools"));
  if (!conversation.tools.is_null() && !conversation.tools.is_array()) {
    throw DataError(tr("tools must be a list, got {}", conversation.tools.type_name()));
  }
  return conversation;
}

[[noreturn]] void refuse_conversation(const std::string& input, const data::RowProblem& problem) {
  throw DataError(tr("{}: {}{}", input_name(input), translated_filled(problem.reason),
                     problem.detail.empty() ? "" : " (" + problem.detail + ")"));
}

/// What the template is to write: with the grids of pictures and videos in `spans`.
/// Errors: DataError naming what is wrong with one.
text::Conversation with_media(const data::MediaEncoder& media, const text::Conversation& given,
                              const std::string& input, std::vector<data::MediaSpan>* spans) {
  data::RowProblem problem;
  if (const auto pad = text::placeholder_written_in(given); !pad.empty()) {
    throw DataError(
        tr("{}: the text holds {}, which stands for a picture", input_name(input), pad));
  }
  const fs::path folder = input == "-" ? fs::path() : fs::path(input).parent_path();
  if (!media.measure(given, folder, input_name(input), spans, &problem))
    refuse_conversation(input, problem);
  auto written = media.written(given, *spans, &problem);
  if (!written) refuse_conversation(input, problem);
  return std::move(*written);
}

/// Placeholders as many as its pictures and videos need. Errors: DataError.
void expand_media(const data::MediaEncoder& media, const std::string& input, Rendering* result) {
  data::RowProblem problem;
  text::EncodedConversation encoded{result->ids, result->labels};
  const bool has_labels = !encoded.labels.empty();
  encoded.labels.resize(encoded.ids.size(), kIgnoreLabel);
  if (!media.expand(&encoded, &result->media, &problem)) refuse_conversation(input, problem);
  result->ids = std::move(encoded.ids);
  if (has_labels) result->labels = std::move(encoded.labels);
}

Rendering render(const text::ChatEncoder& encoder, const text::Tokenizer& tokenizer,
                 const text::Conversation& conversation, bool add_generation_prompt) {
  Rendering result;
  result.text = encoder.render(conversation, add_generation_prompt);
  const bool answered = conversation.messages.back().role == "assistant";
  if (answered && !add_generation_prompt) {
    text::EncodedConversation encoded = encoder.encode(conversation);
    result.ids = std::move(encoded.ids);
    result.labels = std::move(encoded.labels);
  } else if (add_generation_prompt && !answered) {
    result.ids = encoder.encode_prompt(conversation);
  } else {
    result.ids = tokenizer.encode(result.text, false);
  }
  return result;
}

/// Runs of masked tokens as "[-100 * 27]", the others by `shown`.
template <typename Shown>
std::string with_masked_runs(const std::vector<text::TokenId>& labels, const Shown& shown) {
  std::string out;
  for (size_t i = 0; i < labels.size();) {
    size_t end = i;
    const bool masked = labels[i] == kIgnoreLabel;
    while (end < labels.size() && (labels[end] == kIgnoreLabel) == masked) ++end;
    out +=
        masked ? fmt::format("[-100 * {}]", end - i) : shown(std::span(labels).subspan(i, end - i));
    i = end;
  }
  return out;
}

/// "[1, 2, 151655 * 64, 3]": runs of placeholders as their number.
std::string folded_ids(const Rendering& r) {
  std::vector<std::string> shown;
  const auto id = [&](int64_t at) { return std::to_string(r.ids[static_cast<size_t>(at)]); };
  data::each_part(
      std::ssize(r.ids), r.media,
      [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; ++at) shown.push_back(id(at));
      },
      [&](int64_t begin, int64_t count) {
        shown.push_back(fmt::format("{} * {}", id(begin), count));
      });
  return fmt::format("[{}]", fmt::join(shown, ", "));
}

void print_readable(const Rendering& r, const text::ChatEncoder& encoder,
                    const text::Tokenizer& tokenizer) {
  std::string out = fmt::format("[TEMPLATE] {}\n[INPUT] {}\n[INPUT_IDS] {}\n",
                                encoder.description(), r.text, folded_ids(r));
  out += data::describe_media(r.media);
  size_t targets = 0;
  if (!r.labels.empty()) {
    for (const text::TokenId label : r.labels) targets += label != kIgnoreLabel;
    out += fmt::format(
        "[LABELS] {}\n[LABELS_IDS] {}\n",
        with_masked_runs(r.labels, [&](auto run) { return tokenizer.decode(run, false); }),
        with_masked_runs(r.labels, [](auto run) { return fmt::format("{}", run); }));
    out += fmt::format("[TOKENS] {}, of which {} are targets\n", r.ids.size(), targets);
  } else {
    out += fmt::format("[TOKENS] {}\n", r.ids.size());
  }
  std::fputs(out.c_str(), stdout);
}

Json json_of_rendering(const Rendering& r, const text::ChatEncoder& encoder) {
  Json json = {{"template", encoder.description()}, {"text", r.text}, {"input_ids", r.ids}};
  if (!r.labels.empty()) json["labels"] = r.labels;
  for (const data::MediaSpan& span : r.media) {
    json["media"].push_back({{"kind", span.kind == text::MediaKind::kImage ? "image" : "video"},
                             {"file", span.files.at(0).path},
                             {"grid_thw", {span.grid.t, span.grid.h, span.grid.w}},
                             {"begin", span.begin},
                             {"tokens", span.count}});
  }
  json["stop_ids"] = encoder.stop_ids();
  return json;
}

void print_json(const Json& json) {
  std::fputs((json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n").c_str(), stdout);
}

/// A row of preference training: its two answers; empty for messages.
std::optional<data::PairRow> read_pair(const Json& given, const std::string& origin) {
  const auto has = [&](const char* column) { return given.is_object() && given.contains(column); };
  if (!has("rejected") && !has("rejected_response") && !has("rejected_messages"))
    return std::nullopt;
  data::FormatOptions format;
  format.kind = data::SampleKind::kPairs;
  const auto handler = data::make_row_handler(format, {given}, /*plain_text=*/false);
  data::RowResult result = handler->read(given);
  if (const auto* problem = std::get_if<data::RowProblem>(&result)) {
    throw DataError(tr("{}: {}{}", origin, translated_filled(problem->reason),
                       problem->detail.empty() ? "" : " (" + problem->detail + ")"));
  }
  auto pair = std::get<data::PairRow>(std::get<data::Row>(std::move(result)));
  if (!std::holds_alternative<text::Conversation>(pair.chosen) ||
      !std::holds_alternative<text::Conversation>(pair.rejected)) {
    throw DataError(tr("{}: the pair is tokenised: no template has an effect on it", origin));
  }
  return pair;
}

void print_pair(const data::PairRow& pair, bool as_json, const text::ChatEncoder& encoder,
                const text::Tokenizer& tokenizer) {
  const auto rendering = [&](const data::AnsweredRow& side) {
    return render(encoder, tokenizer, std::get<text::Conversation>(side), false);
  };
  if (as_json) {
    print_json(Json{{"chosen", json_of_rendering(rendering(pair.chosen), encoder)},
                    {"rejected", json_of_rendering(rendering(pair.rejected), encoder)}});
    return;
  }
  std::fputs("[CHOSEN]\n", stdout);
  print_readable(rendering(pair.chosen), encoder, tokenizer);
  std::fputs("[REJECTED]\n", stdout);
  print_readable(rendering(pair.rejected), encoder, tokenizer);
}

}  // namespace

OptionTable render_options() {
  const std::string input = "Input", chosen = "Template", output = "Output";
  std::vector<OptionSpec> specs = {
      {.name = "model",
       .help = "model directory or tokenizer file",
       .aliases = {"model_name_or_path", "tokenizer", "tokenizer_name_or_path", "m"},
       .group = input,
       .required = true},
      {.name = "input",
       .default_text = "-",
       .help =
           "JSON: a list of messages, {\"messages\": …, \"tools\": …}, or a row with a rejected "
           "answer; - reads standard input (or the first word)",
       .aliases = {"i"},
       .group = input,
       .word = 1},
      {.name = "tools", .help = "JSON file: list of tools, as OpenAI's `tools`", .group = input},
      {.name = "prompt_type",
       .default_text = "auto",
       .help = "auto or hf (the model's own), a template's name, or a .jinja file",
       .aliases = {"template", "template_type"},
       .group = chosen},
      {.name = "prompt_type_path",
       .help = "file of further named templates",
       .aliases = {"template_file"},
       .group = chosen},
      {.name = "chat_template_kwargs",
       .type = OptionType::kJson,
       .help = "JSON object of further template variables, such as {\"enable_thinking\": false}",
       .group = chosen},
      {.name = "add_generation_prompt",
       .type = OptionType::kBool,
       .help = "end where the assistant's answer begins; default: true unless the last message "
               "is the "
               "assistant's",
       .group = output},
      {.name = "json",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "print one JSON object: template, text, input_ids, labels, media, stop_ids",
       .group = output},
  };
  const std::vector<OptionSpec> media = media_options();
  specs.insert(specs.end(), media.begin(), media.end());
  return OptionTable("render", "show the text, ids and training mask a template makes of messages",
                     "danlu render --model DIR [--input messages.json|-] [flags]",
                     std::move(specs));
}

int run_render(const Options& options) {
  const fs::path model = settings::located_if_named(options.get_string("model"));
  const auto tokenizer = text::Tokenizer::load(model);
  const fs::path directory = text::directory_of_model(model);
  const auto encoder =
      text::choose_template(tokenizer,
                            {.named = options.get_string("prompt_type"),
                             .templates_file = options.get_string_or("prompt_type_path", ""),
                             .recorded_in = directory,
                             .family_default = arch::default_template_in(directory)},
                            options.has_value("chat_template_kwargs")
                                ? options.get_json("chat_template_kwargs")
                                : Json())
          .required();
  const auto media =
      data::make_media_encoder(settings::media_settings_from(options, directory), tokenizer.get());
  const std::string text = whole_input(options.get_string("input"));
  const std::string origin = input_name(options.get_string("input"));
  const Json json = parse_json(text, origin);
  if (const auto pair = read_pair(json, origin)) {
    print_pair(*pair, options.get_bool("json"), *encoder, *tokenizer);
    return 0;
  }
  const text::Conversation given = read_conversation(options, text, json, media != nullptr);
  std::vector<data::MediaSpan> spans;
  const text::Conversation conversation =
      media ? with_media(*media, given, options.get_string("input"), &spans) : given;
  const bool answered = conversation.messages.back().role == "assistant";
  Rendering rendering = render(*encoder, *tokenizer, conversation,
                               options.get_bool_or("add_generation_prompt", !answered));
  rendering.media = std::move(spans);
  if (media) expand_media(*media, options.get_string("input"), &rendering);
  options.get_bool("json") ? print_json(json_of_rendering(rendering, *encoder))
                           : print_readable(rendering, *encoder, *tokenizer);
  return 0;
}

}  // namespace danlu::cli
