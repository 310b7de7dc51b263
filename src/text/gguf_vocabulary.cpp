#include "text/gguf_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/file.h"
#include "text/gguf_pre_tokenizers.h"
#include "text/gguf_tokenizer_files.h"
#include "text/merge_order.h"
#include "text/sentencepiece/model_file.h"
#include "text/tiktoken.h"
#include "text/tokenizer.h"
#include "text/tokenizer/companions.h"
#include "text/tokenizer/json_fields.h"
#include "text/tokenizer/scanners.h"
#include "text/tokenizer/vocab_and_merges.h"

namespace danlu::text {
namespace {

constexpr std::string_view kMetaspace = "\xE2\x96\x81";  // ▁
/// What llama.cpp's converter gives ids without a token, and tokens added to a SentencePiece model.
constexpr float kPaddingScore = -10000, kAddedScore = -1000;

[[noreturn]] void refuse(const fs::path& file, const std::string& why) {
  throw ModelError(
      tr("{}: {}", file.string(), why),
      tr("llama.cpp would give other ids: such a tokenizer is not written into a GGUF file"));
}

bool is_byte_token(std::string_view token) {
  const auto is_hex = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f');
  };
  return token.size() == 6 && token.starts_with("<0x") && is_hex(token[3]) && is_hex(token[4]) &&
         token[5] == '>';
}

/// The parts of a pre_tokenizer or normalizer: a Sequence's, or itself; none for null.
std::vector<Json> parts_of(const Json& component, const char* list, const std::string& origin) {
  if (component.is_null()) return {};
  if (component_type(component, "a component", origin) != "Sequence") return {component};
  const Json& items = member(component, list, origin);
  return {items.begin(), items.end()};
}
Json part(const Json& rest, const char* key) {
  const auto it = rest.find(key);
  return it == rest.end() ? Json() : *it;
}

// --- byte-level BPE ------------------------------------------------------------------------------

bool is_byte_level(const Json& part, bool use_regex, const std::string& origin) {
  return component_type(part, "a pre-tokenizer", origin) == "ByteLevel" &&
         !field_or(part, "add_prefix_space", true, origin) &&
         field_or(part, "use_regex", true, origin) == use_regex;
}

/// The regex of a Split that isolates its matches; "" for anything else.
std::string split_regex(const Json& part, const std::string& origin) {
  if (component_type(part, "a pre-tokenizer", origin) != "Split" ||
      field_or<std::string>(part, "behavior", "", origin) != "Isolated" ||
      field_or(part, "invert", false, origin))
    return {};
  return field_or<std::string>(member(part, "pattern", origin), "Regex", "", origin);
}

/// As BLOOM's tokenizer.json has it.
constexpr std::string_view kBlooms = " ?[^(\\s|[.,!?\u2026\u3002\uFF0C\u3001\u0964\u06D4\u060C])]+";

/// What cuts before bytes are spelled; empty if other steps do.
std::vector<std::string> cutting_regexes(const std::vector<Json>& parts,
                                         const std::string& origin) {
  std::vector<std::string> regexes;
  if (parts.empty() || !is_byte_level(parts.back(), false, origin)) return {};
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    const bool is_digits = component_type(parts[i], "a pre-tokenizer", origin) == "Digits" &&
                           field_or(parts[i], "individual_digits", false, origin);
    regexes.push_back(is_digits ? R"(\p{N})" : split_regex(parts[i], origin));
    if (regexes.back().empty()) return {};
  }
  return regexes;
}

