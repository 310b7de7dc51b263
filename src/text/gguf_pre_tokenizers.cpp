#include "text/gguf_pre_tokenizers.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <vector>

#include "text/tokenizer/scanners.h"
#include "text/tokenizer/utf8.h"

namespace danlu::text {
namespace {

/// Which regular expressions cut, one after the other.
enum class GgufCut {
  kGpt2,
  kDigitThenGpt2,
  kQwen2,
  kQwen35,
  kLlama3,
  kGpt4o,
  kTekken,
  kBailing,
  kSeedCoder,
  kFalcon,
  kBloom,
  kViking,
  kDeepseekLlm,
  kDeepseekCoder,
  kDeepseekV3,
  kDefault
};

struct NamedCut {
  std::string_view name;
  GgufCut cut;
  bool ignore_merges = false, nfc = false, add_bos = false;
};

constexpr NamedCut kNamedCuts[] = {
    {"a.x-4.0", GgufCut::kGpt2},
    {"bailingmoe", GgufCut::kBailing},
    {"bloom", GgufCut::kBloom},
    {"chatglm-bpe", GgufCut::kLlama3},
    {"codeshell", GgufCut::kDigitThenGpt2},
    {"command-r", GgufCut::kDigitThenGpt2},
    {"dbrx", GgufCut::kLlama3},
    {"deepseek-coder", GgufCut::kDeepseekCoder},
    {"deepseek-llm", GgufCut::kDeepseekLlm},
    {"deepseek-r1-qwen", GgufCut::kQwen2, false, true},
    {"deepseek-v3", GgufCut::kDeepseekV3},
    {"default", GgufCut::kDefault},
    {"exaone", GgufCut::kDigitThenGpt2},
    {"exaone4", GgufCut::kGpt2},
    {"falcon", GgufCut::kFalcon},
    {"falcon-h1", GgufCut::kLlama3, true, false, true},
    {"falcon3", GgufCut::kLlama3, true, false, true},
    {"gigachat", GgufCut::kGpt2},
    {"glm4", GgufCut::kLlama3},
    {"gpt-2", GgufCut::kGpt2},
    {"gpt-4o", GgufCut::kGpt4o},
    {"gpt3-finnish", GgufCut::kBloom},
    {"jais", GgufCut::kGpt2},
    {"kanana2", GgufCut::kGpt4o},
    {"lfm2", GgufCut::kLlama3, true, false, true},
    {"llama-bpe", GgufCut::kLlama3, true, false, true},
    {"llama-v3", GgufCut::kLlama3, true, false, true},
    {"llama3", GgufCut::kLlama3, true, false, true},
    {"llama4", GgufCut::kGpt4o},
    {"megrez", GgufCut::kQwen2},
    {"minerva-7b", GgufCut::kDigitThenGpt2},
    {"mpt", GgufCut::kGpt2},
    {"olmo", GgufCut::kGpt2},
    {"phi-2", GgufCut::kGpt2},
    {"pixtral", GgufCut::kLlama3, true, false, true},
    {"poro-chat", GgufCut::kBloom},
    {"qwen2", GgufCut::kQwen2, false, true},
    {"qwen35", GgufCut::kQwen35, false, true},
    {"refact", GgufCut::kDigitThenGpt2},
    {"seed-coder", GgufCut::kSeedCoder},
    {"smaug-bpe", GgufCut::kLlama3},
    {"smollm", GgufCut::kDigitThenGpt2},
    {"stablelm2", GgufCut::kQwen2},
    {"starcoder", GgufCut::kDigitThenGpt2},
    {"tekken", GgufCut::kTekken, true, false, true},
    {"viking", GgufCut::kViking},
};

/// Cased letters as DeepSeek's first tokenizer lists them.
constexpr std::string_view kDeepseekLetters =
    R"(\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293})"
    R"(\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A})"
    R"(\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556})"
    R"(\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF})"
    R"(\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D})"
    R"(\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D})"
    R"(\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4})"
    R"(\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4})"
    R"(\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124})"
    R"(\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F})"
    R"(\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4})"
    R"(\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F})"
    R"(\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17})"
    R"(\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3})"
    R"(\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF})"
    R"(\x{1E900}-\x{1E943}]+)";
constexpr std::string_view kDeepseekPunctuation =
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)";
constexpr std::string_view kDeepseekCjk =
    R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";
constexpr std::string_view kDeepseekV3Cjk =
    R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
constexpr std::string_view kDeepseekV3Words =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
    R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBloomRegex =
    R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)";
