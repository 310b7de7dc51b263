// Penalties, biases and forms that flags ask of `danlu infer` and `danlu chat`: the server's
// answers to the same wishes, and what the flags say by themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "cli/run_program.h"
#include "cli/served_program.h"
#include "support/raw_http.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using Body = nlohmann::ordered_json;  // schemas say in which order members come
using testing::Each;
using testing::HasSubstr;

std::string ruled_stories() {
  return (shared_dir() / "data/models/stories260K/stories260K.gguf").string();
}

const std::vector<std::string> kPrompts = {"Once upon a time",        "The dog",
                                           "Lily and Tom went",       "It",
                                           "One day, a big red ball", "She said"};

class InferRules : public testing::Test {
 protected:
  void SetUp() override {
    DANLU_REQUIRES_SHARED();
    std::ofstream file(folder_ / "prompts.txt");
    for (const std::string& prompt : kPrompts) file << prompt << "\n";
  }
  /// What `danlu infer` answers to kPrompts with these flags.
  std::vector<std::string> inferred(const std::vector<std::string>& flags) const {
    std::vector<std::string> words = {"infer",
                                      "--model",
                                      ruled_stories(),
                                      "--raw",
                                      "--dataset",
                                      (folder_ / "prompts.txt").string(),
                                      "--max_new_tokens",
                                      "40",
                                      "--output",
                                      (folder_ / "answers.jsonl").string(),
                                      "--overwrite"};
    words.insert(words.end(), flags.begin(), flags.end());
    const ProgramResult result = run_danlu(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<std::string> answers;
    std::ifstream lines(folder_ / "answers.jsonl");
    for (std::string line; std::getline(lines, line);)
      answers.push_back(Body::parse(line).at("response"));
    return answers;
  }
  const TemporaryDirectory folder_;
};

std::vector<std::string> served_with(uint16_t port, const Body& wishes) {
  std::vector<std::string> answers;
  for (const std::string& prompt : kPrompts) {
    Body body = {{"prompt", prompt}, {"max_tokens", 40}, {"temperature", 0}};
    body.update(wishes);
    RawClient client(port);
    client.send(raw_request("POST", "/v1/completions", body.dump()));
    const RawResponse response = client.response();
    EXPECT_EQ(response.status, 200) << response.body;
    answers.push_back(Body::parse(response.body)["choices"][0]["text"]);
  }
  return answers;
}

TEST_F(InferRules, FlagsAskWhatRequestsAsk) {
  const ServedProgram server(
      {"--model", ruled_stories(), "--served_model_name", "stories", "--template", "default"});
  const std::string schema =
      R"({"type": "object", "properties": {"who": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 1, "maximum": 99}}, "required": ["who", "age"]})";
  std::ofstream(folder_ / "schema.json") << schema;
  const std::vector<std::string> plain = inferred({});
  const std::vector<std::pair<std::vector<std::string>, Body>> cases = {
      {{"--presence_penalty", "1.5"}, {{"presence_penalty", 1.5}}},
      {{"--frequency-penalty=1.2"}, {{"frequency_penalty", 1.2}}},
      {{"--repetition_penalty", "1.3"}, {{"repetition_penalty", 1.3}}},
      {{"--logit_bias", R"({"300": 5.5, "310": -100, "291": 3})"},
       {{"logit_bias", {{"300", 5.5}, {"310", -100}, {"291", 3}}}}},
      {{"--stop_words", "the", "big", "e p"}, {{"stop", {"the", "big", "e p"}}}},
      {{"--stop_words", R"([" to t", ", "])"}, {{"stop", {" to t", ", "}}}},
      {{"--guided_choice", "a dog, a cat", " nobody"},
       {{"structured_outputs", {{"choice", {"a dog, a cat", " nobody"}}}}}},
      {{"--stop", "the", "--min_new_tokens", "30"}, {{"stop", "the"}, {"min_tokens", 30}}},
      {{"--guided_json", schema}, {{"structured_outputs", {{"json", Body::parse(schema)}}}}},
      {{"--guided_json", (folder_ / "schema.json").string()},
       {{"structured_outputs", {{"json", Body::parse(schema)}}}}},
      {{"--structured_outputs_regex", "[A-Z][a-z]{2,9}( [a-z]{1,7}){2}"},
       {{"structured_outputs", {{"regex", "[A-Z][a-z]{2,9}( [a-z]{1,7}){2}"}}}}},
      {{"--guided_choice", "a dog", "a cat", "nobody"},
       {{"structured_outputs", {{"choice", {"a dog", "a cat", "nobody"}}}}}},
  };
  for (const auto& [flags, wishes] : cases) {
    SCOPED_TRACE(wishes.dump());
    const std::vector<std::string> answers = inferred(flags);
    ASSERT_EQ(answers.size(), kPrompts.size());
    EXPECT_NE(answers, plain);
    EXPECT_EQ(answers, served_with(server.port(), wishes));
    for (const std::string& answer : answers) {
      if (flags[0] == "--guided_json") {
        const Body json = Body::parse(answer, nullptr, false);
        ASSERT_TRUE(json.is_object()) << answer;
        EXPECT_LE(json["who"].get<std::string>().size(), 8u);
        EXPECT_TRUE(json["age"] >= 1 && json["age"] <= 99) << answer;
      } else if (flags[0] == "--structured_outputs_regex") {
        EXPECT_TRUE(std::regex_match(answer, std::regex(flags[1]))) << answer;
      } else if (flags[0] == "--guided_choice") {
        EXPECT_GT(std::count(flags.begin() + 1, flags.end(), answer), 0) << answer;
      }
    }
  }
}

TEST_F(InferRules, AnAnswerDoesNotEndTooEarly) {
  // All of the bias goes to the token that ends answers.
  const std::vector<std::string> ends = {"--logit_bias", R"({"2": 100})"};
  EXPECT_THAT(inferred(ends), Each(std::string()));
  std::vector<std::string> later = ends;
  later.insert(later.end(), {"--min_new_tokens", "12"});
  for (const std::string& answer : inferred(later)) EXPECT_GT(answer.size(), 12u) << answer;
}

TEST_F(InferRules, TextsEndAnswersWhereverTheyAreWritten) {
  const auto cut = [](const std::string& whole, const std::string& word) {
    return whole.substr(0, whole.find(word));
  };
  const std::vector<std::string> whole = inferred({});
  std::vector<std::string> expected;
  for (const std::string& text : whole) expected.push_back(cut(text, " a"));
  EXPECT_NE(expected, whole);
  EXPECT_EQ(inferred({"--stop_words", " a"}), expected);
  std::ifstream rows(folder_ / "answers.jsonl");
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string row;
    std::getline(rows, row);
    EXPECT_EQ(Body::parse(row).at("finish_reason"), whole[i] == expected[i] ? "length" : "stop");
  }
  // Written while it is made, and made as a whole.
  for (const char* streams : {"true", "false"}) {
    const ProgramResult one =
        run_danlu({"infer", "--model", ruled_stories(), "--raw", "--prompt", kPrompts[0],
                   "--max_new_tokens", "40", "--stop_words", " a", "--stream", streams});
    EXPECT_EQ(one.out, expected[0] + "\n") << one.err;
    EXPECT_THAT(one.err, testing::Not(HasSubstr("stopped"))) << "it is complete";
  }
  // A server's is for requests that name none.
  const ServedProgram server({"--model", ruled_stories(), "--served_model_name", "stories",
                              "--template", "default", "--stop_words", " a"});
  EXPECT_EQ(served_with(server.port(), Body::object()), expected);
  for (size_t i = 0; i < whole.size(); ++i) expected[i] = cut(whole[i], "th");
  EXPECT_EQ(served_with(server.port(), {{"stop", "th"}}), expected);
}

