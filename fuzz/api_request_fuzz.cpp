// fuzz/api_request_fuzz.cpp: any body is a request, or is refused with an error that can be sent.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "api/adapter_requests.h"
#include "api/chat_request.h"
#include "api/completion_request.h"
#include "api/embedding_request.h"

namespace {

template <typename Read>
void refuse_or_take(const Read& read) {
  try {
    read();
  } catch (const danlu::api::Refusal& refusal) {
    const danlu::Json json = danlu::api::error_json(refusal);
    if (refusal.status() < 400 || danlu::dump_text(json).empty()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace danlu::api;
  if (size > 50000) return 0;
  const std::string body(reinterpret_cast<const char*>(data), size);
  const RequestLimits limits;
  refuse_or_take([&] { read_chat_request(parse_body(body), limits); });
  refuse_or_take([&] { read_completion_request(parse_body(body), limits); });
  refuse_or_take([&] { read_tokenize_request(parse_body(body), limits); });
  refuse_or_take([&] { read_detokenize_request(parse_body(body)); });
  refuse_or_take([&] { read_embedding_request(parse_body(body), {}); });
  refuse_or_take([&] { read_load_adapter_request(parse_body(body)); });
  return 0;
}
