#include "text/tiktoken.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "base/file.h"
#include "base/lfs_pointer.h"
#include "base/message.h"
#include "text/base64.h"
#include "text/tokenizer/bpe_model.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/pipeline_tokenizer.h"

namespace danlu::text {
namespace {

struct RankedToken {
  std::string bytes;
  TokenId rank = -1;
};

RankedToken read_line(std::string_view line, const std::string& place) {
  const size_t space = line.find(' ');
  RankedToken token;
  const std::string_view number = space == std::string_view::npos ? "" : line.substr(space + 1);
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), token.rank);
  if (number.empty() || error != std::errc() || end != number.data() + number.size() ||
      token.rank < 0 || token.rank > Vocabulary::kMaxId ||
      !decode_base64(line.substr(0, space), &token.bytes))
    throw ModelError(tr("{}: a line must be a token in base64, a space and its rank, got \"{}\"",
                        place, line.substr(0, 40)),
                     tr("fetch the file again: it is no tiktoken vocabulary, or damaged"));
  return token;
}

std::vector<RankedToken> read_ranks(const fs::path& path) {
  const MappedFile file(path);
  std::vector<RankedToken> tokens;
  std::string_view left = file.text();
  for (size_t number = 1; !left.empty(); ++number) {
    const size_t end = left.find('\n');
    std::string_view line = left.substr(0, end);
    left.remove_prefix(end == std::string_view::npos ? left.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty())
      tokens.push_back(read_line(line, fmt::format("{}:{}", path.string(), number)));
  }
  std::ranges::sort(tokens, {}, &RankedToken::rank);
  const auto twice = std::ranges::adjacent_find(tokens, {}, &RankedToken::rank);
  if (twice != tokens.end())
    throw ModelError(tr("{}: the rank {} is given twice", path.string(), twice->rank));
  return tokens;
}

/// tiktoken joins the two neighbours whose bytes together have the lowest rank, however that token
/// may be cut in two: every cut is a merge, in the order of ranks.
std::vector<BpeModel::Pair> all_cuts(const std::vector<RankedToken>& tokens,
                                     const Vocabulary& vocabulary,
                                     std::deque<std::string>& storage) {
  std::vector<BpeModel::Pair> merges;
  std::string left, right;
  for (const auto& [bytes, rank] : tokens) {
    for (size_t at = 1; at < bytes.size(); ++at) {
      left.clear(), right.clear();
      append_byte_level(std::string_view(bytes).substr(0, at), left);
      append_byte_level(std::string_view(bytes).substr(at), right);
      if (vocabulary.find(left) < 0 || vocabulary.find(right) < 0) continue;
      const std::string& kept_left = storage.emplace_back(left);
      merges.emplace_back(kept_left, storage.emplace_back(right));
    }
  }
  return merges;
}

Json pre_tokenizer_of(std::string_view regex) {
  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", std::string(regex)}}}, {"behavior", "Isolated"}};
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, bytes})}};
}

/// The vocabulary with its merges, and text cut by `regex`.
Pipeline ranked_pipeline(const std::vector<RankedToken>& tokens, std::string_view regex,
                         const std::string& origin) {
  Vocabulary vocabulary;
  std::string spelled;
  for (const auto& [bytes, rank] : tokens) {
    spelled.clear();
    append_byte_level(bytes, spelled);
    if (vocabulary.find(spelled) >= 0)
      throw ModelError(
          tr("{}: rank {} has the bytes of rank {}", origin, rank, vocabulary.find(spelled)));
    vocabulary.add(spelled, rank);
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (vocabulary.find(byte_to_utf8()[byte]) < 0)
      throw ModelError(
          tr("{}: byte {} is no token, so not every text can be encoded", origin, byte),
          tr("fetch the file again: it is no tiktoken vocabulary, or damaged"));
  }
  std::deque<std::string> storage;
  const std::vector<BpeModel::Pair> merges = all_cuts(tokens, vocabulary, storage);
  BpeOptions options;
  options.ignore_merges = true;  // a piece that is a token is that token
  auto model =
      std::make_unique<BpeModel>(std::move(vocabulary), merges, std::move(options), origin);
  PreTokenizerBuild build =
      make_pre_tokenizer(pre_tokenizer_of(regex), model->can_use_raw_bytes(), origin);
  if (build.raw_bytes) model->use_raw_bytes();
  Pipeline pipeline;
  pipeline.pre_tokenizer = std::move(build.pre_tokenizer);
  pipeline.model = std::move(model);
  pipeline.decoder = make_decoder({{"type", "ByteLevel"}}, origin);
  pipeline.post_processor = make_post_processor(Json(), origin);
  return pipeline;
}

/// The special tokens: they have the ids after the last rank, in this order.
AddedTokens special_of_qwen(TokenId first) {
  constexpr int kExtras = 205;
  std::vector<std::string> names = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  for (int i = 0; i < kExtras; ++i) names.push_back(fmt::format("<|extra_{}|>", i));
  AddedTokens added;
  for (const std::string& name : names)
    added.add({.content = name, .id = first++, .special = true});
  return added;
}

/// tokenizer.json's post_processor that puts those of `names` before a text that are among
/// `tokens`.
Json prefix_of(const std::vector<std::string>& names, const std::vector<AddedToken>& tokens) {
  Json single = Json::array(), special = Json::object();
  for (const std::string& name : names) {
    const auto token = std::ranges::find(tokens, name, &AddedToken::content);
    if (token == tokens.end()) continue;
    single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    special[name] = {{"id", name}, {"ids", {token->id}}, {"tokens", {name}}};
  }
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  Json pair = single;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 0}}}});
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", special}};
}