/// llama.cpp's name of a pre-tokenizer; "" if it has none that cuts in the same way.
/// Source: llama.cpp, src/llama-vocab.cpp.
std::string pre_tokenizer_name(const Json& pre_tokenizer, bool ignore_merges, const Merges& merges,
                               const std::string& origin) {
  const std::vector<Json> parts = parts_of(pre_tokenizer, "pretokenizers", origin);
  if (parts.size() == 1 && is_byte_level(parts[0], true, origin))
    return ignore_merges ? "" : "gpt-2";
  const std::string named =
      gguf_name_of_cuts(cutting_regexes(parts, origin), ignore_merges, merges);
  if (!named.empty() || parts.size() != 2) return named;
  if (component_type(parts[0], "a pre-tokenizer", origin) == "Digits") {
    const bool single = field_or(parts[0], "individual_digits", false, origin);
    return single && is_byte_level(parts[1], true, origin) && !ignore_merges ? "starcoder" : "";
  }
  if (!is_byte_level(parts[1], false, origin)) return {};
  if (split_regex(parts[0], origin) == kBlooms) return ignore_merges ? "" : "bloom";
  switch (known_pattern(split_regex(parts[0], origin))) {
    case KnownPattern::kQwen2:
      return ignore_merges ? "" : "qwen2";
    case KnownPattern::kLlama3:
      // The same cuts; they differ in whether whole words skip the merges.
      return ignore_merges ? "llama-bpe" : "smaug-bpe";
    case KnownPattern::kGpt2:
      return ignore_merges ? "" : "gpt-2";
    case KnownPattern::kNone:
      break;
  }
  return {};
}

void check_byte_level(const TokenizerJsonParts& json, const fs::path& file) {
  const std::string origin = file.string();
  for (const Json& step : parts_of(part(json.rest, "normalizer"), "normalizers", origin)) {
    const std::string type = component_type(step, "a normalizer", origin);
    if (type != "NFC") refuse(file, tr("the normalizer {} is unknown to llama.cpp", type));
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix", "unk_token"}) {
    if (!field_or<std::string>(json.model, key, "", origin).empty())
      refuse(file, tr("byte-level BPE with {} is unknown to llama.cpp", key));
  }
}

/// llama.cpp joins by merges where this tokenizer takes whole words.
void add_note_of_whole_words(const Merges& merges, GgufVocabulary& out) {
  const MergeOrder order(merges);
  size_t count = 0;
  std::string first;
  for (size_t id = 0; id < out.tokens.size(); ++id) {
    if (out.types[id] != GgufTokenType::kNormal || order.reach(out.tokens[id])) continue;
    if (count++ == 0) first = out.tokens[id];
  }
  if (count == 0) return;
  out.notes.push_back(
      tr("this tokenizer takes words that are tokens whole, and llama.cpp's {} does not: {} tokens "
         "that no merges give, such as \"{}\", come to it in parts",
         out.pre, count, first));
}

void write_byte_level(const TokenizerJsonParts& json, const fs::path& file, GgufVocabulary& out) {
  check_byte_level(json, file);
  const std::string origin = file.string();
  out.model = "gpt2";
  const bool ignores_merges = field_or(json.model, "ignore_merges", false, origin);
  out.pre =
      pre_tokenizer_name(part(json.rest, "pre_tokenizer"), ignores_merges, json.merges, origin);
  if (out.pre.empty()) {
    std::string shown =
        part(json.rest, "pre_tokenizer").dump(-1, ' ', false, Json::error_handler_t::replace);
    if (shown.size() > 300) shown = shown.substr(0, 300) + "…";
    refuse(file, tr("llama.cpp has no pre-tokenizer for {}", shown));
  }
  const auto known = gguf_pre_tokenizer(out.pre);
  if (ignores_merges && known && !known->ignore_merges) add_note_of_whole_words(json.merges, out);
  for (const auto& [left, right] : json.merges)
    out.merges.push_back(fmt::format("{} {}", left, right));
}

// --- SentencePiece -------------------------------------------------------------------------------

/// Scores by which llama.cpp merges in the order of `merges`: the earlier, the higher. Tokens that
/// are taken from a text before it is cut (`out` knows their types) are made by no merge.
std::unordered_map<std::string, float> scores_of(const TokenizerJsonParts& json,
                                                 const fs::path& file, const GgufVocabulary& out) {
  std::unordered_set<std::string_view> taken_before;
  for (size_t id = 0; id < out.tokens.size(); ++id) {
    if (out.types[id] == GgufTokenType::kUserDefined || out.types[id] == GgufTokenType::kControl)
      taken_before.insert(out.tokens[id]);
  }
  std::unordered_map<std::string, float> scores;
  std::string previous;
  for (const auto& [left, right] : json.merges) {
    std::string token = left + right;
    if (token == previous || taken_before.contains(token)) continue;
    const auto rank = static_cast<float>(scores.size());
    if (!scores.emplace(token, -rank).second)
      refuse(file, tr("the merges that give \"{}\" do not stand together, and llama.cpp "
                      "has one rank for each token",
                      token));
    previous = std::move(token);
  }
  return scores;
}

