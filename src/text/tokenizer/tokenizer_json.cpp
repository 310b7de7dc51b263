// Reads tokenizer.json (and the older vocab.json + merges.txt) into a PipelineTokenizer.
#include <deque>

#include "base/file.h"
#include "base/message.h"
#include "text/tokenizer/bpe_model.h"
#include "text/tokenizer/json_fields.h"
#include "text/tokenizer/json_scanner.h"
#include "text/tokenizer/pipeline_tokenizer.h"
#include "text/tokenizer/simple_models.h"
#include "text/tokenizer/vocab_and_merges.h"

namespace danlu::text {

namespace {

/// The model as the file spells it; views point into the file or into `storage`.
struct ModelSource {
  Vocabulary vocabulary;
  std::vector<double> scores;  ///< Unigram only
  bool vocabulary_is_list = false, has_vocabulary = false, has_merges = false;
  std::vector<BpeModel::Pair> merges;
  std::deque<std::string> storage;
  Json rest = Json::object();
};

[[noreturn]] void fail_given_twice(const JsonScanner& json, std::string_view key) {
  json.fail(tr("\"{}\" is given twice", key));
}

TokenId read_id(JsonScanner& json) {
  const int64_t id = json.integer();
  if (id < 0 || id > Vocabulary::kMaxId) {
    json.fail(tr("token id {} must be between 0 and {}", id, Vocabulary::kMaxId));
  }
  return static_cast<TokenId>(id);
}

void read_vocabulary(JsonScanner& json, ModelSource& source) {
  source.has_vocabulary = true;
  if (json.peek() == '{') {
    json.object([&](std::string_view token) { source.vocabulary.add(token, read_id(json)); });
    return;
  }
  source.vocabulary_is_list = true;
  std::string token;
  json.array([&] {
    int part = 0;
    double score = 0;
    json.array([&] {
      if (part == 0) {
        std::string storage;
        token = json.string(storage);
      } else if (part == 1) {
        score = json.number();
      } else {
        json.fail("an entry of a Unigram vocabulary must be [token, score]");
      }
      ++part;
    });
    if (part != 2) json.fail("an entry of a Unigram vocabulary must be [token, score]");
    source.vocabulary.add(token, static_cast<TokenId>(source.scores.size()));
    source.scores.push_back(score);
  });
}

/// A view that outlives the scanner's next call: text with escapes is kept aside.
std::string_view kept_string(JsonScanner& json, ModelSource& source) {
  std::string storage;
  const std::string_view text = json.string(storage);
  return text.data() == storage.data() ? source.storage.emplace_back(text) : text;
}

void read_merges(JsonScanner& json, ModelSource& source) {
  source.has_merges = true;
  json.array([&] {
    if (json.peek() == '[') {
      std::string_view parts[2];
      int count = 0;
      json.array([&] {
        if (count == 2) json.fail("a merge must be a pair of tokens");
        parts[count++] = kept_string(json, source);
      });
      if (count != 2) json.fail("a merge must be a pair of tokens");
      source.merges.emplace_back(parts[0], parts[1]);
      return;
    }
    const std::string_view line = kept_string(json, source);
    const auto pair = split_merge(line);
    if (!pair) {
      json.fail(tr("a merge must be two tokens with one space between, got \"{}\"", line));
    }
    source.merges.push_back(*pair);
  });
}

void read_model_member(JsonScanner& json, ModelSource& source) {
  json.object([&](std::string_view key) {
    if ((key == "vocab" && source.has_vocabulary) || (key == "merges" && source.has_merges))
      fail_given_twice(json, key);
    if (key == "vocab") {
      read_vocabulary(json, source);
    } else if (key == "merges") {
      read_merges(json, source);
    } else {
      const std::string name(key);
      source.rest[name] = json.value();
    }
  });
}

std::string model_type(const ModelSource& source, const std::string& origin) {
  // Files written before types were have to be told by their keys.
  const std::string guess = source.has_merges                                  ? "BPE"
                            : source.vocabulary_is_list                        ? "Unigram"
                            : source.rest.contains("max_input_chars_per_word") ? "WordPiece"
                                                                               : "WordLevel";
  return field_or(source.rest, "type", guess, origin);
}

std::unique_ptr<Model> make_model(ModelSource& source, const std::string& origin) {
  const std::string type = model_type(source, origin);
  const Json& rest = source.rest;
  if (!source.has_vocabulary) throw ModelError(tr("{}: the model has no \"vocab\"", origin));
  if (source.vocabulary_is_list != (type == "Unigram")) {
    throw ModelError(tr("{}: a {} model's \"vocab\" must be {}", origin, type,
                        type == "Unigram" ? "a list of [token, score]" : "an object"));
  }
  if (type == "BPE") {
    BpeOptions options;
    if (const auto unk = field_or<std::string>(rest, "unk_token", "", origin); !unk.empty()) {
      options.unk_token = unk;
    }
    options.continuing_subword_prefix =
        field_or<std::string>(rest, "continuing_subword_prefix", "", origin);
    options.end_of_word_suffix = field_or<std::string>(rest, "end_of_word_suffix", "", origin);
    options.fuse_unk = field_or(rest, "fuse_unk", false, origin);
    options.byte_fallback = field_or(rest, "byte_fallback", false, origin);
    options.ignore_merges = field_or(rest, "ignore_merges", false, origin);
    return std::make_unique<BpeModel>(std::move(source.vocabulary), source.merges,
                                      std::move(options), origin);
  }
  if (type == "Unigram") {
    UnigramOptions options;
    if (rest.contains("unk_id") && !rest["unk_id"].is_null()) {
      options.unk_id = field<TokenId>(rest, "unk_id", origin);
    }
    options.byte_fallback = field_or(rest, "byte_fallback", false, origin);
    return make_unigram_model(std::move(source.vocabulary), std::move(source.scores), options,
                              origin);
  }
  if (type == "WordPiece") {
    WordPieceOptions options;
    options.unk_token = field_or(rest, "unk_token", options.unk_token, origin);
    options.continuing_subword_prefix =
        field_or(rest, "continuing_subword_prefix", options.continuing_subword_prefix, origin);
    options.max_input_chars_per_word =
        field_or(rest, "max_input_chars_per_word", options.max_input_chars_per_word, origin);
    return make_wordpiece_model(std::move(source.vocabulary), std::move(options), origin);
  }
  if (type == "WordLevel") {
    return make_wordlevel_model(std::move(source.vocabulary),
                                field_or<std::string>(rest, "unk_token", "<unk>", origin));
  }
  fail_unknown_type("a model", type, origin);
}

/// The id is the vocabulary's own for a token it knows, else -1.
AddedToken read_added_token(const Json& spec, const Vocabulary& vocabulary,
                            const std::string& origin) {
  if (!spec.is_object())
    throw ModelError(tr("{}: an entry of \"added_tokens\" is no object", origin));
  AddedToken token;
  token.content = field<std::string>(spec, "content", origin);
  const auto id = field<int64_t>(spec, "id", origin);
  if (id < 0 || id > Vocabulary::kMaxId) {
    throw ModelError(tr("{}: added token \"{}\" has the id {}; it must be between 0 and {}", origin,
                        token.content, id, Vocabulary::kMaxId));
  }
  token.id = vocabulary.find(token.content);
  token.single_word = field_or(spec, "single_word", false, origin);
  token.lstrip = field_or(spec, "lstrip", false, origin);
  token.rstrip = field_or(spec, "rstrip", false, origin);
  token.special = field_or(spec, "special", false, origin);
  token.normalized = field_or(spec, "normalized", !token.special, origin);
  return token;
}

Pipeline assemble(ModelSource& source, const Json& parts, const std::string& origin) {
  const auto part = [&](const char* key) {
    const auto it = parts.find(key);
    return it == parts.end() ? Json() : *it;
  };
  Pipeline pipeline;
  pipeline.model = make_model(source, origin);
  auto* bpe = dynamic_cast<BpeModel*>(pipeline.model.get());
  const bool can_use_raw_bytes = bpe && bpe->can_use_raw_bytes();
  PreTokenizerBuild build = make_pre_tokenizer(part("pre_tokenizer"), can_use_raw_bytes, origin);
  pipeline.pre_tokenizer = std::move(build.pre_tokenizer);
  if (build.raw_bytes) bpe->use_raw_bytes();
  pipeline.normalizer = make_normalizer(part("normalizer"), origin);
  pipeline.decoder = make_decoder(part("decoder"), origin);
  pipeline.post_processor = make_post_processor(part("post_processor"), origin);
  const Vocabulary& vocabulary = pipeline.model->vocabulary();
  // Ids are given out as HF does on loading, whatever the file says: the next one after the
  // vocabulary and the tokens added so far.
  auto next_id = static_cast<TokenId>(vocabulary.count());
  for (const Json& token : part("added_tokens")) {
    AddedToken added = read_added_token(token, vocabulary, origin);
    const AddedToken* same = pipeline.added.by_content(added.content);
    if (added.id < 0) added.id = same ? same->id : next_id++;
    pipeline.added.add(std::move(added));
  }
  return pipeline;
}

Pipeline read_pipeline(std::string_view text, const std::string& origin) {
  JsonScanner json(text, origin);
  ModelSource source;
  source.vocabulary.reserve(text.size() / 48, text.size() / 4);
  source.merges.reserve(text.size() / 48);
  Json parts = Json::object();
  bool has_model = false;
  json.object([&](std::string_view key) {
    if (key == "model") {
      if (has_model) fail_given_twice(json, key);
      has_model = true;
      read_model_member(json, source);
    } else {
      const std::string name(key);
      parts[name] = json.value();
    }
  });
  json.finish();
  if (!has_model) {
    throw ModelError(tr("{}: \"model\" is missing", origin),
                     tr("is this a tokenizer.json of the tokenizers library?"));
  }
  return assemble(source, parts, origin);
}

}  // namespace

std::shared_ptr<const Tokenizer> parse_tokenizer_json(std::string_view text,
                                                      const std::string& origin) {
  return std::make_shared<PipelineTokenizer>(read_pipeline(text, origin), Companions(),
                                             std::vector<fs::path>());
}

std::shared_ptr<const Tokenizer> load_tokenizer_json(const fs::path& path) {
  const MappedFile file(path);
  return std::make_shared<PipelineTokenizer>(read_pipeline(file.text(), path.string()),
                                             read_companions(path.parent_path()),
                                             std::vector<fs::path>{path});
}

std::shared_ptr<const Tokenizer> make_tokenizer_json(std::string_view text, Companions companions,
                                                     const fs::path& file) {
  return std::make_shared<PipelineTokenizer>(
      read_pipeline(text, file.string()), std::move(companions), std::vector<fs::path>{file}, text);
}

namespace {

/// GPT-2's class has one token for the beginning, the end and what is not known, if no file names
/// others.
void name_gpt2s_token(const Vocabulary& vocabulary, Companions& companions) {
  const std::string kind = companions.tokenizer_class(), token = "<|endoftext|>";
  if (!(kind.empty() || kind.starts_with("GPT2Tokenizer")) || vocabulary.find(token) < 0) return;
  for (auto* slot : {&companions.special.bos, &companions.special.eos, &companions.special.unk}) {
    if (!*slot) *slot = token;
  }
}

}  // namespace

std::shared_ptr<const Tokenizer> load_vocab_and_merges(const fs::path& vocab_path,
                                                       const fs::path& merges_path) {
  const MappedFile vocab(vocab_path), merges(merges_path);
  ModelSource source;
  JsonScanner json(vocab.text(), vocab_path.string());
  source.vocabulary.reserve(vocab.size() / 24, vocab.size());
  json.object([&](std::string_view token) { source.vocabulary.add(token, read_id(json)); });
  json.finish();
  source.has_vocabulary = true;
  source.merges = parse_merges(merges.text(), merges_path.string());
  source.rest["type"] = "BPE";

  Companions companions = read_companions(vocab_path.parent_path());
  const Json parts = parts_of_vocab_and_merges(companions);
  Pipeline pipeline = assemble(source, parts, vocab_path.string());
  name_gpt2s_token(pipeline.model->vocabulary(), companions);
  return std::make_shared<PipelineTokenizer>(std::move(pipeline), std::move(companions),
                                             std::vector<fs::path>{vocab_path, merges_path});
}

}  // namespace danlu::text
