// Placeholders of pictures and videos in conversations.
#include "text/media.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/fake_tokenizer.h"

namespace danlu::text {
namespace {

MediaPlace place(size_t offset, MediaKind kind) { return {offset, {.kind = kind}}; }

Conversation with_pictures() {
  Conversation c;
  c.messages = {{.role = "user", .content = "a b"},
                {.role = "assistant", .content = "c"},
                {.role = "user", .content = "d"}};
  c.messages[0].media = {place(0, MediaKind::kImage), place(2, MediaKind::kVideo)};
  c.messages[2].media = {place(1, MediaKind::kImage)};
  c.messages[0].extra["instruction"] = "a b";
  return c;
}

TEST(MediaPlaceholders, StandWhereTheMediaStand) {
  const Conversation written = with_placeholders(with_pictures(), false);
  EXPECT_EQ(written.messages[0].content,
            "<|vision_start|><|image_pad|><|vision_end|>a "
            "<|vision_start|><|video_pad|><|vision_end|>b");
  EXPECT_EQ(written.messages[2].content, "d<|vision_start|><|image_pad|><|vision_end|>");
  EXPECT_TRUE(written.messages[0].media.empty());
  EXPECT_TRUE(written.messages[0].extra.empty());
  EXPECT_EQ(media_of(with_pictures()).size(), 3u);
}

TEST(MediaPlaceholders, AreNumberedOverTheConversation) {
  const Conversation written = with_placeholders(with_pictures(), true);
  EXPECT_EQ(written.messages[0].content,
            "Picture 1: <|vision_start|><|image_pad|><|vision_end|>a "
            "Video 1: <|vision_start|><|video_pad|><|vision_end|>b");
  EXPECT_EQ(written.messages[2].content, "dPicture 2: <|vision_start|><|image_pad|><|vision_end|>");
}

TEST(MediaPlaceholders, ThatTextsHoldAreFound) {
  Conversation c;
  c.messages = {{.role = "user", .content = "a <|vision_start|> b"}};
  EXPECT_EQ(placeholder_written_in(c), "");
  c.messages[0].content = "a <|video_pad|> b";
  EXPECT_EQ(placeholder_written_in(c), "<|video_pad|>");
  c.messages[0].content = "a";
  c.messages[0].extra["tool_calls"] = {{{"function", {{"arguments", {{"x", "<|image_pad|>"}}}}}}};
  EXPECT_EQ(placeholder_written_in(c), "<|image_pad|>");
  c.messages[0].extra = Json::object();
  c.tools = Json::array({{{"<|image_pad|>", 1}}});
  EXPECT_EQ(placeholder_written_in(c), "<|image_pad|>");
}

TEST(MediaTokens, AreThereAllOrNone) {
  const std::vector<std::string> all{"<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
                                     "<|video_pad|>", "</s>"};
  const FakeTokenizer whole(all, {}, "", "</s>");
  const auto tokens = media_tokens(whole);
  ASSERT_TRUE(tokens);
  EXPECT_EQ(whole.token_to_id("<|image_pad|>"), tokens->pad_of(MediaKind::kImage));
  EXPECT_EQ(whole.token_to_id("<|video_pad|>"), tokens->pad_of(MediaKind::kVideo));
  for (size_t i = 0; i < 4; ++i) {
    std::vector<std::string> some = all;
    some.erase(some.begin() + static_cast<ptrdiff_t>(i));
    EXPECT_FALSE(media_tokens(FakeTokenizer(some, {}, "", "</s>"))) << all[i];
  }
}

}  // namespace
}  // namespace danlu::text