TEST_F(InferRules, TextsEndTheTurnsOfAChat) {
  const auto talked = [&](const std::vector<std::string>& more) {
    ProgramSettings settings;
    settings.input = "Once upon a time\nThe dog\n";
    std::vector<std::string> words = {
        "chat", "--model", ruled_stories(), "--template", "default", "--max_new_tokens", "30"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = run_danlu(words, settings);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const std::string whole = talked({}), ended = talked({"--stop_words", "a"});
  EXPECT_THAT(whole, HasSubstr("a"));
  EXPECT_EQ(ended.substr(0, ended.find('\n')), whole.substr(0, whole.find('a')));
  EXPECT_EQ(ended.find('a'), ended.npos) << ended;
}

TEST_F(InferRules, EveryTurnOfAChatHasItsForm) {
  ProgramSettings settings;
  settings.input = "who?\nand who?\nsay it\n";
  const ProgramResult result =
      run_danlu({"chat", "--model", ruled_stories(), "--template", "default", "--guided_choice",
                 "nobody", "a cat", "--max_new_tokens", "20"},
                settings);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines(result.out);
  int answers = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    EXPECT_TRUE(line.ends_with("nobody") || line.ends_with("a cat")) << line;
    ++answers;
  }
  EXPECT_EQ(answers, 3) << result.out;
}

TEST_F(InferRules, WhatMakesNoSenseIsNamed) {
  const auto error = [&](const std::vector<std::string>& flags, int code = 2) {
    std::vector<std::string> words = {"infer", "--model",  ruled_stories(),
                                      "--raw", "--prompt", "Once"};
    words.insert(words.end(), flags.begin(), flags.end());
    const ProgramResult result = run_danlu(words);
    EXPECT_EQ(result.exit_code, code) << result.err;
    return result.err;
  };
  EXPECT_THAT(error({"--guided_regex", "a", "--guided_choice", "b"}), HasSubstr("one form"));
  EXPECT_THAT(error({"--guided_regex", "(?=a)"}), HasSubstr("byte 2"));
  EXPECT_THAT(error({"--guided_json", R"({"not": {}})"}), HasSubstr("keyword 'not'"));
  EXPECT_THAT(error({"--num_beams", "2", "--presence_penalty", "1"}),
              HasSubstr("--presence_penalty"));
  EXPECT_THAT(error({"--num_beams", "2", "--stop_words", "a"}), HasSubstr("--stop_words"));
  EXPECT_THAT(error({"--stop_words", ""}), HasSubstr("must not be empty"));
  EXPECT_THAT(error({"--presence_penalty", "3"}), HasSubstr("--presence_penalty"));
  EXPECT_THAT(error({"--logit_bias", R"({"a": 1})"}), HasSubstr("'a' is no token id"));
  EXPECT_THAT(error({"--logit_bias", R"({"3": 101})"}), HasSubstr("101"));
  EXPECT_THAT(error({"--logit_bias", R"({"99999": 1})"}, 3), HasSubstr("99999"));
}

}  // namespace
}  // namespace danlu::test
