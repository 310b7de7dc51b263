#include "text/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/gguf_header.h"
#include "base/json.h"
#include "base/lfs_pointer.h"
#include "text/gguf_metadata.h"
#include "text/gguf_pre_tokenizers.h"
#include "text/gguf_vocabulary.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/pipeline_tokenizer.h"

namespace danlu::text {
namespace {

/// What converters put where a model has a row and its tokenizer no token, or none that llama.cpp
/// could hold.
bool is_placeholder(const GgufVocabulary& vocabulary, size_t id) {
  if (vocabulary.types[id] != GgufTokenType::kUnused) return false;
  const std::string& token = vocabulary.tokens[id];
  return token == fmt::format("[PAD{}]", id) || token == fmt::format("[EMPTY{}]", id);
}

bool is_added(GgufTokenType type) {
  return type == GgufTokenType::kControl || type == GgufTokenType::kUserDefined ||
         type == GgufTokenType::kUnknown;
}

/// Only what JSON must escape: vocabularies are long.
void append_quoted(std::string_view text, std::string& out) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

Json added_entry(const GgufVocabulary& vocabulary, size_t id) {
  return json_of({.content = vocabulary.tokens[id],
                  .id = static_cast<TokenId>(id),
                  .special = vocabulary.types[id] != GgufTokenType::kUserDefined});
}

/// tokenizer.json's "TemplateProcessing" of bos and eos.
Json post_processor(const GgufVocabulary& vocabulary) {
  if (!vocabulary.add_bos && !vocabulary.add_eos) return nullptr;
  Json single = Json::array(), tokens = Json::object();
  const auto add = [&](int64_t id) {
    const std::string& name = vocabulary.tokens[static_cast<size_t>(id)];
    single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    tokens[name] = {{"id", name}, {"ids", {id}}, {"tokens", {name}}};
  };
  if (vocabulary.add_bos) add(*vocabulary.bos);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (vocabulary.add_eos) add(*vocabulary.eos);
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", Json::array()},
          {"special_tokens", tokens}};
}

/// tokenizer.json without vocabulary and merges, of a file that another program wrote.
Json usual_parts(const GgufVocabulary& vocabulary, const std::string& origin) {
  const auto known = gguf_pre_tokenizer(vocabulary.pre);
  if (!known) {
    throw ModelError(tr("{}: the pre-tokenizer \"{}\" is unknown; known are {}", origin,
                        vocabulary.pre, known_gguf_pre_tokenizers()));
  }
  Json added = Json::array();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (is_added(vocabulary.types[id])) added.push_back(added_entry(vocabulary, id));
  }
  return {{"version", "1.0"},
          {"added_tokens", std::move(added)},
          {"normalizer", known->nfc ? Json{{"type", "NFC"}} : Json()},
          {"pre_tokenizer", known->pre_tokenizer},
          {"post_processor", post_processor(vocabulary)},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"ignore_merges", known->ignore_merges}}}};
}

std::string tokenizer_json(const GgufVocabulary& vocabulary, const Json& parts) {
  std::string out = "{";
  for (const auto& [key, value] : parts.items()) {
    if (key == "model") continue;
    append_quoted(key, out);
    out += ": " + dump_text(value) + ",\n";
  }
  out += "\"model\": {";
  for (const auto& [key, value] : parts.at("model").items()) {
    append_quoted(key, out);
    out += ": " + dump_text(value) + ", ";
  }
  out += "\n\"vocab\": {";
  const char* separator = "\n";
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.tokens[id].empty() || is_placeholder(vocabulary, id)) continue;
    out += separator;
    separator = ",\n";
    append_quoted(vocabulary.tokens[id], out);
    out += fmt::format(": {}", id);
  }
  out += "},\n\"merges\": [";
  separator = "\n";
  for (const std::string& merge : vocabulary.merges) {
    out += separator;
    separator = ",\n";
    append_quoted(merge, out);
  }
  return out + "]}}\n";
}

// --- SentencePiece -------------------------------------------------------------------------------

/// A protocol buffer message being written.
class WireText {
 public:
  void number(int field, uint64_t value) {
    varint(static_cast<uint64_t>(field) << 3);
    varint(value);
  }
  void real(int field, float value) {
    varint(static_cast<uint64_t>(field) << 3 | 5);
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    text_.append(bytes, sizeof bytes);
  }
  void bytes(int field, std::string_view value) {
    varint(static_cast<uint64_t>(field) << 3 | 2);
    varint(value.size());
    text_ += value;
  }
  const std::string& text() const { return text_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
    text_ += static_cast<char>(value);
  }
  std::string text_;
};

