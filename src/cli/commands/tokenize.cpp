// `danlu tokenize`: text to token ids.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <filesystem>
#include <iterator>

#include "base/json.h"
#include "base/log.h"
#include "cli/commands/commands.h"
#include "cli/commands/text_input.h"
#include "data/readers/text_encoding.h"
#include "settings/options/model_names.h"
#include "text/tokenizer.h"

namespace danlu::cli {
namespace {

void print_ids(const std::vector<text::TokenId>& ids, bool as_json) {
  fmt::memory_buffer out;
  if (as_json) {
    fmt::format_to(std::back_inserter(out), "{}\n", ids);
  } else {
    fmt::format_to(std::back_inserter(out), "{}\n", fmt::join(ids, " "));
  }
  std::fwrite(out.data(), 1, out.size(), stdout);
}

void print_tokens(const text::Tokenizer& tokenizer, const std::vector<text::TokenId>& ids) {
  for (const text::TokenId id : ids) {
    fmt::print("{:>8}  {}\n", id,
               Json(tokenizer.id_to_token(id).value_or("")).dump(-1, ' ', false));
  }
}

}  // namespace

OptionTable tokenize_options() {
  return OptionTable(
      "tokenize", "turn text into token ids",
      "danlu tokenize --model DIR [--input FILE|-] [flags] [TEXT]",
      {
          {.name = "model",
           .help = "model directory or tokenizer file",
           .aliases = {"model_name_or_path", "tokenizer", "tokenizer_name_or_path", "m"},
           .group = "Input",
           .required = true},
          {.name = "input",
           .default_text = "-",
           .help = "file to read; - is standard input. Not read when TEXT is given",
           .aliases = {"i"},
           .group = "Input"},
          {.name = "lines",
           .type = OptionType::kBool,
           .default_text = "false",
           .help = "every line is a text of its own (its newline is not part of it)",
           .group = "Input"},
          {.name = "special",
           .type = OptionType::kBool,
           .default_text = "true",
           .help =
               "add what the tokenizer puts around a text, such as BOS; --no-special leaves it out",
           .aliases = {"add_special_tokens"},
           .group = "Output"},
          {.name = "json",
           .type = OptionType::kBool,
           .default_text = "false",
           .help = "print one JSON array of ids per text (default: ids with spaces between)",
           .group = "Output"},
          {.name = "tokens",
           .type = OptionType::kBool,
           .default_text = "false",
           .help = "print each id beside its token, one per line",
           .group = "Output"},
      });
}

int run_tokenize(const Options& options) {
  const auto tokenizer =
      text::Tokenizer::load(settings::located_if_named(options.get_string("model")));
  const bool special = options.get_bool("special");
  std::vector<text::TokenId> ids;
  const auto show = [&](std::string_view text) {
    ids.clear();
    tokenizer->encode_append(text, special, ids);
    if (options.get_bool("tokens")) {
      print_tokens(*tokenizer, ids);
    } else {
      print_ids(ids, options.get_bool("json"));
    }
  };
  const std::string input = options.get_string("input");
  if (!options.positional().empty()) {
    const std::string& first = options.positional().front();
    std::error_code ignored;
    if (std::filesystem::is_regular_file(first, ignored))
      log::notice("\"{}\" is taken as text; --input {} reads the file", first, first);
    const std::string text = fmt::format("{}", fmt::join(options.positional(), " "));
    data::require_utf8_argument("TEXT", text);
    show(text);
  } else if (options.get_bool("lines")) {
    each_input_line(input, [&](std::string_view line, size_t) { show(line); });
  } else {
    show(whole_input(input));
  }
  return 0;
}

}  // namespace danlu::cli
