#include "text/tokenizer/post_processor.h"

#include "base/token_type.h"
#include "text/tokenizer/json_fields.h"
#include "text/tokenizer/vocabulary.h"

namespace danlu::text {

namespace {

TokenId special_id(const Json& value, const std::string& origin) {
  if (!value.is_number_integer() || value.get<int64_t>() < 0 ||
      value.get<int64_t>() > Vocabulary::kMaxId) {
    throw ModelError(tr("{}: a token id of the post-processor is not a valid id", origin));
  }
  return value.get<TokenId>();
}

/// Bert and Roberta write special tokens as ["[SEP]", 102].
TokenId pair_id(const Json& spec, const char* key, const std::string& origin) {
  const Json& pair = member(spec, key, origin);
  if (!pair.is_array() || pair.size() != 2) {
    throw ModelError(tr("{}: \"{}\" of the post-processor must be [token, id]", origin, key));
  }
  return special_id(pair[1], origin);
}

/// nullopt: not first one text and then the other.
std::optional<PostProcessor::Pair> pair_of_template(const Json& spec, const Json& specials,
                                                    const std::string& origin) {
  const auto pieces = spec.find("pair");
  if (pieces == spec.end() || !pieces->is_array()) return std::nullopt;
  PostProcessor::Pair pair;
  std::string seen;
  for (const Json& piece : *pieces) {
    const bool is_text = piece.is_object() && piece.contains("Sequence");
    const Json& part = member(piece, is_text ? "Sequence" : "SpecialToken", origin);
    const bool is_second = field_or<int64_t>(part, "type_id", 0, origin) == 1;
    const auto name = field<std::string>(part, "id", origin);
    if (is_text) {
      seen += name;
      if (name == "B") pair.marks_second = is_second;
      continue;
    }
    auto& to = seen.empty() ? pair.before : seen == "A" ? pair.between : pair.after;
    for (const Json& id : member(member(specials, name, origin), "ids", origin))
      to.push_back(special_id(id, origin) + (is_second ? kSecondText : 0));
  }
  if (seen != "AB") return std::nullopt;
  return pair;
}

PostProcessor read_template(const Json& spec, const std::string& origin) {
  PostProcessor result;
  const Json& specials = member(spec, "special_tokens", origin);
  bool seen_text = false;
  for (const Json& piece : member(spec, "single", origin)) {
    if (piece.is_object() && piece.contains("Sequence")) {
      if (seen_text) {
        throw ModelError(tr("{}: a template that repeats the text is not supported", origin));
      }
      seen_text = true;
      continue;
    }
    const auto name = field<std::string>(member(piece, "SpecialToken", origin), "id", origin);
    for (const Json& id : member(member(specials, name, origin), "ids", origin)) {
      (seen_text ? result.suffix : result.prefix).push_back(special_id(id, origin));
    }
  }
  result.keeps_text = seen_text;
  result.pair = pair_of_template(spec, specials, origin);
  return result;
}

}  // namespace

PostProcessor make_post_processor(const Json& spec, const std::string& origin) {
  PostProcessor result;
  if (spec.is_null()) return result;
  const std::string type = component_type(spec, "the post-processor", origin);
  if (type == "ByteLevel") return result;  // it only moves offsets
  if (type == "TemplateProcessing") return read_template(spec, origin);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    result.prefix = {pair_id(spec, "cls", origin)};
    result.suffix = {pair_id(spec, "sep", origin)};
    const TokenId end = result.suffix.front();
    const bool marks = type == "BertProcessing";
    result.pair = {.before = result.prefix,
                   .between = marks ? std::vector{end} : std::vector{end, end},
                   .after = {marks ? end + kSecondText : end},
                   .marks_second = marks};
    return result;
  }
  if (type == "Sequence") {
    for (const Json& step : member(spec, "processors", origin)) {
      const PostProcessor inner = make_post_processor(step, origin);
      result.prefix.insert(result.prefix.begin(), inner.prefix.begin(), inner.prefix.end());
      result.suffix.insert(result.suffix.end(), inner.suffix.begin(), inner.suffix.end());
      result.keeps_text = result.keeps_text && inner.keeps_text;
      if (inner.pair) result.pair = inner.pair;
    }
    return result;
  }
  fail_unknown_type("a post-processor", type, origin);
}

}  // namespace danlu::text