/// Pieces of a model: rows without a token at the end are none, within it they are taken by no
/// text.
size_t num_pieces(const GgufVocabulary& vocabulary) {
  size_t count = vocabulary.tokens.size();
  while (count > 0 && is_placeholder(vocabulary, count - 1)) --count;
  // Other tokens are numbered behind them by the class of the tokenizer.
  const Json own = vocabulary.own.is_object() ? vocabulary.own : Json::object();
  return std::min(count, json_get<size_t>(own, "pieces").value_or(count));
}

/// Numbers of fields and values are sentencepiece_model.proto's.
std::string sentencepiece_model(const GgufVocabulary& vocabulary, const std::string& origin) {
  WireText model, trainer, rules;
  const auto is_of = [&](GgufTokenType type) {
    return [&, type](size_t id) { return vocabulary.types[id] == type; };
  };
  const size_t count = num_pieces(vocabulary);
  std::optional<size_t> unknown;
  if (vocabulary.unk && static_cast<size_t>(*vocabulary.unk) < count) unknown = *vocabulary.unk;
  for (size_t id = 0; id < count && !unknown; ++id) {
    if (is_of(GgufTokenType::kUnknown)(id)) unknown = id;
  }
  if (!unknown) {
    throw ModelError(tr("{}: no token is marked as the unknown one", origin),
                     tr("name the model's own tokenizer: --tokenizer DIR"));
  }
  bool has_bytes = false;
  for (size_t id = 0; id < count; ++id) {
    GgufTokenType type = vocabulary.types[id];
    if (id == *unknown) {
      type = GgufTokenType::kUnknown;
    } else if (type == GgufTokenType::kUnknown || is_placeholder(vocabulary, id)) {
      type = GgufTokenType::kControl;
    }
    has_bytes |= type == GgufTokenType::kByte;
    WireText piece;
    piece.bytes(1, vocabulary.tokens[id]);
    piece.real(2, vocabulary.scores[id]);
    piece.number(3, static_cast<uint64_t>(type));
    model.bytes(1, piece.text());
  }
  trainer.number(3, 2);  // BPE
  trainer.number(35, has_bytes ? 1 : 0);
  trainer.number(40, *unknown);
  trainer.bytes(45, vocabulary.tokens[*unknown]);
  const std::pair<int, const std::optional<int64_t>&> named[] = {
      {41, vocabulary.bos}, {42, vocabulary.eos}, {43, vocabulary.pad}};
  for (const auto& [field, id] : named) {
    // The format's "none" is -1, as a number of 64 bits.
    trainer.number(field, static_cast<uint64_t>(id.value_or(-1)));
    if (id) trainer.bytes(field + 5, vocabulary.tokens[static_cast<size_t>(*id)]);
  }
  rules.bytes(1, "identity");
  rules.number(3, vocabulary.add_space_prefix.value_or(true) ? 1 : 0);
  rules.number(4, 0);
  rules.number(5, 1);
  model.bytes(2, trainer.text());
  model.bytes(3, rules.text());
  return model.text();
}

// --- both ----------------------------------------------------------------------------------------

Json named_token(const GgufVocabulary& vocabulary, const std::optional<int64_t>& id) {
  return id ? Json(vocabulary.tokens[static_cast<size_t>(*id)]) : Json();
}

Json usual_config(const GgufVocabulary& vocabulary) {
  const bool is_llama = vocabulary.model == "llama";
  Json config = {{"tokenizer_class", is_llama ? "LlamaTokenizer" : "PreTrainedTokenizerFast"},
                 {"add_bos_token", vocabulary.add_bos},
                 {"add_eos_token", vocabulary.add_eos},
                 {"bos_token", named_token(vocabulary, vocabulary.bos)},
                 {"eos_token", named_token(vocabulary, vocabulary.eos)},
                 {"pad_token", named_token(vocabulary, vocabulary.pad)},
                 {"unk_token", named_token(vocabulary, vocabulary.unk)},
                 {"clean_up_tokenization_spaces", false}};
  if (!is_llama) return config;
  config["legacy"] = true;
  Json added = Json::object();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!is_added(vocabulary.types[id])) continue;
    Json entry = added_entry(vocabulary, id);
    entry.erase("id");
    added[std::to_string(id)] = std::move(entry);
  }
  config["added_tokens_decoder"] = std::move(added);
  return config;
}

void add_templates(const GgufVocabulary& vocabulary, Json& config) {
  if (vocabulary.named_templates.empty()) {
    if (!vocabulary.chat_template.empty()) config["chat_template"] = vocabulary.chat_template;
    return;
  }
  Json list = Json::array();
  if (!vocabulary.chat_template.empty())
    list.push_back({{"name", "default"}, {"template", vocabulary.chat_template}});
  for (const auto& [name, text] : vocabulary.named_templates)
    list.push_back({{"name", name}, {"template", text}});
  config["chat_template"] = std::move(list);
}

}  // namespace

