// Which template a model gets: the order in which user, record, tokenizer and family are asked.
#include "text/template_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "support/throws.h"
#include "support/tiny_model.h"
#include "text/fake_tokenizer.h"

namespace danlu::text {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kOwn[] = "{% for m in messages %}{{ m.content }}{% endfor %}";

std::shared_ptr<const Tokenizer> tokenizer_with(const std::string& chat_template,
                                                std::vector<std::string> special = {"</s>",
                                                                                    "<|im_end|>"}) {
  return std::make_shared<FakeTokenizer>(std::move(special), std::vector<std::string>{},
                                         chat_template, "</s>");
}

class TemplateChoiceOf : public ::testing::Test {
 protected:
  void record(const Json& content) { write_json_file(directory_ / "args.json", content); }
  TemplateRequest request(const std::string& named = "") const {
    return {.named = named, .recorded_in = directory_.path(), .family_default = "qwen"};
  }
  test::TemporaryDirectory directory_;
};

TEST_F(TemplateChoiceOf, TheUserIsAskedFirst) {
  record({{"template", "alpaca"}});
  const TemplateChoice choice = choose_template(tokenizer_with(kOwn), request("default"));
  EXPECT_EQ(choice.origin, TemplateOrigin::kUser);
  EXPECT_EQ(choice.encoder->description(), "default");
  EXPECT_FALSE(choice.is_news());
}

TEST_F(TemplateChoiceOf, ThenTheRecord) {
  record({{"template", "alpaca"}});
  const TemplateChoice choice = choose_template(tokenizer_with(kOwn), request("auto"));
  EXPECT_EQ(choice.origin, TemplateOrigin::kRecord);
  EXPECT_EQ(choice.encoder->description(), "alpaca");
  EXPECT_EQ(choice.reason, "from " + (directory_ / "args.json").string());
  EXPECT_TRUE(choice.is_news());
}

TEST_F(TemplateChoiceOf, ARecordOfAutoNamesNothing) {
  record({{"template", "auto"}});
  const TemplateChoice choice = choose_template(tokenizer_with(kOwn), request());
  EXPECT_EQ(choice.origin, TemplateOrigin::kTokenizer);
  EXPECT_FALSE(choice.is_news());
}

TEST_F(TemplateChoiceOf, ThenTheTokenizerThenTheFamily) {
  EXPECT_EQ(choose_template(tokenizer_with(kOwn), request()).origin, TemplateOrigin::kTokenizer);
  const TemplateChoice choice = choose_template(tokenizer_with(""), request());
  EXPECT_EQ(choice.origin, TemplateOrigin::kFamily);
  EXPECT_EQ(choice.encoder->description(), "qwen");
  EXPECT_TRUE(choice.is_news());
}

TEST_F(TemplateChoiceOf, AFamilyWhoseEndOfTurnTheTokenizerLacksGivesNone) {
  const TemplateChoice choice = choose_template(tokenizer_with("", {"</s>"}), request());
  EXPECT_EQ(choice.origin, TemplateOrigin::kNone);
  EXPECT_THAT(test::error_of<ModelError>([&] { choice.required(); }),
              AllOf(HasSubstr("its family's default 'qwen' needs the token <|im_end|>"),
                    HasSubstr("choose one with --template: default, empty")));
}

TEST_F(TemplateChoiceOf, NobodyNamesOne) {
  const TemplateChoice choice = choose_template(tokenizer_with(""), {});
  EXPECT_EQ(choice.encoder, nullptr);
  EXPECT_THAT(test::error_of<ModelError>([&] { choice.required(); }),
              HasSubstr("this model ships no chat template; choose one with --template"));
}

TEST_F(TemplateChoiceOf, TheTokenizersOwnCanBeForced) {
  record({{"template", "alpaca"}});
  EXPECT_EQ(choose_template(tokenizer_with(kOwn), request("hf")).encoder->description(),
            "tokenizer_config.json (jinja)");
  EXPECT_THAT(
      test::error_of<ModelError>([&] { choose_template(tokenizer_with(""), request("hf")); }),
      HasSubstr("ships no chat template"));
}

TEST_F(TemplateChoiceOf, FilesOfARecordAreFoundBesideIt) {
  write_file_atomic(directory_ / "mine.json",
                    R"([{"name": "mine", "format_user": ["Q {{content}}"]}])");
  record({{"template", "mine"}, {"templates_file", "mine.json"}});
  EXPECT_EQ(choose_template(tokenizer_with(kOwn), request()).encoder->description(), "mine");
  record({{"template", "gone.jinja"}});
  EXPECT_THAT(test::error_of<ModelError>([&] { choose_template(tokenizer_with(kOwn), request()); }),
              AllOf(HasSubstr("args.json: the template file gone.jinja"), HasSubstr("--template")));
}

TEST_F(TemplateChoiceOf, ABrokenRecordIsAnError) {
  write_file_atomic(directory_ / "args.json", "[1]");
  EXPECT_THAT(test::error_of<ModelError>([&] { choose_template(tokenizer_with(kOwn), request()); }),
              HasSubstr("args.json: must hold a JSON object"));
}

}  // namespace
}  // namespace danlu::text
