#include "text/tiktoken.h"

#include <algorithm>
#include <charconv>
#include <deque>

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

}  // namespace

std::shared_ptr<const Tokenizer> load_tiktoken(const fs::path& path) {
  refuse_lfs_pointer(path, "the tokenizer");
  const std::vector<RankedToken> tokens = read_ranks(path);
  Vocabulary vocabulary;
  std::string spelled;
  for (const auto& [bytes, rank] : tokens) {
    spelled.clear();
    append_byte_level(bytes, spelled);
    if (vocabulary.find(spelled) >= 0)
      throw ModelError(tr("{}: rank {} has the bytes of rank {}", path.string(), rank,
                          vocabulary.find(spelled)));
    vocabulary.add(spelled, rank);
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (vocabulary.find(byte_to_utf8()[byte]) < 0)
      throw ModelError(
          tr("{}: byte {} is no token, so not every text can be encoded", path.string(), byte),
          tr("fetch the file again: it is no tiktoken vocabulary, or damaged"));
  }
  std::deque<std::string> storage;
  const std::vector<BpeModel::Pair> merges = all_cuts(tokens, vocabulary, storage);
  BpeOptions options;
  options.ignore_merges = true;  // a piece that is a token is that token
  auto model =
      std::make_unique<BpeModel>(std::move(vocabulary), merges, std::move(options), path.string());
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", std::string(kLlama3Regex)}}},
                      {"behavior", "Isolated"}};
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  PreTokenizerBuild build =
      make_pre_tokenizer({{"type", "Sequence"}, {"pretokenizers", Json::array({split, bytes})}},
                         model->can_use_raw_bytes(), path.string());
  if (build.raw_bytes) model->use_raw_bytes();
  Pipeline pipeline;
  pipeline.pre_tokenizer = std::move(build.pre_tokenizer);
  pipeline.model = std::move(model);
  pipeline.decoder = make_decoder({{"type", "ByteLevel"}}, path.string());
  pipeline.post_processor = make_post_processor(Json(), path.string());
  return std::make_shared<PipelineTokenizer>(std::move(pipeline), Companions(),
                                             std::vector<fs::path>{path});
}

}  // namespace danlu::text
