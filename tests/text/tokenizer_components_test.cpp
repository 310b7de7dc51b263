// Every component of tokenizer.json against what HF's tokenizers library made of the same texts
// (golden_tokenizers/components.json).
#include <gmock/gmock.h>

#include "text/tokenizer/decoder.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pipeline_tokenizer.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "tokenizer_golden.h"

namespace danlu::text {
namespace {

using test::StreamHash;

const Json& specs() {
  static const Json kSpecs = read_json_file(test::golden_dir() / "component_specs.json");
  return kSpecs;
}
const Json& goldens() {
  static const Json kGoldens = read_json_file(test::golden_dir() / "components.json");
  return kGoldens;
}
const std::vector<std::string>& nasty() {
  static const std::vector<std::string> kTexts = [] {
    std::vector<std::string> texts;
    for (const auto& [name, bytes] : test::nasty_texts()) texts.push_back(test::repaired(bytes));
    return texts;
  }();
  return kTexts;
}
const std::vector<std::string>& code_points() {
  static const std::vector<std::string> kTexts = test::code_point_texts();
  return kTexts;
}

using PerText = std::function<void(StreamHash&, const std::string&)>;

void expect_hashes(const std::string& name, const Json& golden, const PerText& per_text) {
  StreamHash all;
  for (const std::string& text : nasty()) per_text(all, text);
  EXPECT_EQ(golden["nasty"][0].get<size_t>(), nasty().size());
  EXPECT_EQ(golden["nasty"][2].get<std::string>(), all.hex()) << name << " on the nasty texts";
  std::istringstream blocks(golden["codepoints"].get<std::string>());
  size_t begin = 0;
  for (std::string expected; blocks >> expected; begin += 4096) {
    StreamHash hash;
    const size_t end = std::min(begin + 4096, code_points().size());
    for (size_t i = begin; i < end; ++i) per_text(hash, code_points()[i]);
    EXPECT_EQ(expected, hash.hex()) << name << " from " << code_points()[begin].substr(1, 4);
  }
  EXPECT_GE(begin, code_points().size());
}

TEST(TokenizerComponents, NormalizersEqualHuggingFace) {
  for (const auto& [name, spec] : specs()["normalizers"].items()) {
    const auto normalizer = make_normalizer(spec, "test");
    expect_hashes(name, goldens()["normalizers"][name],
                  [&](StreamHash& hash, const std::string& text) {
                    std::string normalized = text;
                    if (!normalizer->leaves_unchanged(text)) normalizer->normalize(normalized);
                    hash.add_text(normalized);
                  });
  }
}

TEST(TokenizerComponents, ANormalizerThatBlowsTextsUpIsRefused) {
  const auto sequence = [](size_t count, const Json& step) {
    return Json{{"type", "Sequence"}, {"normalizers", std::vector<Json>(count, step)}};
  };
  const auto replace = [](const Json& pattern, const std::string& content) {
    return Json{{"type", "Replace"}, {"pattern", pattern}, {"content", content}};
  };
  const auto normalized = [](const Json& spec, std::string text) {
    make_normalizer(spec, "test")->normalize(text);
    return text.size();
  };
  const std::string long_text(1 << 19, 'x'), many(400, 'a');
  // 2^24 bytes of one; 16 MB of 400; 33 times 512 kB.
  for (const Json& spec : {sequence(24, replace({{"String", "a"}}, "aa")),
                           sequence(24, replace({{"Regex", "a"}}, "aa")),
                           replace({{"String", "a"}}, std::string(40000, 'b')),
                           replace({{"Regex", "."}}, std::string(40000, 'b')),
                           sequence(33, {{"type", "Prepend"}, {"prepend", long_text}})}) {
    EXPECT_THROW(normalized(spec, many), ModelError) << spec.dump().substr(0, 100);
  }
  EXPECT_EQ(normalized(sequence(3, replace({{"String", "a"}}, "aa")), many), 8 * many.size());
  EXPECT_EQ(normalized({{"type", "Prepend"}, {"prepend", long_text}}, "a"), long_text.size() + 1);
}

TEST(TokenizerComponents, PreTokenizersEqualHuggingFace) {
  for (const auto& [name, spec] : specs()["pre_tokenizers"].items()) {
    const PreTokenizerBuild build = make_pre_tokenizer(spec, /*allow_raw_bytes=*/false, "test");
    expect_hashes(name, goldens()["pre_tokenizers"][name],
                  [&](StreamHash& hash, const std::string& text) {
                    if (!text.empty()) {
                      build.pre_tokenizer->split(
                          text, true, [&](std::string_view piece, bool) { hash.add_text(piece); });
                    }
                    hash.add(-2);
                  });
  }
}

TEST(TokenizerComponents, DecodersEqualHuggingFace) {
  for (const auto& [name, spec] : specs()["decoders"].items()) {
    const auto decoder = make_decoder(spec, "test");
    for (const Json& example : goldens()["decoders"][name]) {
      auto tokens = example[0].get<std::vector<std::string>>();
      decoder->decode(tokens);
      std::string text;
      for (const std::string& token : tokens) text += token;
      EXPECT_EQ(example[1].get<std::string>(), text) << name << " of " << example[0];
    }
  }
}

std::shared_ptr<const Tokenizer> whole_tokenizer(const Json& parts) {
  Json file = {{"version", "1.0"}};
  for (const auto& [key, value] : parts.items()) file[key] = value;
  return parse_tokenizer_json(file.dump(), "test");
}

TEST(TokenizerComponents, ModelsAddedTokensAndPostProcessorsEqualHuggingFace) {
  for (const auto& [name, parts] : specs()["tokenizers"].items()) {
    const auto tokenizer = whole_tokenizer(parts);
    const Json& golden = goldens()["tokenizers"][name];
    for (const Json& example : golden["examples"]) {
      EXPECT_EQ(example[1].get<std::vector<TokenId>>(),
                tokenizer->encode(example[0].get<std::string>()))
          << name << " of " << example[0];
    }
    StreamHash hash;
    for (const std::string& text : nasty()) hash.add_ids(tokenizer->encode(text));
    EXPECT_EQ(golden["nasty"][2].get<std::string>(), hash.hex()) << name << " on the nasty texts";
  }
}

}  // namespace
}  // namespace danlu::text
