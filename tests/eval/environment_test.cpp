// What answers a model's answers: programs of the user, and tips by rule.
#include "eval/environments/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "support/temporary_directory.h"

namespace danlu::eval {
namespace {

using testing::HasSubstr;

std::vector<Talk> talks(size_t count) {
  std::vector<Talk> all(count);
  for (size_t i = 0; i < count; ++i) {
    all[i].id = "7." + std::to_string(i);
    all[i].answer = "a \"quoted\"\nline";
    all[i].messages = {{{"role", "user"}, {"content", "q"}},
                       {{"role", "assistant"}, {"content", all[i].answer}}};
    all[i].row = {{"solution", "5"}};
  }
  return all;
}

std::vector<Reply> replies_of(const std::string& script, const std::vector<Talk>& about,
                              int64_t timeout_ms = 20'000) {
  const test::TemporaryDirectory folder;
  write_file_atomic(folder / "env.sh", script);
  return make_environment("program:sh " + (folder / "env.sh").string(), {.timeout_ms = timeout_ms})
      ->replies(about);
}

/// What is said of such a program.
std::string refusal(const std::string& script, size_t count = 1, int64_t timeout_ms = 20'000) {
  try {
    replies_of(script, talks(count), timeout_ms);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST(ProgramEnvironment, SaysOfEachConversationHowItGoesOn) {
  std::vector<Talk> about = talks(3);
  about[1].turn = 2;
  about[1].state = {{"tries", 1}};
  about[2].is_last = true;
  about[2].is_ended = false;
  const std::vector<Reply> replies = replies_of(
      "read -r one; echo '{\"messages\": [{\"role\": \"tool\", \"content\": \"r\", "
      "\"tool_call_id\": \"c\"}], \"state\": 3}'\n"
      "read -r two; case $two in *'\"turn\":2'*'\"state\":{\"tries\":1}'*) "
      "echo '{\"id\": \"7.1\", \"continue\": \" and\"}';; esac\n"
      "read -r three; case $three in *'\"last\":true,\"finish_reason\":\"length\"'*"
      "'\"row\":{\"solution\":\"5\"}'*) "
      "echo '{\"done\": true, \"reward\": -0.5, \"info\": {\"won\": 0}}';; esac",
      about);
  ASSERT_EQ(replies.size(), 3u);
  EXPECT_EQ(replies[0].messages,
            Json::parse(R"([{"role": "tool", "content": "r", "tool_call_id": "c"}])"));
  EXPECT_EQ(replies[0].state, 3);
  EXPECT_FALSE(replies[0].is_done);
  EXPECT_EQ(replies[1].goes_on, " and");
  EXPECT_TRUE(replies[2].is_done);
  EXPECT_EQ(replies[2].reward, -0.5);
  EXPECT_EQ(replies[2].info.at("won"), 0);
  for (const Reply& reply : replies)
    EXPECT_EQ(reply_json(reply_from(reply_json(reply))), reply_json(reply));
}

TEST(ProgramEnvironment, WhatCannotBeUsedIsAnErrorThatSaysWhy) {
  EXPECT_THAT(refusal("exit 3"), HasSubstr("exit code 3"));
  EXPECT_THAT(refusal("echo '{\"done\": true}'; exit 3"), HasSubstr("exit code 3"));
  EXPECT_THAT(refusal("kill -9 $$"), HasSubstr("ended by signal 9"));
  EXPECT_THAT(refusal("sleep 60", 1, 200), HasSubstr("longer than 0.2 s"));
  EXPECT_THAT(refusal("yes"), HasSubstr("more than"));
  EXPECT_THAT(refusal("echo '{\"done\": true}'", 2), HasSubstr("1 lines for 2 conversations"));
  EXPECT_THAT(refusal("echo hello"), HasSubstr("line 1: "));
  EXPECT_THAT(refusal("echo '[]'"), HasSubstr("no JSON object"));
  EXPECT_THAT(refusal("echo '{}'"), HasSubstr("one of \"done\""));
  EXPECT_THAT(refusal("echo '{\"done\": false}'"), HasSubstr("one of \"done\""));
  EXPECT_THAT(refusal("echo '{\"done\": true, \"continue\": \"a\"}'"),
              HasSubstr("one of \"done\""));
  EXPECT_THAT(refusal("echo '{\"done\": 1}'"), HasSubstr("\"done\" is 1"));
  EXPECT_THAT(refusal("echo '{\"done\": true, \"reward\": 1e13}'"), HasSubstr("beyond"));
  EXPECT_THAT(refusal("echo '{\"messages\": [{\"role\": \"user\"}]}'"), HasSubstr("both texts"));
  EXPECT_THAT(refusal("echo '{\"messages\": [{\"role\": \"assistant\", \"content\": \"\"}]}'"),
              HasSubstr("the model writes these"));
  EXPECT_THAT(refusal("echo '{\"done\": true, \"id\": \"7.1\"}'"), HasSubstr("7.0"));
  EXPECT_THROW(make_environment("program:/nowhere/env", {})->replies(talks(1)), UsageError);
  for (const char* name : {"program:", "gym_scheduler", "my_scheduler"})
    EXPECT_THROW(make_environment(name, {}), UsageError) << name;
}

TEST(Tips, AreGivenOnceAndOnlyForAWrongAnswer) {
  std::vector<Talk> about = talks(5);
  about[0].answer = "<think>so 4</think> it is \\boxed{4}";
  about[1].answer = "\\boxed{5}";
  about[2].answer = about[3].answer = about[4].answer = "\\boxed{4}";
  about[2].turn = 2;
  about[3].is_ended = false;
  about[4].row = Json::object();
  for (const char* name : {"math_tip_trick", "thinking_tips_scheduler"}) {
    const std::vector<Reply> replies = make_environment(name, {})->replies(about);
    for (size_t i = 0; i < replies.size(); ++i) EXPECT_EQ(replies[i].is_done, i != 0) << name << i;
  }
  const Reply doubt = make_environment("math_tip_trick", {})->replies(about)[0];
  EXPECT_EQ(doubt.goes_on, "But wait... It seems I made a mistake,");
  EXPECT_EQ(doubt.kept_bytes, std::string("<think>so 4").size());
  const Reply tip = make_environment("thinking_tips_scheduler", {})->replies(about)[0];
  EXPECT_EQ(tip.messages[0].at("role"), "user");
  about[0].answer = "it is \\boxed{4}";
  EXPECT_EQ(make_environment("math_tip_trick", {})->replies(about)[0].kept_bytes, std::nullopt);
}

}  // namespace
}  // namespace danlu::eval
