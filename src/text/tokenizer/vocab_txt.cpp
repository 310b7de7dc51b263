#include "text/tokenizer/vocab_txt.h"

#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer/companions.h"
#include "text/tokenizer/pipeline_tokenizer.h"

namespace danlu::text {
namespace {

/// A token a line; its number is the line's, from 0 on.
Json vocabulary_of_lines(std::string_view text, const std::string& origin) {
  Json vocabulary = Json::object();
  for (int64_t number = 0; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    // The later of two equal lines counts, as in the reference; the other number stays a hole.
    vocabulary[std::string(line)] = number;
  }
  if (vocabulary.empty()) throw ModelError(tr("{}: a vocabulary without a token", origin));
  return vocabulary;
}

/// What the class calls a special token.
std::string special_name(const Json& config, const char* key, const char* usual) {
  const auto found = config.find(key);
  if (found == config.end()) return usual;
  if (found->is_string()) return found->get<std::string>();
  return json_get<std::string>(*found, "content").value_or(usual);
}

}  // namespace

std::shared_ptr<const Tokenizer> load_vocab_txt(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  Companions companions = read_companions(path.parent_path());
  const Json vocabulary = vocabulary_of_lines(text, path.string());
  const Json& config = companions.config;
  Json added = Json::array();
  const auto special = [&](const char* key, const char* usual) {
    const std::string token = special_name(config, key, usual);
    const auto id = vocabulary.find(token);
    if (id == vocabulary.end())
      throw ModelError(tr("{}: no line is \"{}\", its {}", path.string(), token, key));
    added.push_back({{"id", *id},
                     {"content", token},
                     {"special", true},
                     {"normalized", false},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false}});
    return std::pair(token, *id);
  };
  const auto pad = special("pad_token", "[PAD]");
  const auto unknown = special("unk_token", "[UNK]");
  const auto first = special("cls_token", "[CLS]");
  const auto last = special("sep_token", "[SEP]");
  const std::string mask = special_name(config, "mask_token", "[MASK]");
  if (vocabulary.contains(mask)) special("mask_token", "[MASK]");
  companions.special.pad = pad.first;
  companions.special.unk = unknown.first;
  const bool lowercase = companions.flag("do_lower_case").value_or(true);
  Json strips = nullptr;  // as lowercase
  if (const auto said = companions.flag("strip_accents")) strips = *said;
  const Json json{
      {"added_tokens", added},
      {"normalizer",
       {{"type", "BertNormalizer"},
        {"clean_text", true},
        {"handle_chinese_chars", companions.flag("tokenize_chinese_chars").value_or(true)},
        {"strip_accents", strips},
        {"lowercase", lowercase}}},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"post_processor",
       {{"type", "BertProcessing"},
        {"sep", {last.first, last.second}},
        {"cls", {first.first, first.second}}}},
      {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
      {"model",
       {{"type", "WordPiece"},
        {"unk_token", unknown.first},
        {"continuing_subword_prefix", "##"},
        {"max_input_chars_per_word", 100},
        {"vocab", vocabulary}}}};
  return make_tokenizer_json(json.dump(), std::move(companions), path);
}

}  // namespace danlu::text
