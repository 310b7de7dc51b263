// `danlu detokenize`: token ids back to text.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands/commands.h"
#include "cli/commands/text_input.h"
#include "settings/options/model_names.h"
#include "text/tokenizer.h"

namespace danlu::cli {
namespace {

/// Ids of one line: "1 2 3", "1, 2, 3" or "[1, 2, 3]". where: for errors.
std::vector<text::TokenId> parse_ids(std::string_view line, const std::string& where) {
  std::vector<text::TokenId> ids;
  const auto is_between = [](char c) {
    return c == ' ' || c == '\t' || c == ',' || c == '[' || c == ']' || c == '\r' || c == '\n';
  };
  for (size_t i = 0; i < line.size();) {
    if (is_between(line[i])) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < line.size() && !is_between(line[end])) ++end;
    const std::string_view word = line.substr(i, end - i);
    text::TokenId id = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || stop != word.data() + word.size()) {
      throw DataError(tr("{}: token ids are integers, got '{}'", where, word),
                      tr("write ids as 1 2 3 or [1, 2, 3], one text per line"));
    }
    ids.push_back(id);
    i = end;
  }
  return ids;
}

/// An id without a token would vanish from the text.
void require_known(const text::Tokenizer& tokenizer, const std::vector<text::TokenId>& ids,
                   const std::string& where) {
  for (const text::TokenId id : ids) {
    if (id >= 0 && tokenizer.id_to_token(id)) continue;
    throw DataError(
        tr("{}: token id {} is none of the tokenizer's {} ids", where, id, tokenizer.size()),
        tr("ids belong to one tokenizer: use the one that made them"));
  }
}

}  // namespace

OptionTable detokenize_options() {
  return OptionTable(
      "detokenize", "turn token ids back into text",
      "danlu detokenize --model DIR [--input FILE|-] [flags] [ID ...]",
      {
          {.name = "model",
           .help = "model directory or tokenizer file",
           .aliases = {"model_name_or_path", "tokenizer", "tokenizer_name_or_path", "m"},
           .group = "Input",
           .required = true},
          {.name = "input",
           .default_text = "-",
           .help =
               "file of ids, one text per line (1 2 3 or [1, 2, 3]); - is standard input. Not read "
               "when IDs are given",
           .aliases = {"i"},
           .group = "Input"},
          {.name = "skip_special",
           .type = OptionType::kBool,
           .default_text = "false",
           .help = "leave special tokens out",
           .aliases = {"skip_special_tokens"},
           .group = "Output"},
          {.name = "newline",
           .type = OptionType::kBool,
           .default_text = "true",
           .help = "end each text with a newline; --no-newline writes the texts as they are",
           .group = "Output"},
          {.name = "json",
           .type = OptionType::kBool,
           .default_text = "false",
           .help = "print each text as a JSON string",
           .group = "Output"},
      });
}

int run_detokenize(const Options& options) {
  const auto tokenizer =
      text::Tokenizer::load(settings::located_if_named(options.get_string("model")));
  const auto show = [&](std::string_view line, const std::string& where) {
    const std::vector<text::TokenId> ids = parse_ids(line, where);
    require_known(*tokenizer, ids, where);
    std::string text = tokenizer->decode(ids, options.get_bool("skip_special"));
    if (options.get_bool("json")) {
      text = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
    }
    if (options.get_bool("newline")) text += '\n';
    std::fwrite(text.data(), 1, text.size(), stdout);
  };
  if (!options.positional().empty()) {
    std::string line;
    for (const std::string& word : options.positional()) line += word + " ";
    show(line, "command line");
    return 0;
  }
  const std::string input = options.get_string("input");
  each_input_line(input, [&](std::string_view line, size_t number) {
    show(line, fmt::format("{}:{}", input_name(input), number));
  });
  return 0;
}

}  // namespace danlu::cli
