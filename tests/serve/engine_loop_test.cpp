// The engine's loop with receivers that throw, and an engine that cannot be made again.
#include "serve/engine_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <thread>

#include "serve/scripted_engine.h"

namespace danlu::serve {
namespace engine_loop_test {

using testing::HasSubstr;

/// What one group heard. It throws where a test says so.
class Hears : public Receiver {
 public:
  void on_accepted() override {
    if (throws_when_accepted) throw std::bad_alloc();
  }
  Heard on_output(size_t, const infer::EngineOutput& output) override {
    ++outputs;
    if (throws_at_output == outputs) throw std::bad_alloc();
    is_answered = is_answered || output.finished.has_value();
    return outputs == says_at ? says : Heard::kMore;
  }
  void on_failed(const Error& why, Blame whose) override {
    ++failures;
    error = why.what();
    blame = whose;
    if (when_failed) when_failed();
  }

  bool throws_when_accepted = false;
  int throws_at_output = 0;
  int says_at = 0;  ///< the output at which it says so
  Heard says = Heard::kMore;
  std::function<void()> when_failed = {};
  int outputs = 0, failures = 0;  ///< these of the loop's thread
  bool is_answered = false;
  Blame blame = Blame::kEnd;
  std::string error;
};

class EngineLoops : public testing::Test {
 protected:
  EngineLoops() {
    script_.answer = [](const infer::Request&) { return std::string("hello|"); };
  }
  std::unique_ptr<StepEngine> make() {
    if (cannot_be_made_) throw MemoryError("no memory for pages");
    return std::make_unique<test::ScriptedEngine>(script_);
  }
  std::shared_ptr<Hears> submit() {
    auto receiver = std::make_shared<Hears>();
    receivers_.push_back(receiver);
    return receiver;
  }
  /// Until all that was submitted is over.
  void run(EngineLoop& loop) {
    for (const auto& receiver : receivers_)
      ASSERT_TRUE(loop.submit({request()}, receiver)) << "taken before the loop runs";
    std::thread thread([&] { loop.run(); });
    while (loop.counts().waiting + loop.counts().running > 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    loop.end();
    thread.join();
  }
  static infer::EngineRequest request() {
    infer::EngineRequest asked;
    asked.request.prompt = {'h', 'i'};
    asked.request.stop_ids = {'|'};
    return asked;
  }

  test::EngineScript script_;
  std::atomic<bool> cannot_be_made_ = false;
  std::vector<std::shared_ptr<Hears>> receivers_;
};

TEST_F(EngineLoops, AReceiverThatThrowsFailsAlone) {
  EngineLoop loop([this] { return make(); }, {});
  const auto first = submit(), second = submit(), third = submit(), fourth = submit();
  second->throws_when_accepted = true;
  third->throws_at_output = 2;
  third->when_failed = [] { throw std::bad_alloc(); };
  run(loop);
  for (const auto& good : {first, fourth}) {
    EXPECT_TRUE(good->is_answered);
    EXPECT_EQ(good->outputs, 6);
    EXPECT_EQ(good->failures, 0);
  }
  EXPECT_EQ(second->outputs, 0);
  EXPECT_EQ(third->outputs, 2) << "it hears nothing more";
  for (const auto& bad : {second, third}) {
    EXPECT_EQ(bad->failures, 1);
    EXPECT_THAT(bad->error, HasSubstr("out of memory"));
    EXPECT_EQ(bad->blame, Blame::kServer);
  }
  EXPECT_EQ(script_.num_engines, 1);
  EXPECT_EQ(script_.num_running, 0);
  EXPECT_THAT(loop.metrics().text("tiny", {}, 0),
              testing::AllOf(HasSubstr("finished_reason=\"error\"} 2"),
                             HasSubstr("finished_reason=\"stop\"} 2")));
}

TEST_F(EngineLoops, WhoComesWhileTheLastEngineDiesIsTold) {
  EngineLoop loop([this] { return make(); }, {});
  script_.fails_next_step = true;
  cannot_be_made_ = true;
  const auto first = submit();
  const auto late = std::make_shared<Hears>();
  first->when_failed = [&] { EXPECT_TRUE(loop.submit({request()}, late)); };
  run(loop);
  EXPECT_EQ(first->error, "no memory is left");
  EXPECT_EQ(late->failures, 1);
  EXPECT_EQ(late->error, "no memory for pages");
  EXPECT_EQ(late->blame, Blame::kServer);
  ASSERT_TRUE(loop.is_dead());
  EXPECT_THROW(std::rethrow_exception(loop.why_dead()), MemoryError);
  EXPECT_FALSE(loop.submit({request()}, late));
}

/// vLLM: an answer that a stop string ends has stopped, one whose client went is aborted.
TEST_F(EngineLoops, WhoGoesIsNotCountedAsAnswered) {
  EngineLoop loop([this] { return make(); }, {});
  const auto stopped = submit(), gone = submit(), whole = submit();
  stopped->says_at = gone->says_at = 2;
  stopped->says = Heard::kAll;
  gone->says = Heard::kGone;
  run(loop);
  EXPECT_EQ(stopped->outputs, 2);
  EXPECT_EQ(gone->outputs, 2);
  EXPECT_EQ(script_.num_cancelled, 2);
  EXPECT_THAT(loop.metrics().text("tiny", {}, 0),
              testing::AllOf(HasSubstr("finished_reason=\"abort\"} 1"),
                             HasSubstr("finished_reason=\"stop\"} 2")));
}

TEST_F(EngineLoops, WhoIsLeftAtTheEndIsTold) {
  script_.is_held = true;
  EngineLoop loop([this] { return make(); }, {});
  const auto first = std::make_shared<Hears>(), second = std::make_shared<Hears>();
  ASSERT_TRUE(loop.submit({request(), request()}, first));
  std::thread thread([&] { loop.run(); });
  while (script_.num_running < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_TRUE(loop.submit({request()}, second));
  loop.end();
  loop.await_end();
  for (const auto& left : {first, second}) {
    EXPECT_EQ(left->failures, 1);
    EXPECT_EQ(left->blame, Blame::kEnd);
    EXPECT_EQ(left->error, "the server ends, and the answer is not complete");
  }
  EXPECT_FALSE(loop.submit({request()}, second));
  thread.join();
}

/// One request's texts have one place, so that they leave others theirs.
TEST_F(EngineLoops, AGroupHasOnePlaceUntilAllOfItHasBegun) {
  EngineLoop loop([this] { return make(); }, {.max_queue = 3});
  const auto receiver = std::make_shared<Hears>();
  EXPECT_TRUE(loop.submit({request(), request()}, receiver));
  EXPECT_TRUE(loop.submit(std::vector(5, request()), receiver));
  EXPECT_EQ(loop.counts().waiting, 7);
  EXPECT_FALSE(loop.is_full());
  EXPECT_TRUE(loop.submit({request()}, receiver));
  EXPECT_TRUE(loop.is_full());
  EXPECT_FALSE(loop.submit({request()}, receiver));
  script_.is_held = true;
  script_.most_running = 6;
  std::thread thread([&] { loop.run(); });
  const auto comes = [](const auto& is_there) {
    for (int i = 0; i < 4000 && !is_there(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return is_there();
  };
  // The first group has begun, of the second a part.
  EXPECT_TRUE(comes([&] { return !loop.is_full(); }));
  EXPECT_TRUE(loop.submit({request()}, receiver));
  EXPECT_TRUE(loop.is_full());
  script_.most_running = 1000;
  EXPECT_TRUE(comes([&] { return !loop.is_full(); }));
  loop.end();
  thread.join();
}

TEST_F(EngineLoops, AllTextsTogetherHaveALimitToo) {
  EngineLoop loop([this] { return make(); }, {.max_queue = 3});
  const auto receiver = std::make_shared<Hears>();
  EXPECT_TRUE(loop.submit(std::vector(48, request()), receiver));
  EXPECT_TRUE(loop.is_full());
  EXPECT_FALSE(loop.submit({request()}, receiver));
}

TEST_F(EngineLoops, WhatWaitsElsewhereHasPlacesInTheQueue) {
  EngineLoop loop([this] { return make(); }, {.max_queue = 3});
  loop.count_elsewhere(3);
  EXPECT_EQ(loop.counts().waiting, 3);
  EXPECT_FALSE(loop.submit({request()}, std::make_shared<Hears>()));
  loop.count_elsewhere(-1);
  EXPECT_TRUE(loop.submit({request()}, std::make_shared<Hears>()));
}

}  // namespace engine_loop_test
}  // namespace danlu::serve
