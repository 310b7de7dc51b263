// Which templates write tools as the Hermes models do.
#include "text/hermes_tools.h"

#include <gtest/gtest.h>

#include "support/shared_data.h"
#include "text/fake_tokenizer.h"

namespace danlu::text {
namespace {

bool of_template(const std::string& source) {
  const auto tokenizer = std::make_shared<FakeTokenizer>(
      std::vector<std::string>{"</s>"}, std::vector<std::string>{}, source, "</s>");
  return writes_hermes_tools(*ChatEncoder::create(tokenizer, "hf"));
}

/// Text, tools, calls and results, each in a form of its own.
std::string written(const std::string& tools, const std::string& call, const std::string& result) {
  return "{% if tools %}" + tools +
         "{% endif %}{% for m in messages %}{% for c in m.tool_calls or [] %}" + call +
         "{% endfor %}{% if m.role == 'tool' %}" + result +
         "{% else %}{{ m.content }}{% endif %}{% endfor %}";
}

TEST(HermesTools, EachOfThreeFormsCounts) {
  const std::string
      tools =
          "<tools>{% for t in tools %}{{ '\\n' }}{{ t | tojson }}{% endfor %}{{ '\\n' }}"
          "</tools>",
      call =
          "<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": "
          "{{ c.function.arguments | tojson }}}\n</tool_call>",
      result = "<tool_response>\n{{ m.content }}\n</tool_response>";
  EXPECT_TRUE(of_template(written(tools, call, result)));
  EXPECT_FALSE(of_template(written("{{ tools | tojson }}", call, result)));
  EXPECT_FALSE(of_template(written(tools, "Action: {{ c.function.name }}", result)));
  EXPECT_FALSE(of_template(written(tools, call, "Observation: {{ m.content }}")));
  EXPECT_FALSE(of_template("{{ raise_exception('no tools') }}"));
}

TEST(HermesTools, ThoseOfQwen) {
  DANLU_REQUIRES_SHARED();
  const std::shared_ptr<const Tokenizer> tokenizer =
      Tokenizer::load(test::unpacked("tokenizers") / "qwen2_5");
  EXPECT_TRUE(writes_hermes_tools(*ChatEncoder::create(tokenizer, "hf")));
  EXPECT_FALSE(writes_hermes_tools(*ChatEncoder::create(tokenizer, "default")));
  // What trainings of models that see take where their own template writes none.
  EXPECT_TRUE(writes_hermes_tools(*ChatEncoder::create(tokenizer, "qwen2_vl")));
}

}  // namespace
}  // namespace danlu::text
