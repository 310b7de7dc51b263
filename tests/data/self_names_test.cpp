// What {{NAME}} and {{AUTHOR}} become: ms-swift's SelfCognitionPreprocessor, in its own words,
// takes the Chinese names where the row's tag is "zh".
#include "data/formats/self_names.h"

#include <gtest/gtest.h>

#include "data/formats/row_format.h"

namespace danlu::data {
namespace {

const SelfNames kNames{"小黄", "Xiao Huang", "魔搭", "ModelScope"};

std::string answer(const Json& row, const SelfNames& names) {
  FormatOptions options;
  options.names = names;
  const auto handler = make_row_handler(options, {row}, /*plain_text=*/false);
  const RowResult read = handler->read(row);
  const auto& conversation = std::get<text::Conversation>(std::get<Row>(read));
  return conversation.messages.back().content;
}

TEST(SelfNames, AreInTheLanguageThatTheTagNames) {
  const Json chinese{{"query", "你是谁？"}, {"response", "{{NAME}} by {{AUTHOR}}"}, {"tag", "zh"}};
  EXPECT_EQ(answer(chinese, kNames), "小黄 by 魔搭");
  const Json english{
      {"query", "who?"}, {"response", "{{NAME}}/{{NAME}}, {{AUTHOR}}"}, {"tag", "en"}};
  EXPECT_EQ(answer(english, kNames), "Xiao Huang/Xiao Huang, ModelScope");
}

TEST(SelfNames, FollowTheAnswersLanguageWhereNoTagSaysIt) {
  EXPECT_EQ(answer({{"query", "who?"}, {"response", "我是{{NAME}}。"}}, kNames), "我是小黄。");
  EXPECT_EQ(answer({{"query", "谁？"}, {"response", "I am {{NAME}}."}}, kNames),
            "I am Xiao Huang.");
}

TEST(SelfNames, LeaveWhatIsNotNamedAndWhatIsNoAnswer) {
  const Json row{{"query", "{{NAME}}"}, {"response", "{{NAME}} {{AUTHOR}} {{OTHER}}"}};
  EXPECT_EQ(answer(row, {"甲", "A", "", ""}), "A {{AUTHOR}} {{OTHER}}");
  EXPECT_EQ(answer(row, {}), "{{NAME}} {{AUTHOR}} {{OTHER}}");
  text::Conversation conversation;
  conversation.messages = {{"user", "{{NAME}}"}, {"assistant", "{{NAME}}"}};
  put_names(kNames, row, conversation);
  EXPECT_EQ(conversation.messages[0].content, "{{NAME}}");
}

TEST(SelfNames, ArePartOfTheNameOfACache) {
  FormatOptions plain, named;
  named.names = kNames;
  EXPECT_NE(plain.to_json(), named.to_json());
  EXPECT_FALSE(plain.to_json().contains("names"));
}

}  // namespace
}  // namespace danlu::data
