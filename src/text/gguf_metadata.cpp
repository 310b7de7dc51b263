#include "text/gguf_metadata.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "text/gguf_pre_tokenizers.h"

namespace danlu::text {
namespace {

constexpr std::string_view kOwnKey = "danlu.tokenizer", kTemplate = "tokenizer.chat_template";
/// How files of old converters write that there is no such token.
constexpr int64_t kNoToken = 0xFFFFFFFF;

class VocabularyReader {
 public:
  VocabularyReader(const gguf::Metadata& metadata, const std::string& origin)
      : metadata_(metadata), origin_(origin) {}

  std::optional<GgufVocabulary> read() {
    const std::string kind = text("tokenizer.ggml.model").value_or("");
    const gguf::Value* tokens = gguf::find(metadata_, "tokenizer.ggml.tokens");
    if (!tokens || kind == "none" || kind == "no_vocab") return std::nullopt;
    if (kind != "gpt2" && kind != "llama") {
      throw ModelError(
          tr("{}: its tokenizer is of the kind \"{}\"; gpt2 (byte-level BPE) and llama "
             "(SentencePiece) are read",
             origin_, kind),
          tr("name the model's own tokenizer: --tokenizer DIR"));
    }
    out_.model = kind;
    read_list();
    if (out_.tokens.empty()) refuse("tokenizer.ggml.tokens", tr("the list is empty"));
    if (kind == "llama") {
      out_.scores = numbers<float>("tokenizer.ggml.scores");
      if (out_.scores.size() != out_.tokens.size()) refuse_length("tokenizer.ggml.scores");
    }
    if (kind == "gpt2" || has("tokenizer.ggml.merges"))
      out_.merges = texts("tokenizer.ggml.merges");
    own();
    special();
    around();
    templates();
    return std::move(out_);
  }

  GgufVocabulary read_list() {
    if (!has("tokenizer.ggml.tokens")) return {};
    out_.tokens = texts("tokenizer.ggml.tokens");
    types();
    return out_;
  }

 private:
  [[noreturn]] void refuse(std::string_view key, const std::string& why) const {
    throw ModelError(tr("{}: metadata key {}: {}", origin_, key, why),
                     tr("name the model's own tokenizer: --tokenizer DIR"));
  }
  [[noreturn]] void refuse_length(std::string_view key) const {
    refuse(key, tr("it must have as many items as there are tokens, {}", out_.tokens.size()));
  }
  bool has(std::string_view key) const { return gguf::find(metadata_, key) != nullptr; }

  template <typename T>
  const T& held(std::string_view key) const {
    const gguf::Value* value = gguf::find(metadata_, key);
    const T* found = value ? std::get_if<T>(value) : nullptr;
    if (!found) refuse(key, tr("it is missing, or of another type"));
    return *found;
  }
  std::optional<std::string> text(std::string_view key) const {
    if (!has(key)) return std::nullopt;
    return held<std::string>(key);
  }
  std::optional<bool> flag(std::string_view key) const {
    if (!has(key)) return std::nullopt;
    return held<bool>(key);
  }
  std::vector<std::string> texts(std::string_view key) const {
    const auto& list = held<gguf::Array>(key);
    if (list.element != gguf::kString && list.count > 0) refuse(key, tr("it must hold texts"));
    return list.strings;
  }
  template <typename T>
  std::vector<T> numbers(std::string_view key) const {
    const auto& list = held<gguf::Array>(key);
    if (list.element != gguf::value_type_of<T>()) refuse(key, tr("its items are of another type"));
    return list.as<T>();
  }

  void types() {
    out_.types.assign(out_.tokens.size(), GgufTokenType::kNormal);
    constexpr std::string_view kKey = "tokenizer.ggml.token_type";
    if (!has(kKey)) return;
    const auto& list = held<gguf::Array>(kKey);
    std::vector<int32_t> found = list.as<int32_t>();
    if (found.empty()) {
      for (const uint32_t type : list.as<uint32_t>()) found.push_back(static_cast<int32_t>(type));
    }
    if (found.size() != out_.tokens.size()) refuse_length(kKey);
    for (size_t id = 0; id < found.size(); ++id) {
      // 0 is "undefined" there: text like any other.
      if (found[id] < 0 || found[id] > 6)
        refuse(kKey, tr("token {} has the type {}; they are 0 to 6", id, found[id]));
      out_.types[id] = static_cast<GgufTokenType>(std::max(found[id], 1));
    }
  }

  std::optional<int64_t> id(const char* name) const {
    const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
    const gguf::Value* value = gguf::find(metadata_, key);
    if (!value) return std::nullopt;
    const int64_t id = std::visit(
        [&](const auto& number) -> int64_t {
          using T = std::decay_t<decltype(number)>;
          if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
            return static_cast<int64_t>(number);
          } else {
            refuse(key, tr("it must be a whole number"));
          }
        },
        *value);
    if (id == kNoToken || id == -1) return std::nullopt;
    if (id < 0 || id >= static_cast<int64_t>(out_.tokens.size())) {
      log::warning("{}: {} is {}, but ids are 0 to {}: it is left out", origin_, key, id,
                   out_.tokens.size() - 1);
      return std::nullopt;
    }
    return id;
  }

