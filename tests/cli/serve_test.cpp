// `danlu serve` as users run it: the same answers as `danlu infer`, for OpenAI's own client too,
// and an end that loses nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "cli/run_program.h"
#include "cli/seeing_model.h"
#include "cli/served_program.h"
#include "support/raw_http.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using Body = nlohmann::json;
using testing::HasSubstr;

std::string stories_file() {
  return (shared_dir() / "data/models/stories260K/stories260K.gguf").string();
}

/// The one template that needs no tokens of its own.
std::vector<std::string> serving(std::vector<std::string> more = {}) {
  std::vector<std::string> words = {"--model", stories_file(), "--served_model_name",
                                    "stories", "--template",   "default"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Body ask(uint16_t port, const std::string& path, const Body& body) {
  RawClient client(port);
  client.send(raw_request("POST", path, body.dump()));
  const RawResponse response = client.response();
  EXPECT_EQ(response.status, 200) << response.body;
  return Body::parse(response.body, nullptr, false);
}

std::vector<std::string> prompts(size_t count) {
  const std::vector<std::string> begins = {"Once upon a time",
                                           "The dog",
                                           "Lily and Tom went",
                                           "One day, a big red ball",
                                           "It was",
                                           "She",
                                           "A"};
  const std::string common = "There was a little girl who had a dog and a cat. ";
  std::vector<std::string> all;
  for (size_t i = 0; i < count; ++i) {
    std::string& prompt = all.emplace_back();
    // Some begin alike, over pages and over parts of them.
    for (size_t k = i % 4; k > 1; --k) prompt += common.substr(0, common.size() - i % 3);
    prompt += begins[i % begins.size()] + (i < begins.size() ? "" : " " + std::to_string(i));
  }
  return all;
}

TEST(Serve, GreedyAnswersAreInfersAtAnyConcurrency) {
  DANLU_REQUIRES_SHARED();
  constexpr size_t kPrompts = 200, kAtOnce = 16;
  const std::vector<std::string> asked = prompts(kPrompts);
  const TemporaryDirectory folder;
  std::ofstream file(folder / "prompts.txt");
  for (const std::string& prompt : asked) file << prompt << "\n";
  file.close();
  const std::string output = (folder / "answers.jsonl").string();
  const ProgramResult inferred =
      run_danlu({"infer", "--model", stories_file(), "--raw", "--dataset",
                 (folder / "prompts.txt").string(), "--max_new_tokens", "40", "--output", output});
  ASSERT_EQ(inferred.exit_code, 0) << inferred.err;
  std::vector<std::string> expected;
  std::ifstream lines(output);
  for (std::string line; std::getline(lines, line);)
    expected.push_back(Body::parse(line).at("response"));
  ASSERT_EQ(expected.size(), kPrompts);

  const ServedProgram server(serving());
  std::vector<std::string> whole(kPrompts), streamed(kPrompts);
  std::vector<std::thread> clients;
  for (size_t k = 0; k < kAtOnce; ++k) {
    clients.emplace_back([&, k] {
      for (size_t i = k; i < kPrompts; i += kAtOnce) {
        Body body = {{"prompt", asked[i]}, {"max_tokens", 40}, {"temperature", 0}};
        whole[i] = ask(server.port(), "/v1/completions", body)["choices"][0]["text"];
        body["stream"] = true;
        RawClient client(server.port());
        client.send(raw_request("POST", "/v1/completions", body.dump()));
        std::istringstream events(client.response().body);
        for (std::string line; std::getline(events, line);) {
          if (line.starts_with("data: {"))
            streamed[i] += Body::parse(line.substr(6))["choices"][0]["text"];
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(streamed, whole);
  EXPECT_EQ(whole, expected);
  // Answers go on with their prompt's text, and have the space that SentencePiece leaves out where
  // a text begins.
  EXPECT_GT(std::count_if(whole.begin(), whole.end(),
                          [](const std::string& text) { return text.starts_with(' '); }),
            0);
}

/// What a client's script says of a server that asks for a key; it is given where `package` of npm
/// is, or all of them. Skipped where that was not fetched.
void expect_client_is_served(const std::string& script, const std::string& package,
                             const std::string& given, const std::string& last,
                             const std::vector<std::string>& flags = {},
                             const std::string& only = "") {
  const fs::path modules = fs::path(DANLU_SOURCE_DIR) / ".deps/oracles/node_modules";
  if (!fs::exists(modules / package) || std::system("node --version >/dev/null 2>&1") != 0) {
    const char* ci = std::getenv("CI");
    if (ci && std::string(ci) == "true") FAIL() << package << " or node is missing";
    GTEST_SKIP() << "tools/deps.sh --oracles fetches " << package;
  }
  std::vector<std::string> words = serving({"--api_key", "key"});
  words.insert(words.end(), flags.begin(), flags.end());
  const ServedProgram server(words);
  const TemporaryDirectory folder;
  const std::string out = (folder / "out").string();
  const std::string command = "node '" DANLU_SOURCE_DIR "/tests/cli/" + script + "' '" +
                              (modules / given).string() + "' " + server.url() + " stories " +
                              only + " >'" + out + "' 2>&1";
  const int status = std::system(command.c_str());
  std::stringstream said;
  said << std::ifstream(out).rdbuf();
  EXPECT_EQ(status, 0) << said.str();
  EXPECT_THAT(said.str(), HasSubstr("ok " + last));
}

TEST(Serve, OpenAisClientFindsWhatItExpects) {
  DANLU_REQUIRES_SHARED();
  expect_client_is_served("openai_client.mjs", "openai", "openai", "abort");
}

TEST(Serve, OpenAisClientCallsTools) {
  DANLU_REQUIRES_SHARED();
  // The model's window of 128 tokens holds no description of tools.
  const TemporaryDirectory folder;
  std::ofstream(folder / "brief.jinja")
      << "{% for message in messages %}{{ message.content }}{% if message.tool_calls %}called"
         "{% endif %} {% endfor %}";
  expect_client_is_served(
      "openai_client.mjs", "openai", "openai", "tools",
      {"--template", (folder / "brief.jinja").string(), "--tool_call_parser", "hermes"}, "tools");
}

TEST(Serve, OpenAisClientComesBackWhereTheQueueIsFull) {
  DANLU_REQUIRES_SHARED();
  expect_client_is_served("openai_client.mjs", "openai", "openai", "retries",
                          {"--max_num_seqs", "1", "--max_queue", "1"}, "retries");
}

TEST(Serve, LangChainsClientFindsWhatItExpects) {
  DANLU_REQUIRES_SHARED();
  expect_client_is_served("langchain_client.mjs", "@langchain/openai", "", "errors");
}

std::string base64_of(const fs::path& file) {
  const std::string command = "base64 -w 0 '" + file.string() + "'";
  std::string text;
  FILE* pipe = ::popen(command.c_str(), "r");
  char bytes[4096];
  for (size_t size = 0; (size = std::fread(bytes, 1, sizeof bytes, pipe)) > 0;)
    text.append(bytes, size);
  ::pclose(pipe);
  return text;
}

TEST(Serve, APictureOfARequestIsSeenAsInferSeesIt) {
  DANLU_REQUIRES_SHARED();
  const TemporaryDirectory folder;
  const SeeingModel seeing = make_seeing_model(folder);
  std::ifstream rows(seeing.rows);
  std::string line;
  std::getline(rows, line);
  const fs::path picture = Body::parse(line)["images"][0].get<std::string>();
  ASSERT_TRUE(fs::exists(picture)) << picture;
  const ProgramResult inferred =
      run_danlu({"infer", "--model", seeing.model.string(), "--image", picture.string(), "--prompt",
                 "the fox?", "--max_new_tokens", "12", "--do_sample", "false"});
  ASSERT_EQ(inferred.exit_code, 0) << inferred.err;
  const ServedProgram server({"--model", seeing.model.string(), "--served_model_name", "vl"});
  const auto asked = [&](const std::string& url) {
    return Body{{"messages",
                 {{{"role", "user"},
                   {"content",
                    {{{"type", "image_url"}, {"image_url", {{"url", url}}}},
                     {{"type", "text"}, {"text", "the fox?"}}}}}}},
                {"max_tokens", 12},
                {"temperature", 0}};
  };
  const Body answer = ask(server.port(), "/v1/chat/completions",
                          asked("data:image/png;base64," + base64_of(picture)));
  EXPECT_EQ(answer["choices"][0]["message"]["content"].get<std::string>() + "\n", inferred.out);
  // Its tokens are counted by its header, before anything of it is computed.
  Body many = asked("data:image/png;base64," + base64_of(picture));
  Body& content = many["messages"][0]["content"];
  content = Body(500, content[0]);
  RawClient greedy(server.port());
  greedy.send(raw_request("POST", "/v1/chat/completions", many.dump()));
  const Body error = Body::parse(greedy.response().body)["error"];
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("the 500 picture(s)"));
  // Its header is whole, and its pixels are not.
  std::string cut = base64_of(picture);
  cut.resize(cut.size() / 8 * 4);
  for (const std::string& url :
       {picture.string(), "file://" + picture.string(),
        std::string("data:image/png;base64,aGVsbG8="), "data:image/png;base64," + cut}) {
    RawClient client(server.port());
    client.send(raw_request("POST", "/v1/chat/completions", asked(url).dump()));
    EXPECT_EQ(client.response().status, 400) << url;
  }
}

TEST(Serve, ASignalLetsAnswersEndAndTheSecondOneDoesNot) {
  DANLU_REQUIRES_SHARED();
  // The answer fills most of the model's window of 128 tokens.
  const Body body = {
      {"prompt", "Once"}, {"max_tokens", 120}, {"ignore_eos", true}, {"stream", true}};
  const std::string request = raw_request("POST", "/v1/completions", body.dump());
  for (const int signal : {SIGTERM, SIGHUP}) {
    ServedProgram server(serving());
    RawClient client(server.port());
    client.send(request);
    ASSERT_TRUE(client.receive_until("data: "));
    server.send(signal);
    EXPECT_THAT(client.response().body, HasSubstr("[DONE]"));
    EXPECT_EQ(server.wait(), 0);
  }
  ServedProgram server(serving({"--shutdown_timeout", "1000"}));
  RawClient client(server.port());
  Body many = body;
  many["prompt"] = std::vector<std::string>(1000, "Once");
  client.send(raw_request("POST", "/v1/completions", many.dump()));
  ASSERT_TRUE(client.receive_until("data: "));
  server.send(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  server.send(SIGTERM);
  EXPECT_EQ(server.wait(), 143);
}

TEST(Serve, AnswersThatMeetTheEndSayThatTheyAreNotComplete) {
  DANLU_REQUIRES_SHARED();
  ServedProgram server(serving({"--shutdown_timeout", "0"}));
  Body many = {{"prompt", std::vector<std::string>(1000, "Once")},
               {"max_tokens", 120},
               {"ignore_eos", true}};
  RawClient whole(server.port()), streamed(server.port());
  whole.send(raw_request("POST", "/v1/completions", many.dump()));
  many["stream"] = true;
  streamed.send(raw_request("POST", "/v1/completions", many.dump()));
  ASSERT_TRUE(streamed.receive_until("data: "));
  server.send(SIGTERM);
  const RawResponse stream = streamed.response();
  EXPECT_THAT(stream.body, HasSubstr("the server ends, and the answer is not complete"));
  EXPECT_TRUE(stream.is_complete && stream.body.ends_with("data: [DONE]\n\n"));
  EXPECT_EQ(whole.response().status, 503);
  EXPECT_EQ(server.wait(), 0);
  EXPECT_THAT(server.log(), HasSubstr("ended with an error"));
}

TEST(Serve, AnEmptyKeyOfTheEnvironmentLetsNobodyIn) {
  ProgramSettings settings;
  settings.environment = {{"API_KEY", ""}};
  const ProgramResult result = run_danlu({"serve", "--model", "nowhere"}, settings);
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("[$API_KEY] the key is empty"));
}

TEST(Serve, WhatIsAskedIsNeverLogged) {
  DANLU_REQUIRES_SHARED();
  const std::string secret = "Marigold";
  for (const bool is_told : {false, true}) {
    ServedProgram server(is_told ? serving({"--log_requests"}) : serving());
    const auto ask = [&](const std::string& body) {
      RawClient client(server.port());
      client.send(raw_request("POST", "/v1/completions", body));
      return client.response();
    };
    EXPECT_EQ(ask(Body{{"prompt", secret}, {"max_tokens", 3}, {"echo", true}}.dump()).status, 200);
    EXPECT_EQ(ask(Body{{"prompt", secret}, {"max_tokens", secret}}.dump()).status, 400);
    EXPECT_EQ(ask("{\"prompt\": \"" + secret).status, 400);
    server.send(SIGTERM);
    EXPECT_EQ(server.wait(), 0);
    EXPECT_EQ(server.log().find(secret), std::string::npos) << server.log();
    EXPECT_EQ(server.log().find("POST /v1/completions") != std::string::npos, is_told);
  }
}

TEST(Serve, WhatCannotBeServedIsSaidBeforeAModelIsLoaded) {
  const auto error = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"serve", "--model", "/nothing"});
    const ProgramResult result = run_danlu(words);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    return result.err;
  };
  EXPECT_THAT(error({"--lora_modules", "a"}), HasSubstr("NAME=DIR"));
  EXPECT_THAT(error({"--pipeline_parallel_size", "2"}), HasSubstr("--tensor_parallel_size"));
  EXPECT_THAT(error({"--ssl_certfile", "x.pem"}), HasSubstr("--ssl_keyfile"));
  EXPECT_THAT(error({"--port", "70000"}), HasSubstr("65535"));
}

TEST(Serve, ACertificateAndItsKeyMakeItHttps) {
  DANLU_REQUIRES_SHARED();
  const TemporaryDirectory folder;
  const std::string in_folder = "cd '" + folder.path().string() + "' && ";
  ASSERT_EQ(std::system((in_folder +
                         "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "
                         "-days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost "
                         "-keyout key.pem -out cert.pem >/dev/null 2>&1")
                            .c_str()),
            0);
  ServedProgram server(serving({"--ssl-certfile", (folder / "cert.pem").string(), "--ssl-keyfile",
                                (folder / "key.pem").string()}));
  EXPECT_THAT(server.log(), HasSubstr(" at https://127.0.0.1:"));
  std::ofstream(folder / "request")
      << "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(std::system((in_folder +
                         "openssl s_client -quiet -verify_return_error -CAfile "
                         "cert.pem -servername localhost -connect 127.0.0.1:" +
                         std::to_string(server.port()) + " <request >answer 2>errors")
                            .c_str()),
            0);
  std::stringstream answer;
  answer << std::ifstream(folder / "answer").rdbuf();
  EXPECT_THAT(answer.str(), HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(answer.str(), HasSubstr("\"id\":\"stories\""));
  RawClient plain(server.port());
  plain.send(raw_request("GET", "/v1/models"));
  EXPECT_EQ(plain.response().status, 0) << "nothing is said in plain";
}

TEST(Serve, OtherSystemsLinesStartIt) {
  DANLU_REQUIRES_SHARED();
  for (const char* command : {"deploy", "api"}) {
    const ProgramResult result = run_danlu({command, "--model", stories_file(), "--port", "0"},
                                           {.signal = SIGTERM, .signal_after = "/v1"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("serving stories260K"));
  }
}

}  // namespace
}  // namespace danlu::test