bool is_gguf(const fs::path& path) {
  std::error_code unknown;
  if (!fs::is_regular_file(path, unknown)) return false;
  std::ifstream in(path, std::ios::binary);
  char magic[4] = {};
  in.read(magic, sizeof magic);
  return in.gcount() == 4 && std::string_view(magic, 4) == "GGUF";
}

GgufTokenizerFiles tokenizer_files(const GgufVocabulary& vocabulary, const std::string& origin) {
  const auto own = [&](const char* key) {
    const auto it = vocabulary.own.find(key);
    return it != vocabulary.own.end() && it->is_object() ? *it : Json();
  };
  GgufTokenizerFiles files;
  const Json config = own("tokenizer_config"), parts = own("tokenizer_json");
  if (!parts.is_null() && !(parts.contains("model") && parts["model"].is_object()))
    throw ModelError(tr("{}: the key danlu.tokenizer is damaged", origin));
  files.config = config.is_null() ? usual_config(vocabulary) : config;
  add_templates(vocabulary, files.config);
  if (vocabulary.model == "gpt2" || !parts.is_null()) {
    files.name = "tokenizer.json";
    files.content =
        tokenizer_json(vocabulary, parts.is_null() ? usual_parts(vocabulary, origin) : parts);
  } else {
    files.name = "tokenizer.model";
    files.content = sentencepiece_model(vocabulary, origin);
  }
  return files;
}

std::shared_ptr<const Tokenizer> make_gguf_tokenizer(const GgufVocabulary& vocabulary,
                                                     const fs::path& file) {
  GgufTokenizerFiles files = tokenizer_files(vocabulary, file.string());
  Companions companions = companions_of(std::move(files.config), file.string());
  return files.name == "tokenizer.json"
             ? make_tokenizer_json(files.content, std::move(companions), file)
             : make_sentencepiece(files.content, std::move(companions), file);
}

std::optional<GgufVocabulary> read_gguf_file_vocabulary(const fs::path& file) {
  refuse_lfs_pointer(file, "the tokenizer");
  const MappedFile mapped(file);
  return vocabulary_in(gguf::parse_header(mapped.bytes(), file.string()).metadata, file.string());
}

std::shared_ptr<const Tokenizer> load_gguf_tokenizer(const fs::path& file) {
  const auto vocabulary = read_gguf_file_vocabulary(file);
  if (!vocabulary) {
    throw MissingTokenizer(tr("{}: this GGUF file holds no tokenizer", file.string()),
                           tr("name one: --tokenizer DIR"));
  }
  return make_gguf_tokenizer(*vocabulary, file);
}

bool write_gguf_tokenizer(const fs::path& file, const fs::path& directory) {
  const auto vocabulary = read_gguf_file_vocabulary(file);
  if (!vocabulary) return false;
  const GgufTokenizerFiles files = tokenizer_files(*vocabulary, file.string());
  write_file_atomic(directory / files.name, files.content);
  write_json_file(directory / "tokenizer_config.json", files.config);
  return true;
}

void refuse_other_tokenizer(const fs::path& file, const Tokenizer& tokenizer,
                            const std::string& named) {
  const MappedFile mapped(file);
  const GgufVocabulary own =
      token_list_in(gguf::parse_header(mapped.bytes(), file.string()).metadata, file.string());
  if (own.tokens.empty()) return;
  const std::string hint =
      tr("leave it out: the file's own tokenizer is read; or name the one the model was trained "
         "with");
  const auto num_rows = own.tokens.size();
  if (tokenizer.size() > num_rows) {
    throw ModelError(tr("{}: the tokenizer {} has {} ids, the file's own list {}", file.string(),
                        named, tokenizer.size(), num_rows),
                     hint);
  }
  for (size_t id = 0; id < num_rows; ++id) {
    if (is_placeholder(own, id)) continue;
    const auto other = id < tokenizer.size() ? tokenizer.id_to_token(static_cast<TokenId>(id))
                                             : std::optional<std::string>();
    // An unused row may be without a token in one of them.
    if (!other && own.types[id] == GgufTokenType::kUnused) continue;
    if (other == own.tokens[id]) continue;
    if (other && own.types[id] == GgufTokenType::kUserDefined &&
        with_spaces(*other) == own.tokens[id])
      continue;
    throw ModelError(tr("{}: the tokenizer {} is another one than the file's own: token {} is "
                        "\"{}\" there and \"{}\" in the file",
                        file.string(), named, id, other.value_or(""), own.tokens[id]),
                     hint);
  }
}

}  // namespace danlu::text
