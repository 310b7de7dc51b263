// `danlu serve` with several adapters beside one model: each is answered as `danlu infer` answers
// with it alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/served_program.h"
#include "cli/trained_adapter.h"
#include "support/raw_http.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using Body = nlohmann::json;
using testing::HasSubstr;

constexpr size_t kRequests = 24;
/// An adapter's name, or the base model's.
const std::array<std::string, 4> kServed = {"base", "a", "b", "c"};

class ServedAdapters : public TrainedAdapter {
 protected:
  /// Three runs that differ in rank, scale and targets, under the names of kServed.
  void train_all() const {
    const std::vector<std::vector<std::string>> more = {
        {"--lora_rank", "4"},
        {"--lora_rank", "8", "--use_rslora", "true", "--target_modules", "q_proj,v_proj", "--seed",
         "3"},
        {"--lora_rank", "2", "--use_dora", "true", "--target_modules", "down_proj,o_proj", "--seed",
         "5"}};
    for (size_t i = 0; i < more.size(); ++i)
      fs::rename(train_adapter(more[i]), *this / kServed[i + 1]);
  }
  fs::path adapter(size_t which) const { return *this / kServed[which] / "last"; }

  std::vector<std::string> prompts_of(size_t which) const {
    std::vector<std::string> prompts;
    for (size_t i = which; i < kRequests; i += 4)
      prompts.push_back(std::string("the quick brown fox").substr(0, 4 + i % 15) + " " +
                        std::to_string(i));
    return prompts;
  }
  /// What `danlu infer` answers with that adapter.
  std::vector<std::string> inferred(size_t which, const std::vector<std::string>& more = {}) const {
    std::string lines;
    for (const std::string& prompt : prompts_of(which)) lines += prompt + "\n";
    write("prompts.txt", lines);
    std::vector<std::string> words = {"infer",     "--model",      good("model").string(), "--raw",
                                      "--dataset", "prompts.txt",  "--max_new_tokens",     "24",
                                      "--output",  "answers.jsonl"};
    if (which > 0) words.insert(words.end(), {"--adapters", adapter(which).string()});
    words.insert(words.end(), more.begin(), more.end());
    fs::remove(*this / "answers.jsonl");
    ok(words);
    std::vector<std::string> answers;
    std::ifstream file(*this / "answers.jsonl");
    for (std::string line; std::getline(file, line);)
      answers.push_back(Body::parse(line).at("response"));
    return answers;
  }
  std::vector<std::string> serving(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {"--model", good("model").string(), "--served_model_name",
                                      "base"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  static RawResponse post(uint16_t port, const std::string& path, const Body& body) {
    RawClient client(port);
    client.send(raw_request("POST", path, body.dump()));
    return client.response();
  }
  static std::string completion(uint16_t port, const std::string& model,
                                const std::string& prompt) {
    const RawResponse response =
        post(port, "/v1/completions",
             {{"model", model}, {"prompt", prompt}, {"max_tokens", 24}, {"temperature", 0}});
    EXPECT_EQ(response.status, 200) << response.body;
    return Body::parse(response.body)["choices"][0]["text"];
  }
  /// All requests at once, so that passes mix them.
  std::array<std::vector<std::string>, 4> served(uint16_t port) const {
    std::array<std::vector<std::string>, 4> answers;
    std::vector<std::thread> clients;
    for (size_t which = 0; which < 4; ++which) {
      const std::vector<std::string> prompts = prompts_of(which);
      answers[which].resize(prompts.size());
      for (size_t i = 0; i < prompts.size(); ++i) {
        clients.emplace_back([&answers, port, which, i, prompt = prompts[i]] {
          answers[which][i] = completion(port, kServed[which], prompt);
        });
      }
    }
    for (std::thread& client : clients) client.join();
    return answers;
  }
};

TEST_F(ServedAdapters, AnswersAreInfersWithEachAlone) {
  train_all();
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--deterministic"}, {"--quantize", "q8_0"}}) {
    const bool in_blocks = !more.empty() && more[0] == "--quantize";
    // DoRA measures rows, which are not there in blocks.
    const size_t count = in_blocks ? 3 : 4;
    std::vector<std::string> words = serving(more);
    words.emplace_back("--lora-modules");
    words.push_back("a=" + adapter(1).string());
    words.push_back(Body{{"name", "b"}, {"path", adapter(2).string()}}.dump());
    if (!in_blocks) words.push_back("c=" + adapter(3).string());
    const ServedProgram server(words);
    EXPECT_THAT(server.log(), HasSubstr("adapters beside it: a, b"));
    if (in_blocks) {
      for (size_t which = 0; which < count; ++which) {
        const std::vector<std::string> expected = inferred(which, more);
        for (size_t i = 0; i < expected.size(); ++i)
          EXPECT_EQ(completion(server.port(), kServed[which], prompts_of(which)[i]), expected[i]);
      }
      continue;
    }
    const auto answers = served(server.port());
    for (size_t which = 0; which < count; ++which) {
      EXPECT_EQ(answers[which], inferred(which)) << kServed[which];
    }
    EXPECT_NE(answers[0], answers[1]);
  }
}

TEST_F(ServedAdapters, AreLoadedWhileServingWhereTheFlagSaysSo) {
  fs::rename(train_adapter(), *this / "a");
  const std::string prompt = "the quick brown";
  const Body load = {{"lora_name", "a"}, {"lora_path", adapter(1).string()}};
  {
    // ms-swift's line, where the adapter names its base.
    const ServedProgram server(
        {"--adapters", "a=" + adapter(1).string(), "--served_model_name", "base"});
    const std::string with = completion(server.port(), "a", prompt);
    EXPECT_NE(with, completion(server.port(), "base", prompt));
    EXPECT_EQ(post(server.port(), "/v1/load_lora_adapter", load).status, 404);

    const ServedProgram open(
        serving({"--enable-lora", "--enable-runtime-lora-updating", "--max-lora-rank", "8"}));
    EXPECT_EQ(post(open.port(), "/v1/load_lora_adapter", load).body,
              "Success: LoRA adapter 'a' added successfully.");
    EXPECT_EQ(completion(open.port(), "a", prompt), with);
    EXPECT_EQ(post(open.port(), "/v1/load_lora_adapter",
                   {{"lora_name", "b"}, {"lora_path", good("model").string()}})
                  .status,
              400);
    EXPECT_EQ(post(open.port(), "/v1/unload_lora_adapter", {{"lora_name", "a"}}).status, 200);
    EXPECT_EQ(post(open.port(), "/v1/completions", {{"model", "a"}, {"prompt", "x"}}).status, 404);
    const RawResponse vector =
        post(open.port(), "/v1/embeddings", {{"model", "base"}, {"input", prompt}});
    EXPECT_EQ(Body::parse(vector.body)["data"][0]["embedding"].size(), 32u);
  }
  expect_error(run({"serve", "--model", good("model").string(), "--lora_modules",
                    "a=" + adapter(1).string(), "--max_lora_rank", "2"}),
               4, {"rank 8 is above --max_lora_rank 2"});
}

TEST_F(ServedAdapters, LinesThatCannotBeMeantAreRefused) {
  const auto refused = [&](const std::vector<std::string>& more, const std::string& words) {
    std::vector<std::string> line = {"serve", "--model", good("model").string(),
                                     "--served_model_name", "base"};
    line.insert(line.end(), more.begin(), more.end());
    expect_error(run(line), 2, {words});
  };
  refused({"--lora_modules", "a"}, "NAME=DIR");
  refused({"--lora_modules", R"({"name": "a"})"}, "\"path\"");
  refused({"--lora_modules", "a=x", "a=y"}, "two adapters are called a");
  refused({"--adapters", "x", "y"}, "need names");
  refused({"--adapters", "x", "--lora_modules", "a=y"}, "give it a name, too");
}

}  // namespace
}  // namespace danlu::test