/// The normalizer that SentencePiece's conversion writes: a space becomes ▁, perhaps one in front.
bool puts_space_in_front(const TokenizerJsonParts& json, const fs::path& file) {
  const std::string origin = file.string();
  bool prepends = false, replaces = false;
  for (const Json& step : parts_of(part(json.rest, "normalizer"), "normalizers", origin)) {
    const std::string type = component_type(step, "a normalizer", origin);
    if (type == "Prepend" && field_or<std::string>(step, "prepend", "", origin) == kMetaspace) {
      prepends = true;
    } else if (type == "Replace" &&
               field_or<std::string>(step, "content", "", origin) == kMetaspace) {
      replaces = true;
    } else {
      refuse(file, tr("the normalizer {} is unknown to llama.cpp", type));
    }
  }
  for (const Json& step : parts_of(part(json.rest, "pre_tokenizer"), "pretokenizers", origin)) {
    const std::string type = component_type(step, "a pre-tokenizer", origin);
    // Gemma's: it cuts behind spaces, of which the normalizer has left none.
    if (type == "Split" && replaces &&
        field_or<std::string>(member(step, "pattern", origin), "String", "", origin) == " ")
      continue;
    if (type != "Metaspace" || field_or(step, "split", true, origin))
      refuse(file, tr("the pre-tokenizer {} beside byte fallback is unknown to llama.cpp", type));
    replaces = true;
    const std::string scheme = field_or<std::string>(step, "prepend_scheme", "always", origin);
    prepends |= scheme != "never";
  }
  if (!replaces) refuse(file, "spaces are not written as ▁, which llama.cpp takes for granted");
  return prepends;
}

void add_merged_pieces(const TokenizerJsonParts& json, const fs::path& file, GgufVocabulary& out) {
  out.model = "llama";
  out.pre = "default";
  out.add_space_prefix = puts_space_in_front(json, file);
  const auto scores = scores_of(json, file, out);
  for (size_t id = 0; id < out.tokens.size(); ++id) {
    const auto score = scores.find(out.tokens[id]);
    const bool is_padding = out.types[id] == GgufTokenType::kUnused;
    out.scores.push_back(score != scores.end() ? score->second : is_padding ? kPaddingScore : 0.0f);
    if (out.types[id] == GgufTokenType::kNormal && is_byte_token(out.tokens[id]))
      out.types[id] = GgufTokenType::kByte;
  }
}

void add_sentencepiece(const fs::path& file, GgufVocabulary& out) {
  const SentencePieceFile parts = read_sentencepiece_file(MappedFile(file).text(), file.string());
  if (parts.type != SegmenterType::kBpe)
    refuse(file, "not a BPE model, and llama.cpp's llama is one");
  if (!parts.rules.character_map.empty())
    refuse(file, "it normalises characters, which llama.cpp does not");
  if (parts.rules.remove_extra_whitespaces)
    refuse(file, "it removes repeated spaces, which llama.cpp does not");
  out.model = "llama";
  out.pre = "default";
  out.add_space_prefix = parts.rules.add_dummy_prefix;
  out.pieces = parts.pieces.size();
  for (size_t id = 0; id < out.tokens.size(); ++id) {
    GgufTokenType& type = out.types[id];
    if (id >= parts.pieces.size()) {
      out.scores.push_back(type == GgufTokenType::kUnused ? kPaddingScore : kAddedScore);
      continue;
    }
    const SentencePiecePart& piece = parts.pieces[id];
    const bool is_added = type == GgufTokenType::kControl || type == GgufTokenType::kUserDefined;
    if (piece.piece != out.tokens[id] && !is_added)
      refuse(file, tr("piece {} is \"{}\", but the tokenizer in use has \"{}\"", id, piece.piece,
                      out.tokens[id]));
    out.scores.push_back(piece.piece == out.tokens[id] ? piece.score : kAddedScore);
    // What the files beside it add or mark special counts, except for the unknown token.
    if (!is_added || piece.type == PieceType::kUnknown)
      type = static_cast<GgufTokenType>(piece.type);
  }
}

