// `danlu serve` and `danlu infer` with a model in parts on several processes: answers are those of
// one process, silences do no harm, and all end together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "cli/run_program.h"
#include "cli/served_program.h"
#include "cli/trained_adapter.h"
#include "support/raw_http.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using Body = nlohmann::json;
using testing::EndsWith;
using testing::HasSubstr;

std::string stories_in_parts() {
  return (shared_dir() / "data/models/stories260K/stories260K.gguf").string();
}

std::vector<std::string> stories(std::vector<std::string> more = {}) {
  std::vector<std::string> words = {"--model",
                                    stories_in_parts(),
                                    "--served_model_name",
                                    "stories",
                                    "--template",
                                    "default",
                                    "--dtype",
                                    "fp32",
                                    "--quantize",
                                    "none"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// Requests of all kinds, some of which begin alike: with forms, log-probabilities, choices,
/// penalties.
std::vector<Body> mixed_bodies() {
  const std::string common =
      "Once upon a time there was a little girl called Lily who had a big red ball and a dog. ";
  std::vector<Body> bodies;
  for (size_t i = 0; i < 24; ++i) {
    Body body = {{"prompt", (i % 2 == 0 ? common : "") + "Then " + std::to_string(i)},
                 {"max_tokens", 20 + i},
                 {"temperature", 0}};
    if (i % 4 == 1) body["logprobs"] = 2;
    if (i % 6 == 2) body["structured_outputs"] = {{"regex", "[a-f]{3,9}( is [0-9]{2,5})?"}};
    if (i % 6 == 4) {
      body["response_format"] = {
          {"type", "json_schema"},
          {"json_schema",
           {{"name", "s"},
            {"schema",
             {{"type", "object"},
              {"properties", {{"who", {{"type", "string"}, {"maxLength", 9}}}}},
              {"required", {"who"}},
              {"additionalProperties", false}}}}}};
    }
    if (i % 5 == 3) body["frequency_penalty"] = 1.5;
    if (i % 8 == 7) body.update({{"temperature", 1}, {"seed", i}, {"n", 2}});
    bodies.push_back(std::move(body));
  }
  return bodies;
}

Body posted(uint16_t port, const Body& body) {
  RawClient client(port);
  client.send(raw_request("POST", "/v1/completions", body.dump()));
  const RawResponse response = client.response();
  EXPECT_EQ(response.status, 200) << response.body;
  return Body::parse(response.body, nullptr, false).value("choices", Body());
}

/// Eight at a time.
std::vector<Body> answers_from(uint16_t port, const std::vector<Body>& bodies) {
  constexpr size_t kAtOnce = 8;
  std::vector<Body> answers(bodies.size());
  std::vector<std::thread> clients;
  for (size_t k = 0; k < kAtOnce; ++k) {
    clients.emplace_back([&, k] {
      for (size_t i = k; i < bodies.size(); i += kAtOnce) answers[i] = posted(port, bodies[i]);
    });
  }
  for (std::thread& client : clients) client.join();
  return answers;
}

void expect_same_choices(const std::vector<Body>& answers, const std::vector<Body>& expected) {
  for (size_t i = 0; i < answers.size(); ++i) {
    ASSERT_EQ(answers[i].size(), expected[i].size());
    for (size_t k = 0; k < answers[i].size(); ++k) {
      EXPECT_EQ(answers[i][k]["text"], expected[i][k]["text"]) << i;
      EXPECT_EQ(answers[i][k]["finish_reason"], expected[i][k]["finish_reason"]) << i;
      if (!expected[i][k]["logprobs"].is_object()) continue;
      const Body& own = answers[i][k]["logprobs"]["token_logprobs"];
      const Body& theirs = expected[i][k]["logprobs"]["token_logprobs"];
      ASSERT_EQ(own.size(), theirs.size());
      for (size_t t = 0; t < own.size(); ++t)
        EXPECT_NEAR(own[t].get<double>(), theirs[t].get<double>(), 1e-4) << i;
    }
  }
}

std::string metrics_of(uint16_t port) {
  RawClient client(port);
  client.send(raw_request("GET", "/metrics", ""));
  return client.response().body;
}

/// Streams that are left in their midst, most of them while they are under way.
void leave_streams(uint16_t port, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const Body body = {
        {"prompt", "Once upon"}, {"max_tokens", 100}, {"ignore_eos", true}, {"stream", true}};
    RawClient client(port);
    client.send(raw_request("POST", "/v1/completions", body.dump()));
    EXPECT_TRUE(client.receive_until("data: "));
  }
}

/// The ranks that the launcher with this process id has started.
std::vector<pid_t> children_of(pid_t launcher) {
  std::ifstream file("/proc/" + std::to_string(launcher) + "/task/" + std::to_string(launcher) +
                     "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

TEST(ServeInParts, AnswersAreOneProcesssWhateverIsAskedTogether) {
  DANLU_REQUIRES_SHARED();
  const std::vector<Body> bodies = mixed_bodies();
  std::vector<Body> expected;
  {
    const ServedProgram server(stories());
    expected = answers_from(server.port(), bodies);
  }
  ServedProgram server(stories(
      {"--tensor_parallel_size", "2", "--ddp_timeout", "3", "--max_num_batched_tokens", "64"}));
  expect_same_choices(answers_from(server.port(), bodies), expected);
  leave_streams(server.port(), 4);
  // Longer than the others would wait in an exchange.
  std::this_thread::sleep_for(std::chrono::seconds(8));
  expect_same_choices(answers_from(server.port(), bodies), expected);
  EXPECT_THAT(metrics_of(server.port()), HasSubstr("prefix_cache_hits"));
  const std::vector<pid_t> ranks = children_of(server.pid());
  EXPECT_EQ(ranks.size(), 2u);
  // Answers under way come to their end, on all ranks.
  const Body body = {
      {"prompt", "Once"}, {"max_tokens", 100}, {"ignore_eos", true}, {"stream", true}};
  RawClient client(server.port());
  client.send(raw_request("POST", "/v1/completions", body.dump()));
  ASSERT_TRUE(client.receive_until("data: "));
  server.send(SIGTERM);
  EXPECT_THAT(client.response().body, HasSubstr("[DONE]"));
  EXPECT_EQ(server.wait(), 0) << server.log();
  for (const pid_t rank : ranks) EXPECT_FALSE(fs::exists("/proc/" + std::to_string(rank)));
}

TEST(ServeInParts, ARankThatDiesIsTheEndOfTheServer) {
  DANLU_REQUIRES_SHARED();
  for (const bool is_busy : {false, true}) {
    ServedProgram server(stories({"--tensor_parallel_size", "2"}));
    const std::vector<pid_t> ranks = children_of(server.pid());
    ASSERT_EQ(ranks.size(), 2u);
    RawClient client(server.port()), whole(server.port());
    if (is_busy) {
      Body body = {{"prompt", std::vector<std::string>(200, "Once")},
                   {"max_tokens", 100},
                   {"ignore_eos", true}};
      whole.send(raw_request("POST", "/v1/completions", body.dump()));
      body["stream"] = true;
      client.send(raw_request("POST", "/v1/completions", body.dump()));
      ASSERT_TRUE(client.receive_until("data: "));
    }
    ::kill(ranks[1], SIGKILL);
    if (is_busy) {
      const RawResponse stream = client.response();
      EXPECT_TRUE(stream.is_complete);
      EXPECT_THAT(stream.body, HasSubstr("a part of the model is gone"));
      EXPECT_THAT(stream.body, EndsWith("data: [DONE]\n\n"));
      const RawResponse one = whole.response();
      EXPECT_EQ(one.status, 503);
      EXPECT_THAT(Body::parse(one.body)["error"]["message"].get<std::string>(),
                  HasSubstr("a part of the model is gone"));
    }
    EXPECT_EQ(server.wait(), 7) << server.log();
    EXPECT_THAT(server.log(), HasSubstr("SIGKILL"));
    EXPECT_FALSE(fs::exists("/proc/" + std::to_string(ranks[0])));
  }
}

std::vector<std::string> responses_in(const fs::path& file) {
  std::vector<std::string> responses;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);)
    responses.push_back(Body::parse(line).at("response"));
  return responses;
}

TEST(InferInParts, AnswersAreOneProcesss) {
  DANLU_REQUIRES_SHARED();
  const TemporaryDirectory folder;
  std::ofstream prompts(folder / "prompts.txt");
  for (int i = 0; i < 20; ++i) prompts << "Lily and Tom " << i << "\n";
  prompts.close();
  const auto infer = [&](const std::string& name, const std::vector<std::string>& before,
                         const std::vector<std::string>& more) {
    std::vector<std::string> words = before;
    words.insert(words.end(), {"infer", "--model", stories_in_parts(), "--raw", "--dtype", "fp32",
                               "--quantize", "none", "--dataset", (folder / "prompts.txt").string(),
                               "--max_new_tokens", "30", "--output", (folder / name).string()});
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = run_danlu(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return responses_in(folder / name);
  };
  const auto expected = infer("one.jsonl", {}, {});
  ASSERT_EQ(expected.size(), 20u);
  EXPECT_EQ(infer("two.jsonl", {}, {"--tensor_parallel_size", "2"}), expected);
  EXPECT_EQ(infer("launched.jsonl", {"launch", "--nproc", "2"}, {"--tp", "2"}), expected);
  // Drawn tokens are rank 0's.
  const std::vector<std::string> drawn = {"--temperature", "0.9", "--seed", "5"};
  std::vector<std::string> drawn_in_parts = drawn;
  drawn_in_parts.insert(drawn_in_parts.end(), {"--tensor_parallel_size", "4"});
  EXPECT_EQ(infer("drawn4.jsonl", {}, drawn_in_parts), infer("drawn.jsonl", {}, drawn));
  EXPECT_EQ(infer("beams2.jsonl", {}, {"--num_beams", "3", "--tensor_parallel_size", "2"}),
            infer("beams.jsonl", {}, {"--num_beams", "3"}));
}

TEST(InferInParts, WhatOneProcessAloneDoesIsRefusedByName) {
  DANLU_REQUIRES_SHARED();
  const auto error = [](const std::string& verb, const std::vector<std::string>& more) {
    std::vector<std::string> words = {verb, "--model", stories_in_parts(), "--tensor_parallel_size",
                                      "2"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = run_danlu(words);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    return result.err;
  };
  EXPECT_THAT(error("chat", {"--compare", stories_in_parts()}), HasSubstr("--compare"));
  EXPECT_THAT(error("infer", {"--raw", "--prompt", "a", "--quantize", "q8_0"}),
              HasSubstr("--tensor_parallel_size"));
  EXPECT_THAT(error("serve", {"--enable_runtime_lora_updating"}), HasSubstr("--lora_modules"));
  const ProgramResult launched =
      run_danlu({"launch", "--nproc", "3", "infer", "--model", stories_in_parts(), "--raw",
                 "--prompt", "a", "--tensor_parallel_size", "2"});
  EXPECT_EQ(launched.exit_code, 2) << launched.err;
  EXPECT_THAT(launched.err, HasSubstr("there are 3"));
}

/// What a chat says to lines that come in a pipe.
ProgramResult piped_chat(std::vector<std::string> words) {
  ProgramSettings settings;
  settings.input = "Once upon a time\nThe dog\n/clear\nOnce upon a time\n";
  words.insert(words.end(), {"--model", stories_in_parts(), "--dtype", "fp32", "--quantize", "none",
                             "--do_sample", "false", "--max_new_tokens", "30"});
  return run_danlu(words, settings);
}

TEST(ChatInParts, AnswersAreOneProcesss) {
  DANLU_REQUIRES_SHARED();
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"chat", "--template", "default"},
        {"chat", "--template", "default", "--num_beams", "3"},
        {"infer", "--raw"}}) {
    const ProgramResult alone = piped_chat(words);
    std::vector<std::string> divided = words;
    divided.insert(divided.end(), {"--tensor_parallel_size", "2", "--ddp_timeout", "30"});
    const ProgramResult in_parts = piped_chat(divided);
    EXPECT_EQ(in_parts.exit_code, 0) << in_parts.err;
    EXPECT_GT(alone.out.size(), 100u);
    EXPECT_EQ(in_parts.out, alone.out) << words.front();
  }
}