  void special() {
    out_.bos = id("bos");
    out_.eos = id("eos");
    out_.unk = id("unknown");
    out_.pad = id("padding");
    const bool is_llama = out_.model == "llama";
    // llama.cpp's own, where the file names none.
    if (is_llama && out_.tokens.size() > 2) {
      if (!has("tokenizer.ggml.bos_token_id")) out_.bos = 1;
      if (!has("tokenizer.ggml.eos_token_id")) out_.eos = 2;
    }
  }

  void around() {
    const bool is_llama = out_.model == "llama";
    bool adds_bos = is_llama;
    if (!is_llama) {
      const auto pre = text("tokenizer.ggml.pre");
      if (!pre && out_.own.is_null()) {
        log::warning(
            "{}: the key tokenizer.ggml.pre is missing: \"default\" is taken, as llama.cpp does, "
            "and "
            "ids may be other than the model's",
            origin_);
      }
      out_.pre = pre.value_or("default");
      const auto known = gguf_pre_tokenizer(out_.pre);
      if (!known && out_.own.is_null()) {
        refuse("tokenizer.ggml.pre",
               tr("\"{}\" is unknown; known are {}", out_.pre, known_gguf_pre_tokenizers()));
      }
      adds_bos = known && known->add_bos;
    } else {
      out_.pre = "default";
      out_.add_space_prefix = flag("tokenizer.ggml.add_space_prefix").value_or(true);
    }
    out_.add_bos = flag("tokenizer.ggml.add_bos_token").value_or(adds_bos) && out_.bos;
    out_.add_eos = flag("tokenizer.ggml.add_eos_token").value_or(false) && out_.eos;
  }

  void own() {
    const auto written = text(kOwnKey);
    if (!written) return;
    out_.own = try_parse_json(*written).value_or(nullptr);
    if (!out_.own.is_object()) refuse(kOwnKey, tr("it is no JSON object"));
    const auto mended = out_.own.find("tokens");
    if (mended == out_.own.end() || !mended->is_object()) return;
    for (const auto& [name, text] : mended->items()) {
      size_t id = out_.tokens.size();
      std::from_chars(name.data(), name.data() + name.size(), id);
      if (id >= out_.tokens.size() || !text.is_string()) continue;
      out_.tokens[id] = text.get<std::string>();
      if (out_.types[id] == GgufTokenType::kUnused) out_.types[id] = GgufTokenType::kNormal;
    }
  }

  void templates() {
    out_.chat_template = text(kTemplate).value_or("");
    const std::string prefix = std::string(kTemplate) + ".";
    for (const auto& [key, value] : metadata_) {
      const auto* named = std::get_if<std::string>(&value);
      if (named && key.starts_with(prefix))
        out_.named_templates.emplace_back(key.substr(prefix.size()), *named);
    }
  }

  const gguf::Metadata& metadata_;
  const std::string& origin_;
  GgufVocabulary out_;
};

}  // namespace

std::optional<GgufVocabulary> vocabulary_in(const gguf::Metadata& metadata,
                                            const std::string& origin) {
  return VocabularyReader(metadata, origin).read();
}

GgufVocabulary token_list_in(const gguf::Metadata& metadata, const std::string& origin) {
  return VocabularyReader(metadata, origin).read_list();
}

void append_vocabulary(const GgufVocabulary& vocabulary, gguf::Metadata& metadata) {
  const auto add = [&](std::string_view key, gguf::Value value) {
    metadata.emplace_back("tokenizer.ggml." + std::string(key), std::move(value));
  };
  add("model", vocabulary.model);
  add("pre", vocabulary.pre);
  add("tokens", gguf::string_array(vocabulary.tokens));
  if (!vocabulary.scores.empty()) add("scores", gguf::number_array(vocabulary.scores));
  std::vector<int32_t> types;
  types.reserve(vocabulary.types.size());
  for (const GgufTokenType type : vocabulary.types) types.push_back(static_cast<int32_t>(type));
  add("token_type", gguf::number_array(types));
  // llama.cpp wants the key even where there is nothing to merge.
  if (vocabulary.model == "gpt2" || !vocabulary.merges.empty())
    add("merges", gguf::string_array(vocabulary.merges));
  const auto add_id = [&](std::string_view key, const std::optional<int64_t>& id) {
    if (id) add(key, static_cast<uint32_t>(*id));
  };
  add_id("bos_token_id", vocabulary.bos);
  add_id("eos_token_id", vocabulary.eos);
  add_id("unknown_token_id", vocabulary.unk);
  add_id("padding_token_id", vocabulary.pad);
  add("add_bos_token", vocabulary.add_bos);
  add("add_eos_token", vocabulary.add_eos);
  if (vocabulary.add_space_prefix) add("add_space_prefix", *vocabulary.add_space_prefix);
  if (!vocabulary.chat_template.empty()) metadata.emplace_back(kTemplate, vocabulary.chat_template);
  for (const auto& [name, text] : vocabulary.named_templates)
    metadata.emplace_back(std::string(kTemplate) + "." + name, text);
  if (!vocabulary.own.is_null()) {
    metadata.emplace_back(kOwnKey,
                          vocabulary.own.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
}

}  // namespace danlu::text
