// One model directory, one template: training, preprocessing, rendering, inspecting and answering
// take the same one for the same reason.
#include "cli/trained_adapter.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class TemplateOfAModel : public TrainedAdapter {
 protected:
  /// Every verb that asks says that it takes `name`, and why.
  void expect_everywhere(const fs::path& model, const std::string& name,
                         const std::string& reason) const {
    const std::string told = "template: " + name + ", " + reason;
    EXPECT_THAT(ask(model).err, HasSubstr(told));
    EXPECT_THAT(run({"inspect", model.string()}).out,
                HasSubstr("template    " + name + ", " + reason));
    const std::string chat = R"([{"role": "user", "content": "hi"}])";
    EXPECT_THAT(run({"render", "--model", model.string(), "--input", write("chat.json", chat)}).out,
                HasSubstr("[TEMPLATE] " + name + "\n"));
    EXPECT_THAT(run({"preprocess", "--input", good("good.jsonl").string(), "--model",
                     model.string(), "--output-prefix", "out/rows"})
                    .err,
                HasSubstr("template: " + name));
    EXPECT_THAT(run({"inspect", good("good.jsonl").string(), "--model", model.string()}).exit_code,
                0);
    const ProgramResult trained = train(good("good.jsonl"), {"--model", model.string()});
    EXPECT_EQ(trained.exit_code, 0) << trained.err;
    EXPECT_THAT(trained.err, HasSubstr(told));
  }
};

TEST_F(TemplateOfAModel, IsTheRecordedOne) {
  const fs::path model = copy_model("base");
  write("base/args.json", R"({"template": "default"})");
  expect_everywhere(model, "default", "from " + (model / "args.json").string());
  // What was trained on it names the template itself: the base's record is not beside it.
  EXPECT_THAT(content_of((*this) / "run/args.json"), HasSubstr(R"("template": "default")"));
  EXPECT_THAT(ask((*this) / "run").err, HasSubstr("template: default, from "));
}

TEST_F(TemplateOfAModel, IsTheFamilysIfTheFilesCarryNone) {
  const fs::path model = copy_model("base");
  fs::remove(model / "chat_template.jinja");
  replace_in_file(model / "tokenizer_config.json", "\"chat_template\"", "\"was_template\"");
  expect_everywhere(model, "qwen", "the default of the model's family");
}

TEST_F(TemplateOfAModel, NamedByTheUserIsNoNews) {
  const fs::path model = copy_model("base");
  write("base/args.json", R"({"template": "default"})");
  const ProgramResult asked = run({"infer", "--model", model.string(), "--prompt", "hi",
                                   "--max_new_tokens", "1", "--prompt-type", "chatml"});
  EXPECT_EQ(asked.exit_code, 0) << asked.err;
  EXPECT_THAT(asked.err, ::testing::Not(HasSubstr("template: ")));
}

TEST_F(TemplateOfAModel, TheTokenizersOwnIsAskedForByMindSpeedsFlag) {
  const fs::path model = copy_model("base");
  write("base/args.json", R"({"template": "alpaca"})");
  const auto asked = [&](const std::vector<std::string>& more) {
    std::vector<std::string> line = {
        "infer", "--model",           model.string(), "--prompt", "hi", "--max_new_tokens",
        "1",     "--hf-chat-template"};
    line.insert(line.end(), more.begin(), more.end());
    return run(line);
  };
  const ProgramResult own = asked({});
  EXPECT_EQ(own.exit_code, 0) << own.err;
  EXPECT_THAT(own.err, ::testing::Not(HasSubstr("notice")));
  EXPECT_EQ(prompt_tokens(own), prompt_tokens(ask(good("model"))));
  expect_error(asked({"--prompt-type", "default"}), 2,
               {"--hf-chat-template asks for the tokenizer's own template, --prompt-type for "
                "default",
                "hint: give one of them"});
  EXPECT_EQ(asked({"--prompt-type", "hf"}).exit_code, 0);
}

TEST_F(TemplateOfAModel, WhatItDoesNotAskForIsSaidOnce) {
  const std::string notice = "notice: enable_thinking=false has no effect: the chat template of ";
  const auto count = [&](const ProgramResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    size_t found = 0;
    for (size_t at = result.err.find(notice); at != result.err.npos;
         at = result.err.find(notice, at + 1))
      ++found;
    return found;
  };
  const std::string name = good("model").string();
  const std::vector<std::string> flag = {"--enable_thinking", "false"};
  const auto asked = [&](const std::string& model, const std::vector<std::string>& more) {
    std::vector<std::string> words = {
        "infer", "--model", model, "--dataset", good("good.jsonl").string(), "--max_new_tokens",
        "1"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  EXPECT_EQ(count(asked(name, {})), 0u);
  EXPECT_EQ(count(asked(name, flag)), 1u);
  EXPECT_EQ(count(asked(name, {"--chat_template_kwargs", R"({"enable_thinking": false})"})), 1u);
  EXPECT_EQ(count(train(good("good.jsonl"), {"--model", name, "--enable_thinking", "false"})), 1u);
  EXPECT_EQ(count(run({"preprocess", "--input", good("good.jsonl").string(), "--model", name,
                       "--output-prefix", "out/rows", "--enable_thinking", "false"})),
            1u);
  // One that asks for it says nothing.
  std::string source = "{% for message in messages %}{{ message.content }}{% endfor %}";
  std::vector<std::string> named = flag;
  named.insert(named.end(), {"--template", write("own.jinja", source).string()});
  EXPECT_EQ(count(asked(name, named)), 1u);
  source += "{% if enable_thinking is defined %}!{% endif %}";
  named.back() = write("asks.jinja", source).string();
  EXPECT_EQ(count(asked(name, named)), 0u);
}

}  // namespace
}  // namespace danlu::test
