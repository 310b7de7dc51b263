// `danlu tokenize`: text to token ids.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <iostream>
#include <iterator>

#include "base/error.h"
#include "base/file.h"
#include "cli/commands/commands.h"
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

/// Calls on_line for every line of the input, without its newline.
template <typename F>
void each_line(const std::string& input, F&& on_line) {
  if (input == "-") {
    for (std::string line; std::getline(std::cin, line);) on_line(line);
    return;
  }
  const MappedFile file(input);
  std::string_view rest = file.text();
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    on_line(rest.substr(0, end));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
}

std::string whole_input(const Options& options) {
  const auto& words = options.positional();
  if (!words.empty()) return fmt::format("{}", fmt::join(words, " "));
  const std::string input = options.get_string("input");
  if (input != "-") return read_file(input);
  return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
}

}  // namespace

OptionTable tokenize_options() {
  return OptionTable(
      "tokenize", "turn text into token ids",
      "danlu tokenize --model DIR [--input FILE|-] [flags] [TEXT]",
      {
          {.name = "model",
           .help = "model directory or tokenizer file",
           .aliases = {"model_name_or_path", "tokenizer_name_or_path", "m"},
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
  const auto tokenizer = text::Tokenizer::load(options.get_string("model"));
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
  if (options.get_bool("lines") && options.positional().empty()) {
    each_line(options.get_string("input"), show);
  } else {
    show(whole_input(options));
  }
  return 0;
}

}  // namespace danlu::cli