constexpr std::string_view kQwen35Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4oRegex =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenRegex =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBailingRegex =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*)"
    R"(|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kSeedCoderRegex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kFalconPunctuation = R"([\p{P}\$\+<=>\^~\|`]+)";
constexpr std::string_view kDefaultPunctuation = R"([\p{P}\$\+<=>\^~\|]+)";

std::vector<std::string_view> regexes_of(GgufCut cut) {
  switch (cut) {
    case GgufCut::kGpt2:
      return {kGpt2Regex};
    case GgufCut::kDigitThenGpt2:
      return {R"(\p{N})", kGpt2Regex};
    case GgufCut::kQwen2:
      return {kQwen2Regex};
    case GgufCut::kQwen35:
      return {kQwen35Regex};
    case GgufCut::kLlama3:
      return {kLlama3Regex};
    case GgufCut::kGpt4o:
      return {kGpt4oRegex};
    case GgufCut::kTekken:
      return {kTekkenRegex};
    case GgufCut::kBailing:
      return {kBailingRegex};
    case GgufCut::kSeedCoder:
      return {kSeedCoderRegex};
    case GgufCut::kFalcon:
      return {kFalconPunctuation, kGpt2Regex, "[0-9][0-9][0-9]"};
    case GgufCut::kBloom:
      return {kBloomRegex};
    case GgufCut::kViking:
      return {kBloomRegex, R"(\p{N})"};
    case GgufCut::kDeepseekLlm:
      return {R"([\r\n])", kDeepseekLetters, kDeepseekPunctuation,
              R"(\s+$)",   kDeepseekCjk,     R"(\p{N}+)"};
    case GgufCut::kDeepseekCoder:
      return {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepseekCjk, R"(\p{N})"};
    case GgufCut::kDeepseekV3:
      return {R"(\p{N}{1,3})", kDeepseekV3Cjk, kDeepseekV3Words};
    case GgufCut::kDefault:
      break;
  }
  return {kDefaultPunctuation, kGpt2Regex, R"(\p{N}+)", "[0-9][0-9][0-9]"};
}

Json pre_tokenizer_json(GgufCut cut) {
  const Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", true},
                      {"use_regex", cut == GgufCut::kGpt2}};
  if (cut == GgufCut::kGpt2) return bytes;
  Json steps = Json::array();
  for (const std::string_view regex : regexes_of(cut)) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", std::string(regex)}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back(bytes);
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

/// A pattern with the characters that `\x{…}`, `\r` and `\n` stand for: files have either spelling.
std::string spelled_out(std::string_view pattern) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      out += pattern[i];
      continue;
    }
    const char next = pattern[++i];
    const size_t end = next == 'x' ? pattern.find('}', i) : std::string_view::npos;
    if (next == 'r' || next == 'n') {
      out += next == 'r' ? '\r' : '\n';
    } else if (end != std::string_view::npos && pattern[i + 1] == '{') {
      uint32_t value = 0;
      std::from_chars(pattern.data() + i + 2, pattern.data() + end, value, 16);
      append_utf8(value, out);
      i = end;
    } else {
      out += '\\';
      out += next;
    }
  }
  return out;
}

/// Cuts that have a name of one model each; whether whole words skip the merges there, as far as it
/// tells names apart.
struct WrittenName {
  std::string_view name;
  GgufCut cut;
  bool ignore_merges = false;
};
constexpr WrittenName kWrittenNames[] = {{"deepseek-v3", GgufCut::kDeepseekV3},
                                         {"deepseek-llm", GgufCut::kDeepseekLlm},
                                         {"deepseek-coder", GgufCut::kDeepseekCoder},
                                         {"gpt-4o", GgufCut::kGpt4o},
                                         {"llama4", GgufCut::kGpt4o, true},
                                         {"tekken", GgufCut::kTekken, true},
                                         {"qwen35", GgufCut::kQwen35}};

constexpr std::string_view kOneDigit = R"(\p{N})", kRunOfDigits = R"(\p{N}+)";

/// Single digits and runs of them are the same where no merge joins digits, as in DeepSeek's.
bool differs_by_run(std::string_view a, std::string_view b) {
  return (a == kOneDigit && b == kRunOfDigits) || (a == kRunOfDigits && b == kOneDigit);
}

}  // namespace

std::string gguf_name_of_cuts(const std::vector<std::string>& regexes, bool ignore_merges,
                              const Merges& merges) {
  for (const WrittenName& known : kWrittenNames) {
    const std::vector<std::string_view> theirs = regexes_of(known.cut);
    bool has_other_run = false;
    const bool is_same = std::equal(regexes.begin(), regexes.end(), theirs.begin(), theirs.end(),
                                    [&](const std::string& a, std::string_view b) {
                                      const bool is_other_run = differs_by_run(a, b);
                                      has_other_run |= is_other_run;
                                      return is_other_run || spelled_out(a) == spelled_out(b);
                                    });
    if (!is_same || known.ignore_merges != ignore_merges) continue;
    return has_other_run && join_digits(merges) ? "" : std::string(known.name);
  }
  return {};
}

std::optional<GgufPreTokenizer> gguf_pre_tokenizer(std::string_view name) {
  const auto found = std::find_if(std::begin(kNamedCuts), std::end(kNamedCuts),
                                  [&](const NamedCut& named) { return named.name == name; });
  if (found == std::end(kNamedCuts)) return std::nullopt;
  return GgufPreTokenizer{pre_tokenizer_json(found->cut), found->ignore_merges, found->nfc,
                          found->add_bos};
}

std::string known_gguf_pre_tokenizers() {
  std::string names;
  for (const NamedCut& named : kNamedCuts) {
    if (!names.empty()) names += ", ";
    names += named.name;
  }
  return names;
}

}  // namespace danlu::text