// --- all -----------------------------------------------------------------------------------------

/// Texts of the tokens that stand outside the model's own vocabulary or are marked in it.
std::unordered_set<std::string> added_tokens(const fs::path& directory,
                                             const TokenizerJsonParts& json) {
  std::unordered_set<std::string> added;
  for (const Json& token : part(json.rest, "added_tokens")) {
    if (token.is_object()) added.insert(token.value("content", ""));
  }
  const Companions companions = read_companions(directory);
  for (const AddedToken& token : companions.added) added.insert(token.content);
  return added;
}

void add_tokens(const Tokenizer& tokenizer, const std::unordered_set<std::string>& added,
                int64_t vocab_size, GgufVocabulary& out) {
  for (int64_t id = 0; id < vocab_size; ++id) {
    const auto token_id = static_cast<TokenId>(id);
    const bool is_known = static_cast<size_t>(id) < tokenizer.size();
    std::optional<std::string> token =
        is_known ? tokenizer.id_to_token(token_id) : std::optional<std::string>();
    GgufTokenType type = GgufTokenType::kNormal;
    if (!token || token->empty()) {
      token = fmt::format("[PAD{}]", id);
      type = GgufTokenType::kUnused;
    } else if (tokenizer.is_special(token_id)) {
      type = GgufTokenType::kControl;
    } else if (added.contains(*token)) {
      type = GgufTokenType::kUserDefined;
    }
    out.tokens.push_back(std::move(*token));
    out.types.push_back(type);
  }
}

/// llama.cpp reads tokens as C strings, wants each once, and looks for added ones in texts whose
/// spaces are spaces. What stood there, by id.
Json mend_texts(GgufVocabulary& out) {
  Json mended = Json::object();
  std::unordered_set<std::string_view> seen;
  for (size_t id = 0; id < out.tokens.size(); ++id) {
    std::string& token = out.tokens[id];
    if (out.model == "llama" && out.types[id] == GgufTokenType::kUserDefined &&
        token.find(kMetaspace) != std::string::npos) {
      mended[std::to_string(id)] = token;
      token = with_spaces(token);
    }
    if (token.find('\0') != std::string::npos || seen.contains(token)) {
      mended.emplace(std::to_string(id), token);
      token = fmt::format("[EMPTY{}]", id);
      out.types[id] = GgufTokenType::kUnused;
    }
    seen.insert(token);
  }
  return mended;
}

/// What GLM and ChatGLM put before every text.
bool opens_a_chat(const Tokenizer& tokenizer, const std::vector<TokenId>& before) {
  if (before.size() != 2 || tokenizer.id_to_token(before[0]) != "[gMASK]") return false;
  const auto second = tokenizer.id_to_token(before[1]);
  return second == "sop" || second == "<sop>";
}

void add_special(const Tokenizer& tokenizer, const fs::path& directory, GgufVocabulary& out) {
  out.bos = tokenizer.bos_id();
  out.eos = tokenizer.eos_id();
  out.unk = tokenizer.unk_id();
  out.pad = tokenizer.pad_id();
  if (out.model == "llama" && out.unk)
    out.types[static_cast<size_t>(*out.unk)] = GgufTokenType::kUnknown;
  // What encoding puts around a text, asked of the tokenizer itself.
  const auto plain = tokenizer.encode("a", false), whole = tokenizer.encode("a", true);
  const auto at = std::search(whole.begin(), whole.end(), plain.begin(), plain.end());
  const std::vector<TokenId> before(whole.begin(), at);
  const std::vector<TokenId> after(at == whole.end() ? at : at + static_cast<int64_t>(plain.size()),
                                   whole.end());
  if (!out.bos && before.size() == 1) out.bos = before[0];  // no file names it
  out.add_bos = before.size() == 1 && out.bos == before[0];
  out.add_eos = after.size() == 1 && out.eos == after[0];
  if (after.empty() && opens_a_chat(tokenizer, before)) {
    out.notes.push_back(
        tr("llama.cpp puts no [gMASK] and sop before a plain text; chat templates have them"));
    return;
  }
  if ((!out.add_bos && !before.empty()) || (!out.add_eos && !after.empty()))
    refuse(directory, tr("a text is given {} tokens before and {} after it; llama.cpp "
                         "knows bos and eos only",
                         before.size(), after.size()));
}

