// Answers that end because a process without which there are none is gone; what requests that came
// together are called.
#include <gmock/gmock.h>

#include "serve/protocol_test.h"

namespace danlu::serve {
namespace last_answers_test {

using testing::EndsWith;
using testing::HasSubstr;

class LastAnswersTest : public ProtocolTest {};

TEST_F(LastAnswersTest, EndWithAnErrorInOpenAisShape) {
  script_.answer = [](const infer::Request&) { return std::string(900, 'x'); };
  start();
  RawClient stream(server_->port()), waiting(server_->port()), whole(server_->port());
  stream.send(raw_request("POST", "/v1/chat/completions", chat_body({{"stream", true}}).dump()));
  ASSERT_TRUE(stream.receive_until("\"content\":\"x"));
  script_.is_held = true;
  waiting.send(raw_request("POST", "/v1/chat/completions", chat_body({{"stream", true}}).dump()));
  whole.send(raw_request("POST", "/v1/chat/completions", chat_body().dump()));
  ASSERT_TRUE(comes([&] { return script_.num_running == 3; }));
  ASSERT_TRUE(waiting.receive_until("200 OK"));
  service_->end_answers();
  for (RawClient* const client : {&stream, &waiting}) {
    const RawResponse response = client->response();
    EXPECT_TRUE(response.is_complete);
    EXPECT_THAT(response.body, HasSubstr("data: {\"error\":{"));
    EXPECT_THAT(response.body, HasSubstr("a part of the model is gone"));
    EXPECT_THAT(response.body, EndsWith("data: [DONE]\n\n"));
  }
  const RawResponse response = whole.response();
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(Json::parse(response.body)["error"]["type"], "service_unavailable_error");
  EXPECT_THAT(chat(Json::object(), 503)["error"]["message"].get<std::string>(), HasSubstr("stopped"));
  EXPECT_EQ(ask(raw_request("GET", "/health")).status, 503);
  script_.is_held = false;
  EXPECT_TRUE(comes([&] { return script_.num_running == 0; })) << "nobody hears of them";
}

TEST_F(LastAnswersTest, ChoicesOfAPromptAreKnownAsSuch) {
  post("/v1/completions", {{"model", "tiny"}, {"prompt", {"a", "b"}}, {"n", 2}});
  chat();
  chat({{"n", 2}});
  const std::lock_guard lock(script_.mutex);
  ASSERT_EQ(script_.added.size(), 7u);
  std::vector<int64_t> numbers;
  for (const infer::EngineRequest& one : script_.added) numbers.push_back(one.prompt_number);
  EXPECT_EQ(numbers, (std::vector<int64_t>{1, 1, 2, 2, 0, 1, 1}));
  const auto group = [&](size_t i) { return script_.added[i].group; };
  EXPECT_NE(group(0), 0u);
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(group(i), group(0));
  EXPECT_NE(group(4), group(0));
  EXPECT_NE(group(5), group(4));
  EXPECT_EQ(group(6), group(5));
}

}  // namespace last_answers_test
}  // namespace danlu::serve