/// What tells the two tokenizers apart that ship such files.
struct OfModel {
  bool is_qwen = false;
  Companions companions;
  std::vector<RankedToken> tokens;
  std::string_view regex() const { return is_qwen ? kQwen2Regex : kLlama3Regex; }
  Json normalizer() const { return is_qwen ? Json{{"type", "NFC"}} : Json(); }
  Json post_processor() const {
    return is_qwen ? Json() : prefix_of({"[gMASK]", "<sop>"}, companions.added);
  }
};

OfModel read_of_model(const fs::path& path) {
  refuse_lfs_pointer(path, "the tokenizer");
  OfModel model;
  model.companions = read_companions(path.parent_path());
  const std::string name = model.companions.tokenizer_class();
  model.is_qwen = name == "QWenTokenizer";
  if (!model.is_qwen && name != "ChatGLM4Tokenizer") {
    throw ModelError(tr("{}: a tiktoken vocabulary of tokenizer_class \"{}\" is not read; those of "
                        "QWenTokenizer "
                        "and ChatGLM4Tokenizer are",
                        path.string(), name),
                     tr("take tokenizer.json from the Hugging Face form of the model"));
  }
  model.tokens = read_ranks(path);
  return model;
}

using Ranks = std::unordered_map<std::string_view, TokenId>;

/// The two tokens of lower ranks that the bytes of `token` are joined to before it; none for a
/// single byte, and where they are not two.
std::optional<std::pair<std::string_view, std::string_view>> last_cut(const RankedToken& token,
                                                                      const Ranks& ranks) {
  const std::string_view bytes = token.bytes;
  std::vector<size_t> begins(bytes.size());
  std::iota(begins.begin(), begins.end(), size_t{0});
  const auto end_of = [&](size_t part) {
    return part + 1 < begins.size() ? begins[part + 1] : bytes.size();
  };
  while (begins.size() > 2) {
    size_t best = 0;
    TokenId lowest = token.rank;
    for (size_t part = 0; part + 1 < begins.size(); ++part) {
      const auto found = ranks.find(bytes.substr(begins[part], end_of(part + 1) - begins[part]));
      if (found == ranks.end() || found->second >= lowest) continue;
      lowest = found->second;
      best = part + 1;
    }
    if (best == 0) return std::nullopt;
    begins.erase(begins.begin() + static_cast<std::ptrdiff_t>(best));
  }
  if (begins.size() < 2) return std::nullopt;
  return std::pair(bytes.substr(0, begins[1]), bytes.substr(begins[1]));
}

}  // namespace

std::shared_ptr<const Tokenizer> load_tiktoken(const fs::path& path) {
  refuse_lfs_pointer(path, "the tokenizer");
  Pipeline pipeline = ranked_pipeline(read_ranks(path), kLlama3Regex, path.string());
  return std::make_shared<PipelineTokenizer>(std::move(pipeline), Companions(),
                                             std::vector<fs::path>{path});
}

bool is_tiktoken(std::string_view text) {
  std::string_view line = text.substr(0, text.find('\n'));
  if (line.ends_with('\r')) line.remove_suffix(1);
  const size_t space = line.find(' ');
  std::string bytes;
  return line.size() < 200 && space != std::string_view::npos && space + 1 < line.size() &&
         std::all_of(
             line.begin() + static_cast<std::ptrdiff_t>(space) + 1, line.end(),
             [](char c) { return c >= '0' && c <= '9'; }) &&
         decode_base64(line.substr(0, space), &bytes);
}

std::shared_ptr<const Tokenizer> load_tiktoken_of_model(const fs::path& path) {
  OfModel model = read_of_model(path);
  Pipeline pipeline = ranked_pipeline(model.tokens, model.regex(), path.string());
  if (model.is_qwen) {
    pipeline.normalizer = make_normalizer(model.normalizer(), path.string());
    pipeline.added = special_of_qwen(model.tokens.back().rank + 1);
    auto& special = model.companions.special;
    if (!special.eos) special.eos = "<|endoftext|>";
    if (!special.pad) special.pad = "<|endoftext|>";
  } else {
    pipeline.post_processor = make_post_processor(model.post_processor(), path.string());
  }
  return std::make_shared<PipelineTokenizer>(std::move(pipeline), std::move(model.companions),
                                             std::vector<fs::path>{path});
}

TokenizerJsonParts parts_of_tiktoken(const fs::path& path) {
  const OfModel model = read_of_model(path);
  Ranks ranks;
  for (const RankedToken& token : model.tokens) ranks.emplace(token.bytes, token.rank);
  TokenizerJsonParts parts;
  for (const RankedToken& token : model.tokens) {
    const auto cut = last_cut(token, ranks);
    if (!cut) continue;
    auto& [left, right] = parts.merges.emplace_back();
    append_byte_level(cut->first, left);
    append_byte_level(cut->second, right);
  }
  Json added = Json::array();
  if (model.is_qwen) {
    const AddedTokens special = special_of_qwen(model.tokens.back().rank + 1);
    for (const AddedToken& token : special.tokens()) {
      added.push_back(json_of(token));
    }
  }
  parts.rest = {{"added_tokens", added},
                {"normalizer", model.normalizer()},
                {"pre_tokenizer", pre_tokenizer_of(model.regex())},
                {"post_processor", model.post_processor()},
                {"decoder", {{"type", "ByteLevel"}}}};
  return parts;
}

}  // namespace danlu::text