/// The vocabulary in tiktoken's form that Tokenizer::load takes, where it does; else empty.
fs::path tiktoken_in(const fs::path& directory) {
  if (fs::is_regular_file(directory / "tokenizer.json")) return {};
  const fs::path model = directory / "tokenizer.model", qwen = directory / "qwen.tiktoken";
  if (fs::is_regular_file(model)) return is_tiktoken(MappedFile(model).text()) ? model : fs::path();
  const bool has_two = fs::is_regular_file(directory / "vocab.json") &&
                       fs::is_regular_file(directory / "merges.txt");
  return !has_two && fs::is_regular_file(qwen) ? qwen : fs::path();
}

void add_model(const fs::path& directory, const TokenizerJsonParts& json, GgufVocabulary& out) {
  const fs::path json_file = directory / "tokenizer.json",
                 model_file = directory / "tokenizer.model";
  if (!fs::is_regular_file(json_file)) {
    if (const fs::path ranks = tiktoken_in(directory); !ranks.empty())
      return write_byte_level(json, ranks, out);
    if (fs::is_regular_file(model_file)) return add_sentencepiece(model_file, out);
    return write_byte_level(json, directory / "vocab.json", out);
  }
  const std::string origin = json_file.string();
  const std::string type = field_or<std::string>(json.model, "type", "BPE", origin);
  if (type != "BPE") refuse(json_file, tr("a {} model is unknown to llama.cpp", type));
  if (!field_or(json.model, "byte_fallback", false, origin))
    return write_byte_level(json, json_file, out);
  // The scores of the model file are llama.cpp's own; merges alone must do without it.
  if (fs::is_regular_file(model_file)) {
    add_sentencepiece(model_file, out);
    out.add_space_prefix = puts_space_in_front(json, json_file);
  } else {
    add_merged_pieces(json, json_file, out);
  }
}

TokenizerJsonParts parts_of_two_files(const fs::path& directory) {
  TokenizerJsonParts json;
  const fs::path file = directory / "merges.txt";
  const MappedFile merges(file);
  for (const auto& pair : parse_merges(merges.text(), file.string()))
    json.merges.emplace_back(pair);
  json.rest = parts_of_vocab_and_merges(read_companions(directory));
  return json;
}

/// tokenizer.json's list with what the files beside it add or say otherwise.
Json all_added_tokens(const Tokenizer& tokenizer, const TokenizerJsonParts& json,
                      const Companions& companions) {
  Json all = Json::array();
  const auto put = [&](Json entry) {
    const auto same = std::find_if(all.begin(), all.end(), [&](const Json& other) {
      return other.value("content", "") == entry.value("content", "");
    });
    same == all.end() ? all.push_back(std::move(entry)) : void(*same = std::move(entry));
  };
  for (const Json& token : part(json.rest, "added_tokens")) {
    if (token.is_object()) put(token);
  }
  for (AddedToken token : companions.added) {
    token.id = tokenizer.token_to_id(token.content).value_or(token.id);
    put(json_of(token));
  }
  for (const std::string& name : named_tokens(companions.special)) {
    const auto known = std::any_of(all.begin(), all.end(), [&](const Json& token) {
      return token.value("content", "") == name;
    });
    const auto id = tokenizer.token_to_id(name);
    if (known || !id) continue;
    all.push_back(json_of({.content = name, .id = *id, .special = true}));
  }
  return all;
}

