#include "serve/picture_desk.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "base/error.h"
#include "serve/protocol_test.h"

namespace danlu::serve {
namespace picture_desk_test {

using Pictures = std::vector<infer::PromptPicture>;

/// Pixels that take as long as the test says.
struct SlowDecoder {
  std::promise<void> opens;
  std::shared_future<void> is_open{opens.get_future()};
  std::atomic<int> num_begun = 0, num_made = 0;

  infer::PromptPicture picture(bool is_slow) {
    infer::PromptPicture picture;
    picture.pixels = [this, is_slow] {
      ++num_begun;
      if (is_slow) is_open.wait();
      return at::full({2, 3}, ++num_made, at::kFloat);
    };
    return picture;
  }
};

/// What became of a job.
struct Outcome {
  std::promise<Pictures> pictures;
  PictureDesk::Job job(Pictures asked, int64_t num_takers = 1) {
    return {.pictures = std::move(asked),
            .num_takers = num_takers,
            .is_wanted = [] { return true; },
            .ready =
                [this](Pictures made, std::exception_ptr problem) {
                  problem ? pictures.set_exception(problem) : pictures.set_value(std::move(made));
                }};
  }
  Pictures get() { return pictures.get_future().get(); }
};

TEST(PictureDesk, PixelsAreThereForAsManyAsTakeThem) {
  SlowDecoder decoder;
  PictureDesk desk({.threads = 2, .max_kept_bytes = 30});  // of one of both pictures
  Outcome outcome;
  ASSERT_TRUE(desk.add(outcome.job({decoder.picture(false), decoder.picture(false)}, 2)));
  const Pictures made = outcome.get();
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(decoder.num_made, 2);
  for (int taker = 0; taker < 2; ++taker) {
    EXPECT_EQ(made[0].pixels().data_ptr<float>()[0], 1);
    EXPECT_EQ(made[1].pixels().data_ptr<float>()[5], 2);
  }
  EXPECT_EQ(decoder.num_made, 2);
  // Whoever begins anew finds them, or has them made again where there was no room to keep them.
  EXPECT_EQ(made[0].pixels().data_ptr<float>()[0], 1);
  EXPECT_EQ(made[1].pixels().data_ptr<float>()[0], 3);
}

TEST(PictureDesk, WhatIsKeptMakesRoomWhenItsRequestIsOver) {
  SlowDecoder decoder;
  PictureDesk desk({.threads = 1, .max_bytes = 8, .max_kept_bytes = 30});
  for (int number = 1; number < 4; ++number) {
    Outcome outcome;
    ASSERT_TRUE(desk.add(outcome.job({decoder.picture(false)})));
    const Pictures made = outcome.get();
    for (int again = 0; again < 3; ++again)
      EXPECT_EQ(made[0].pixels().data_ptr<float>()[0], number) << "kept while it is asked for";
  }
}

TEST(PictureDesk, AnErrorIsOfItsJobAlone) {
  PictureDesk desk({.threads = 1});
  SlowDecoder decoder;
  infer::PromptPicture broken;
  broken.pixels = []() -> at::Tensor { throw DataError("no picture"); };
  Outcome first, second;
  ASSERT_TRUE(desk.add(first.job({broken})));
  ASSERT_TRUE(desk.add(second.job({decoder.picture(false)})));
  EXPECT_THROW(first.get(), DataError);
  EXPECT_EQ(second.get().size(), 1u);
}

/// Pixels that nobody takes hold others up, and only so many requests wait for that.
TEST(PictureDesk, WhatIsNotTakenIsBounded) {
  SlowDecoder decoder;
  PictureDesk desk({.threads = 1, .max_waiting = 2, .max_bytes = 8});
  Outcome first, second, third, fourth, fifth;
  ASSERT_TRUE(desk.add(first.job({decoder.picture(false)})));
  Pictures made = first.get();
  auto gone = third.job({decoder.picture(false)});
  gone.is_wanted = [] { return false; };
  ASSERT_TRUE(desk.add(second.job({decoder.picture(false)})));
  ASSERT_TRUE(desk.add(std::move(gone)));
  EXPECT_FALSE(desk.add(fourth.job({decoder.picture(false)})));
  // Time for what must not happen.
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(decoder.num_begun, 1) << "there is no room for more pixels";
  made[0].pixels();
  made = second.get();
  made.clear();  // the request is over
  ASSERT_TRUE(comes([&] { return desk.add(fifth.job({decoder.picture(false)})); }));
  fifth.get();
  EXPECT_EQ(decoder.num_made, 3) << "who is gone needs none";
}

class SeeingProtocolTest : public ProtocolTest {
 protected:
  void SetUp() override {
    ProtocolTest::SetUp();
    model_.encode_media = [this](const text::ChatEncoder& encoder,
                                 const text::Conversation& conversation, int64_t,
                                 infer::Request* request) {
      request->prompt = encoder.encode_prompt(conversation);
      for (const text::Message& message : conversation.messages) {
        for (size_t i = 0; i < message.media.size(); ++i)
          request->pictures.push_back(decoder_.picture(/*is_slow=*/true));
      }
    };
  }
  static Json seeing_body() {
    const Json url = {{"url", "data:image/png;base64,iVBORw0KGgo="}};
    return {{"model", "tiny"},
            {"messages",
             {{{"role", "user"}, {"content", {{{"type", "image_url"}, {"image_url", url}}}}}}}};
  }
  SlowDecoder decoder_;
};

/// Streams go on, and others are answered, while pictures of many requests are decoded.
TEST_F(SeeingProtocolTest, ASlowPictureHoldsNobodyUp) {
  start();
  std::vector<std::unique_ptr<RawClient>> seeing;
  for (int i = 0; i < 9; ++i) {
    seeing.push_back(std::make_unique<RawClient>(server_->port()));
    seeing.back()->send(raw_request("POST", "/v1/chat/completions", seeing_body().dump()));
  }
  ASSERT_TRUE(comes([&] { return decoder_.num_begun >= 4; }));
  EXPECT_EQ(chat()["choices"][0]["message"]["content"], "hello");
  EXPECT_EQ(stream(chat_body()).back()["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(decoder_.num_made, 0);
  {
    const std::lock_guard lock(script_.mutex);
    EXPECT_EQ(script_.added.size(), 2u) << "the engine sees no picture that is not decoded";
  }
  decoder_.opens.set_value();
  for (const auto& client : seeing) EXPECT_EQ(client->response().status, 200);
  EXPECT_EQ(decoder_.num_made, 9);
  last_request().request.pictures.at(0).pixels();
  EXPECT_EQ(decoder_.num_made, 9) << "the engine waits for no decoder";
}

TEST_F(SeeingProtocolTest, APictureThatCannotBeReadIsItsRequestsError) {
  model_.encode_media = [](const text::ChatEncoder& encoder, const text::Conversation& conversation,
                           int64_t, infer::Request* request) {
    request->prompt = encoder.encode_prompt(conversation);
    infer::PromptPicture broken;
    broken.pixels = []() -> at::Tensor { throw DataError("the file ends within its pixels"); };
    request->pictures.push_back(broken);
  };
  const Json answer = post("/v1/chat/completions", seeing_body(), 400);
  EXPECT_EQ(answer["error"]["message"], "the file ends within its pixels");
}

/// Neither is a prompt made nor a picture read.
TEST_F(SeeingProtocolTest, PicturesThatTakeMoreThanFitsAreRefused) {
  const int64_t limit = model_.max_model_len;
  ASSERT_GT(limit, 0);
  model_.encode_media = [&](const text::ChatEncoder&, const text::Conversation&, int64_t max_tokens,
                            infer::Request*) {
    EXPECT_EQ(max_tokens, limit);
    refuse_many_visual_tokens(max_tokens, 2, max_tokens - 1);
    refuse_many_visual_tokens(0, 2, int64_t{1} << 40);
    refuse_many_visual_tokens(max_tokens, 2, max_tokens);
    ADD_FAILURE() << "as many tokens as there are leave none for the answer";
  };
  const Json error = post("/v1/chat/completions", seeing_body(), 400)["error"];
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["param"], "messages");
  EXPECT_THAT(error["message"].get<std::string>(), testing::HasSubstr("2 picture(s)"));
  const std::lock_guard lock(script_.mutex);
  EXPECT_TRUE(script_.added.empty());
}

}  // namespace picture_desk_test
}  // namespace danlu::serve
