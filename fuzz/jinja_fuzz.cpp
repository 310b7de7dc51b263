// fuzz/jinja_fuzz.cpp: any text as a chat template must render or be refused within its limits, and
// what it prints must be the same the second time.
#include <cstdint>
#include <cstdlib>

#include "text/jinja/template.h"

namespace {

danlu::text::jinja::Bindings conversation() {
  using danlu::Json;
  using danlu::text::jinja::Value;
  danlu::text::jinja::Bindings bindings;
  bindings.set("messages", Value::from_json(Json::parse(R"([
      {"role": "system", "content": "S"}, {"role": "user", "content": " 你好 \n"},
      {"role": "assistant", "content": "<think>t</think>a",
       "tool_calls": [{"id": "abcdefghi", "function": {"name": "f", "arguments": {"x": [1, 2.5, null, true]}}}]},
      {"role": "tool", "content": "r"}])")));
  bindings.set("tools",
               Value::from_json(Json::parse(
                   R"([{"type": "function", "function": {"name": "f", "parameters": {}}}])")));
  bindings.set("add_generation_prompt", Value::boolean(true));
  bindings.set("bos_token", std::string("<s>"));
  bindings.set("eos_token", std::string("</s>"));
  return bindings;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace danlu::text::jinja;
  if (size > 20000) return 0;
  const Limits limits{.steps = 20000, .bytes = 1 << 22, .output_bytes = 1 << 20, .depth = 300};
  try {
    const Template parsed({reinterpret_cast<const char*>(data), size}, "input");
    const Rendered first = parsed.render(conversation(), limits);
    for (const auto& [begin, end] : first.generations) {
      if (begin > end || end > first.text.size()) std::abort();
    }
    if (parsed.mentions("strftime_now")) return 0;
    if (parsed.render(conversation(), limits).text != first.text) std::abort();
  } catch (const TemplateError&) {
  }
  return 0;
}