/// Parts of the files that llama.cpp has no keys for.
Json own_parts(const Tokenizer& tokenizer, const fs::path& directory,
               const TokenizerJsonParts& json) {
  const Companions companions = read_companions(directory);
  Json config = Json::object();
  for (const char* key : {"tokenizer_class", "add_bos_token", "add_eos_token", "add_prefix_space",
                          "legacy", "clean_up_tokenization_spaces"}) {
    if (companions.config.contains(key)) config[key] = companions.config[key];
  }
  const SpecialTokens& special = tokenizer.special_tokens();
  const auto name = [&](const char* key, const std::optional<std::string>& token) {
    config[key] = token ? Json(*token) : Json();
  };
  name("bos_token", special.bos);
  name("eos_token", special.eos);
  name("pad_token", special.pad);
  name("unk_token", special.unk);
  const Json added = all_added_tokens(tokenizer, json, companions);
  if (json.rest.empty()) {
    Json decoder = Json::object();
    for (Json token : added) {
      const std::string id = std::to_string(token.at("id").get<int64_t>());
      token.erase("id");
      decoder[id] = std::move(token);
    }
    config["added_tokens_decoder"] = std::move(decoder);
    return {{"tokenizer_config", config}};
  }
  Json parts = json.rest;
  for (const char* key : {"truncation", "padding"}) parts.erase(key);
  parts["added_tokens"] = added;
  parts["model"] = json.model;
  parts["model"]["type"] = "BPE";
  return {{"tokenizer_config", config}, {"tokenizer_json", parts}};
}

/// What reads the files that a GGUF file's tokenizer becomes: their class reads other files.
void name_a_class_of_files(const fs::path& directory, Json& own) {
  if (own.is_null()) return;
  Json& config = own["tokenizer_config"];
  const std::string name = json_get<std::string>(config, "tokenizer_class").value_or("");
  if (!tiktoken_in(directory).empty())
    config["tokenizer_class"] =
        name == "QWenTokenizer" ? "Qwen2Tokenizer" : "PreTrainedTokenizerFast";
}

/// The merges of a tokenizer.json, which gives other ids than scores where a token can be made in
/// several ways. False if one of them cannot be written in a line.
bool add_merges(const TokenizerJsonParts& json, GgufVocabulary& out) {
  if (!out.merges.empty()) return true;
  for (const auto& [left, right] : json.merges) {
    if (left.find(' ') != std::string::npos || right.find(' ') != std::string::npos) return false;
  }
  for (const auto& [left, right] : json.merges)
    out.merges.push_back(fmt::format("{} {}", left, right));
  return true;
}

}  // namespace

std::string with_spaces(std::string token) {
  for (size_t at = token.find(kMetaspace); at != std::string::npos; at = token.find(kMetaspace, at))
    token.replace(at, kMetaspace.size(), " ");
  return token;
}

GgufVocabulary read_gguf_vocabulary(const fs::path& directory, int64_t vocab_size) {
  const auto tokenizer = Tokenizer::load(directory);
  if (static_cast<int64_t>(tokenizer->size()) > vocab_size)
    throw ModelError(tr("{}: the tokenizer has {} ids, but vocab_size is {}", directory.string(),
                        tokenizer->size(), vocab_size));
  TokenizerJsonParts json;
  if (fs::is_regular_file(directory / "tokenizer.json")) {
    json = read_tokenizer_json_parts(directory / "tokenizer.json");
  } else if (const fs::path ranks = tiktoken_in(directory); !ranks.empty()) {
    json = parts_of_tiktoken(ranks);
  } else if (!fs::is_regular_file(directory / "tokenizer.model")) {
    json = parts_of_two_files(directory);
  }
  GgufVocabulary out;
  add_tokens(*tokenizer, added_tokens(directory, json), vocab_size, out);
  add_model(directory, json, out);
  add_special(*tokenizer, directory, out);
  const Json mended = mend_texts(out);
  if (add_merges(json, out)) out.own = own_parts(*tokenizer, directory, json);
  if (!out.own.is_null() && !mended.empty()) out.own["tokens"] = mended;
  name_a_class_of_files(directory, out.own);
  // Its code numbers tokens of its own behind the pieces.
  const Json& config = tokenizer->config();
  if (!out.own.is_null() && json_get<std::string>(config, "tokenizer_class") == "ChatGLMTokenizer")
    out.own["pieces"] = out.pieces;
  out.chat_template = tokenizer->chat_template();
  if (out.add_space_prefix.value_or(false) && !json_get<bool>(config, "legacy").value_or(true)) {
    out.notes.push_back(
        "llama.cpp puts a space after every special token, this tokenizer (legacy: false) only at "
        "the beginning of a text");
  }
  return out;
}

}  // namespace danlu::text
