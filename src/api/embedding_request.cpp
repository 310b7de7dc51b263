#include "api/embedding_request.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "text/base64.h"

namespace danlu::api {
namespace {

constexpr size_t kMaxInputs = 2048;  // OpenAI's

std::string base64_of(const std::vector<float>& values) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return text::encode_base64(bytes);
}

}  // namespace

EmbeddingRequest read_embedding_request(const Json& body, const RequestLimits& limits) {
  Fields fields(body);
  EmbeddingRequest request;
  request.model = fields.text("model").value_or("");
  request.inputs = read_prompts(fields, "input", kMaxInputs);
  const std::string encoding = fields.text("encoding_format").value_or("float");
  if (encoding != "float" && encoding != "base64") {
    throw Refusal(fmt::format("'encoding_format' must be one of float, base64, got '{}'", encoding),
                  "encoding_format");
  }
  request.in_base64 = encoding == "base64";
  request.dimensions = fields.whole("dimensions", 1);
  request.adds_special = fields.boolean_or("add_special_tokens", true);
  request.truncate_prompt = fields.whole("truncate_prompt_tokens", -1);
  request.keeps_beginning = read_keeps_beginning(fields, /*fallback=*/true);
  for (const char* name : {"use_activation", "normalize"})
    fields.require_on(name, "vectors have length one");
  request.priority = read_priority(fields, limits);
  request.request_id = read_request_id(fields);
  fields.refuse("messages", "conversations are not embedded: render them with /tokenize");
  fields.refuse("mm_processor_kwargs", "texts alone are embedded");
  fields.pass({"user"});
  request.unread = fields.unread();
  return request;
}

Json embeddings_json(const AnswerHead& head, const std::vector<std::vector<float>>& vectors,
                     bool in_base64, int64_t prompt_tokens) {
  Json data = Json::array();
  for (size_t i = 0; i < vectors.size(); ++i) {
    data.push_back({{"object", "embedding"},
                    {"index", i},
                    {"embedding", in_base64 ? Json(base64_of(vectors[i])) : Json(vectors[i])}});
  }
  return {{"id", head.id},
          {"object", "list"},
          {"created", head.created_s},
          {"model", head.model},
          {"data", std::move(data)},
          {"usage", {{"prompt_tokens", prompt_tokens}, {"total_tokens", prompt_tokens}}}};
}

}  // namespace danlu::api