/// Reads what a terminal shows until `text` is there; false: it does not come.
bool shows(int terminal, const std::string& text, std::string& all) {
  const size_t begin = all.size();
  for (char bytes[4096]; all.find(text, begin) == all.npos;) {
    pollfd ready{terminal, POLLIN, 0};
    if (::poll(&ready, 1, 120'000) != 1) return false;
    const ssize_t got = ::read(terminal, bytes, sizeof bytes);
    if (got <= 0) return false;
    all.append(bytes, static_cast<size_t>(got));
  }
  return true;
}

/// A terminal lets its own group of processes read alone, and sends that a Ctrl-C.
TEST(ChatInParts, WhoTypesAtATerminalIsHeard) {
  DANLU_REQUIRES_SHARED();
  std::vector<std::string> line = {danlu_path(),
                                   "chat",
                                   "--template",
                                   "default",
                                   "--model",
                                   stories_in_parts(),
                                   "--tensor_parallel_size",
                                   "2",
                                   "--max_new_tokens",
                                   "100000"};
  std::vector<char*> words;
  for (std::string& word : line) words.push_back(word.data());
  words.push_back(nullptr);
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    ::setenv("DANLU_LANG", "en", 1);
    ::execv(words[0], words.data());
    ::_exit(127);
  }
  const auto type = [&](const std::string& text) {
    EXPECT_EQ(::write(terminal, text.data(), text.size()), std::ssize(text));
  };
  std::string all;
  EXPECT_TRUE(shows(terminal, "/help lists", all)) << all;
  type("Once upon\n");
  EXPECT_TRUE(shows(terminal, "tokens/s", all)) << all;
  type("\x03");  // at the end of an answer, or of a chat that waits
  type("/help\n");
  EXPECT_TRUE(shows(terminal, "/clear", all)) << all;
  type("/exit\n");
  while (shows(terminal, "never", all)) continue;
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << all;
  ::close(terminal);
}

class AdaptersInParts : public TrainedAdapter {};

TEST_F(AdaptersInParts, AreAnsweredAsByOneProcess) {
  const std::vector<std::vector<std::string>> kinds = {
      {"--lora_rank", "4"}, {"--lora_rank", "2", "--use_dora", "true", "--seed", "5"}};
  const std::array<std::string, 2> names = {"a", "b"};
  for (size_t i = 0; i < kinds.size(); ++i) fs::rename(train_adapter(kinds[i]), *this / names[i]);
  std::vector<std::string> words = {
      "--model", good("model").string(), "--served_model_name", "base", "--dtype",
      "fp32",    "--lora_modules"};
  for (const std::string& name : names)
    words.push_back(name + "=" + (*this / name / "last").string());
  std::vector<Body> bodies;
  for (size_t i = 0; i < 12; ++i) {
    bodies.push_back({{"model", i % 3 == 0 ? "base" : names[i % 3 - 1]},
                      {"prompt", "the quick brown fox " + std::to_string(i)},
                      {"max_tokens", 24},
                      {"temperature", 0}});
  }
  std::vector<Body> expected;
  {
    const ServedProgram server(words);
    expected = answers_from(server.port(), bodies);
  }
  words.insert(words.end(), {"--tensor_parallel_size", "2"});
  const ServedProgram server(words);
  expect_same_choices(answers_from(server.port(), bodies), expected);
}

}  // namespace
}  // namespace danlu::test
