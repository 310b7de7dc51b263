// Adapters by name, and vectors of texts, as clients see them.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "layers/lora.h"
#include "serve/protocol_test.h"
#include "support/temporary_directory.h"
#include "text/base64.h"

namespace danlu::serve {
namespace adapters_test {

using testing::ElementsAre;
using testing::HasSubstr;

infer::AdapterPtr some_adapter() { return std::make_shared<layers::AdapterSet>(); }

class AdaptersTest : public ProtocolTest {
 protected:
  Json completion(const std::string& model, int status = 200) {
    return post("/v1/completions", {{"model", model}, {"prompt", "ab"}}, status);
  }
  Json load(const Json& body, int status) {
    const RawResponse response = ask(raw_request("POST", "/v1/load_lora_adapter", body.dump()));
    EXPECT_EQ(response.status, status) << response.body;
    return status == 200 ? Json(response.body) : Json::parse(response.body);
  }
};

TEST_F(AdaptersTest, RequestsNameOneOrTheBase) {
  const infer::AdapterPtr a = some_adapter(), b = some_adapter();
  model_.adapters = {{.name = "a", .adapter = a, .created_s = 7},
                     {.name = "b", .adapter = b, .parent = "alias"}};
  start();
  EXPECT_EQ(chat({{"model", "a"}})["model"], "a");
  EXPECT_EQ(last_request().adapter, a);
  EXPECT_EQ(completion("b")["model"], "b");
  EXPECT_EQ(last_request().adapter, b);
  completion("tiny");
  EXPECT_EQ(last_request().adapter, nullptr);
  post("/v1/completions", {{"prompt", "ab"}});
  EXPECT_EQ(last_request().adapter, nullptr);
  completion("c", 404);
  const Json list = Json::parse(ask(raw_request("GET", "/v1/models")).body)["data"];
  ASSERT_EQ(list.size(), 4);
  EXPECT_EQ(list[0]["parent"], nullptr);
  EXPECT_EQ(list[2]["id"], "a");
  EXPECT_EQ(list[2]["parent"], "tiny");
  EXPECT_EQ(list[2]["created"], 7);
  EXPECT_EQ(list[3]["parent"], "alias");
  EXPECT_EQ(Json::parse(ask(raw_request("GET", "/v1/models/b")).body)["parent"], "alias");
  EXPECT_EQ(ask(raw_request("GET", "/v1/models/c")).status, 404);
  // Nobody may load one unless told so.
  EXPECT_EQ(ask(raw_request("POST", "/v1/load_lora_adapter", "{}")).status, 404);
}

TEST_F(AdaptersTest, TheyAreLoadedAndUnloadedWhileServing) {
  const test::TemporaryDirectory directory;
  std::vector<std::string> paths;
  model_.load_adapter = [&](const std::string& path) -> OpenedAdapter {
    if (!paths.empty() && path == paths.front() + "/.") throw ModelError("it is broken");
    if (!paths.empty() && path == paths.front() + "/./.") throw IoError("a named pipe");
    paths.push_back(path);
    return {.adapter = some_adapter()};
  };
  start();
  const std::string path = directory.path().string();
  EXPECT_THAT(load({{"lora_name", "a"}}, 400)["error"]["message"].get<std::string>(),
              HasSubstr("Both 'lora_name' and 'lora_path'"));
  EXPECT_THAT(load({{"lora_name", "a"}, {"lora_path", path + std::string(1, '\0')}},
                   400)["error"]["message"]
                  .get<std::string>(),
              HasSubstr("'lora_path' has a NUL in it"));
  EXPECT_EQ(load({{"lora_name", "a"}, {"lora_path", path}}, 200),
            "Success: LoRA adapter 'a' added successfully.");
  EXPECT_THAT(paths, ElementsAre(path));
  completion("a");
  const infer::AdapterPtr first = last_request().adapter;
  EXPECT_NE(first, nullptr);
  EXPECT_THAT(
      load({{"lora_name", "a"}, {"lora_path", path}}, 400)["error"]["message"].get<std::string>(),
      HasSubstr("already been loaded"));
  load({{"lora_name", "tiny"}, {"lora_path", path}}, 400);
  load({{"lora_name", "b"}, {"lora_path", path + "/nothing"}}, 404);
  EXPECT_EQ(load({{"lora_name", "b"}, {"lora_path", path + "/."}}, 400)["error"]["message"],
            "it is broken");
  EXPECT_EQ(load({{"lora_name", "b"}, {"lora_path", path + "/./."}}, 400)["error"]["message"],
            "Loading lora b failed: a named pipe");
  load({{"lora_name", "a"}, {"lora_path", path}, {"load_inplace", true}}, 200);
  completion("a");
  EXPECT_NE(last_request().adapter, first);

  // One that is under way ends as it began.
  script_.is_held = true;
  RawClient client(server_->port());
  client.send(
      raw_request("POST", "/v1/completions", Json{{"model", "a"}, {"prompt", "ab"}}.dump()));
  ASSERT_TRUE(comes([&] { return script_.num_running == 1; }));
  EXPECT_EQ(ask(raw_request("POST", "/v1/unload_lora_adapter", R"({"lora_name": "a"})")).body,
            "Success: LoRA adapter 'a' removed successfully.");
  completion("a", 404);
  script_.is_held = false;
  EXPECT_EQ(client.response().status, 200);
  EXPECT_EQ(Json::parse(ask(raw_request("GET", "/v1/models")).body)["data"].size(), 2);
  post("/v1/unload_lora_adapter", {{"lora_name", "a"}}, 404);
  post("/v1/unload_lora_adapter", Json::object(), 400);
}

TEST_F(AdaptersTest, VectorsHaveLengthOneAndBothEncodings) {
  const infer::AdapterPtr a = some_adapter();
  model_.adapters = {{.name = "a", .adapter = a}};
  model_.vectors.pooling = infer::Pooling::kMean;
  start();
  // The scripted engine gives [tokens, 4].
  const Json whole = post("/v1/embeddings", {{"model", "a"}, {"input", "abc"}});
  EXPECT_EQ(whole["object"], "list");
  EXPECT_EQ(whole["model"], "a");
  EXPECT_EQ(whole["usage"], (Json{{"prompt_tokens", 3}, {"total_tokens", 3}}));
  EXPECT_FLOAT_EQ(whole["data"][0]["embedding"][0], 0.6f);
  EXPECT_FLOAT_EQ(whole["data"][0]["embedding"][1], 0.8f);
  EXPECT_EQ(last_request().adapter, a);
  EXPECT_EQ(last_request().pooling, infer::Pooling::kMean);
  const Json encoded =
      post("/v1/embeddings", {{"input", "abc"}, {"encoding_format", "base64"}})["data"];
  std::string bytes;
  ASSERT_TRUE(text::decode_base64(encoded[0]["embedding"].get<std::string>(), &bytes));
  ASSERT_EQ(bytes.size(), 8u);
  float values[2];
  std::memcpy(values, bytes.data(), 8);
  EXPECT_FLOAT_EQ(values[0], 0.6f);
  EXPECT_FLOAT_EQ(values[1], 0.8f);
}

TEST_F(AdaptersTest, EachMakesVectorsAsItWasTrained) {
  TextVectors own;
  own.by_template = true;
  own.pooling = infer::Pooling::kMean;
  model_.system = "base";
  model_.adapters = {
      {.name = "written", .adapter = some_adapter(), .prompt = {.system = "s", .vectors = own}},
      {.name = "as base", .adapter = some_adapter()}};
  start();
  const auto asked = [&](const std::string& model) {
    post("/v1/embeddings", {{"model", model}, {"input", "abc"}});
    return model_.tokenizer->decode(last_request().request.prompt);
  };
  EXPECT_EQ(asked("written"), "system:s|user:abc|assistant:");
  EXPECT_EQ(last_request().pooling, infer::Pooling::kMean);
  EXPECT_EQ(asked("as base"), "abc");
  EXPECT_EQ(asked("tiny"), "abc");
  EXPECT_EQ(last_request().pooling, infer::Pooling::kLast);
}

TEST_F(AdaptersTest, VectorsAreCutToSizesThatWereLearnt) {
  TextVectors own;
  own.sizes = {1};
  model_.vector_size = 2;
  model_.adapters = {{.name = "a", .adapter = some_adapter(), .prompt = {.vectors = own}}};
  start();
  const auto vector = [&](const std::string& model, int64_t size, int status = 200) {
    return post("/v1/embeddings", {{"model", model}, {"input", "abc"}, {"dimensions", size}},
                status);
  };
  // [3, 4] of the scripted engine: its first number alone has length one.
  EXPECT_EQ(vector("a", 1)["data"][0]["embedding"], Json::array({1.0}));
  EXPECT_FLOAT_EQ(vector("a", 2)["data"][0]["embedding"][1], 0.8f) << "as whole as ever";
  EXPECT_EQ(vector("tiny", 2)["data"][0]["embedding"].size(), 2);
  const Json other = vector("a", 3, 400)["error"];
  EXPECT_EQ(other["param"], "dimensions");
  EXPECT_THAT(other["message"].get<std::string>(), HasSubstr("cut to 1 numbers, got 3"));
  EXPECT_THAT(vector("tiny", 1, 400)["error"]["message"].get<std::string>(),
              HasSubstr("parts of them mean nothing"));
  EXPECT_EQ(vector("nobody", 1, 404)["error"]["param"], "model");
}

TEST_F(AdaptersTest, TextsAndIdsAreEmbeddedInTheirOrder) {
  for (const Json& input : {Json{"abc", "a"}, Json{{97, 98, 99}, {97}}}) {
    const Json answer = post("/v1/embeddings", {{"input", input}});
    ASSERT_EQ(answer["data"].size(), 2);
    EXPECT_EQ(answer["data"][1]["index"], 1);
    EXPECT_FLOAT_EQ(answer["data"][0]["embedding"][0], 0.6f);
    EXPECT_FLOAT_EQ(answer["data"][1]["embedding"][0], static_cast<float>(1 / std::sqrt(17.0)));
    EXPECT_EQ(answer["usage"]["prompt_tokens"], 4);
  }
  EXPECT_EQ(post("/v1/embeddings", {{"input", {97, 98}}})["usage"]["total_tokens"], 2);
}

TEST_F(AdaptersTest, WhatCannotBeEmbeddedIsRefused) {
  const auto refused = [&](const Json& body, int status = 400) {
    return post("/v1/embeddings", body, status)["error"];
  };
  EXPECT_EQ(refused({{"input", "a"}, {"dimensions", 8}})["param"], "dimensions");
  EXPECT_EQ(refused({{"input", "a"}, {"encoding_format", "f16"}})["param"], "encoding_format");
  EXPECT_EQ(refused({{"input", ""}})["param"], "input");
  EXPECT_EQ(refused({{"input", Json::array()}})["param"], "input");
  EXPECT_EQ(refused({{"input", {1, 256}}})["param"], "input");
  EXPECT_EQ(refused({{"input", 7}})["param"], "input");
  EXPECT_EQ(refused(Json::object())["param"], "input");
  refused({{"input", "a"}, {"model", "other"}}, 404);
  const Json error = refused({{"input", std::string(1001, 'a')}});
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("1000 tokens"));
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("1001 tokens"));
  post("/v1/embeddings", {{"input", std::string(1000, 'a')}});
  EXPECT_EQ(post("/v1/embeddings", {{"input", std::string(1001, 'a')},
                                    {"truncate_prompt_tokens", -1}})["usage"]["prompt_tokens"],
            1000);
}

}  // namespace adapters_test
}  // namespace danlu::serve
