// Lines of ms-swift, LLaMA-Factory and vLLM that ask a model: what their flags mean here, where an
// answer ends, and which model answers.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cli/bad_input.h"
#include "cli/served_program.h"
#include "support/raw_http.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using Body = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

RawResponse posted(const ServedProgram& server, const std::string& path, const Body& body) {
  RawClient client(server.port());
  client.send(raw_request("POST", path, body.dump()));
  return client.response();
}

Body answered(const ServedProgram& server, const std::string& path, const Body& body) {
  const RawResponse response = posted(server, path, body);
  EXPECT_EQ(response.status, 200) << response.body;
  return Body::parse(response.body, nullptr, /*allow_exceptions=*/false);
}

Body a_chat(const Body& more = Body::object()) {
  Body body = {{"messages", {{{"role", "user"}, {"content", "fox"}}}},
               {"max_tokens", 4},
               {"temperature", 0}};
  body.update(more);
  return body;
}

std::string line_with(const std::string& text, const std::string& word) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.find(word) != line.npos) return line;
  return "";
}

class OtherSystemsLines : public BadInput {
 protected:
  std::vector<std::string> asking(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {
        "infer",   "--model", good("model").string(), "--prompt", "fox",
        "--dtype", "fp32",    "--max_new_tokens",     "6"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

// --- a system message in a file ---

constexpr const char* kSystem = "the lazy dog jumps";

TEST_F(OtherSystemsLines, ASystemMessageMayStandInAFile) {
  write("prompt.txt", kSystem);
  const ProgramResult plain = ok(asking({})), typed = ok(asking({"--system", kSystem}));
  EXPECT_NE(line_with(plain.err, "prompt tokens"), line_with(typed.err, "prompt tokens"));
  for (const char* flag : {"--system", "--default_system"}) {
    const ProgramResult read = ok(asking({flag, "prompt.txt"}));
    EXPECT_EQ(read.out, typed.out);
    const std::string tokens = line_with(typed.err, "prompt tokens");
    EXPECT_EQ(line_with(read.err, "prompt tokens").substr(0, tokens.find("prompt tokens")),
              tokens.substr(0, tokens.find("prompt tokens")));
    EXPECT_THAT(read.err, HasSubstr("prompt.txt: the system message is the text of this file"));
  }
  expect_error(run(asking({"--system", "propmt.txt"})), 2, {"--system", "propmt.txt", "no such"});
  // As <(cat prompt.txt) gives it.
  ProgramSettings piped;
  piped.input = kSystem;
  const ProgramResult read = run_danlu(asking({"--system", "/dev/stdin"}), piped);
  EXPECT_EQ(read.exit_code, 0) << read.err;
  EXPECT_EQ(read.out, typed.out);
  // A text that only ends like a file's name is a text, and one that is longer than any path, too.
  ok(asking({"--system", "write into a.txt"}));
  EXPECT_THAT(run(asking({"--system", std::string(6000, 'a')})).err,
              Not(HasSubstr("no such file")));
}

TEST_F(OtherSystemsLines, AServersSystemMessageMayStandInAFile) {
  const fs::path file = write("prompt.txt", kSystem);
  const auto prompt_tokens = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--model", good("model").string()};
    words.insert(words.end(), more.begin(), more.end());
    const ServedProgram server(words, "deploy");
    return answered(server, "/v1/chat/completions", a_chat())
        .at("usage")
        .at("prompt_tokens")
        .get<int>();
  };
  const int typed = prompt_tokens({"--system", kSystem});
  EXPECT_EQ(prompt_tokens({"--system", file.string()}), typed);
  EXPECT_LT(prompt_tokens({}), typed);
}

// --- where an answer ends ---

/// The tokenizer's own end, which neither config.json nor generation_config.json names.
std::string unnamed_end(const fs::path& model) {
  EXPECT_FALSE(Body::parse(content_of(model / "config.json")).contains("eos_token_id"));
  EXPECT_FALSE(fs::exists(model / "generation_config.json"));
  const Body config = Body::parse(content_of(model / "tokenizer_config.json"));
  const Body tokenizer = Body::parse(content_of(model / "tokenizer.json"));
  for (const Body& token : tokenizer["added_tokens"])
    if (token["content"] == config["eos_token"]) return std::to_string(token["id"].get<int>());
  ADD_FAILURE() << "no end";
  return "0";
}

TEST_F(OtherSystemsLines, TheTokenizersOwnEndEndsAnswersWithoutATemplate) {
  const std::string end = unnamed_end(good("model"));
  const std::string bias = R"({")" + end + R"(": 100})";
  write("prompts.txt", "fox\n");
  const auto reason = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"infer",       "--model",      good("model").string(),
                                      "--dataset",   "prompts.txt",  "--max_new_tokens",
                                      "6",           "--output",     "answers.jsonl",
                                      "--overwrite", "--logit_bias", bias};
    words.insert(words.end(), more.begin(), more.end());
    ok(words);
    return Body::parse(content_of((*this) / "answers.jsonl"))["finish_reason"].get<std::string>();
  };
  EXPECT_EQ(reason({"--raw"}), "stop");
  EXPECT_EQ(reason({"--template", "default"}), "stop");
  EXPECT_EQ(reason({"--raw", "--guided_regex", "x*"}), "stop");

  ProgramSettings settings;
  settings.input = "fox\n";
  const ProgramResult chat = run_danlu({"chat", "--model", good("model").string(), "--template",
                                        "default", "--max_new_tokens", "6", "--logit_bias", bias},
                                       settings);
  EXPECT_EQ(chat.exit_code, 0) << chat.err;
  EXPECT_EQ(chat.out.find_first_not_of("\n "), std::string::npos) << chat.out;

  const ServedProgram server({"--model", good("model").string(), "--template", "default"});
  const Body wish = {{"prompt", "fox"}, {"max_tokens", 6}, {"logit_bias", {{end, 100}}}};
  const Body completed = answered(server, "/v1/completions", wish).at("choices").at(0);
  EXPECT_EQ(completed["finish_reason"], "stop");
  EXPECT_EQ(completed["text"], "");
  const Body said = answered(server, "/v1/chat/completions", a_chat({{"logit_bias", {{end, 100}}}}))
                        .at("choices")
                        .at(0);
  EXPECT_EQ(said["finish_reason"], "stop");
}

// --- weights in 4 and 8 bits ---

TEST_F(OtherSystemsLines, BitsOfOtherSystemsAreQuantize) {
  // Rows of 32 are what blocks divide; width 32 of the good model has them.
  const ProgramResult four = ok(asking({"--quantize", "nf4"}));
  const ProgramResult eight = ok(asking({"--quantize", "q8_0"}));
  const std::string in_four = line_with(four.err, "in blocks"),
                    in_eight = line_with(eight.err, "in blocks");
  ASSERT_NE(in_four, "");
  ASSERT_NE(in_eight, in_four);
  const std::vector<std::vector<std::string>> lines_of_four = {
      {"--quantization_bit", "4"},
      {"--load_in_4bit", "true"},
      {"--quantization", "bitsandbytes", "--load_format", "bitsandbytes"},
      {"--quant_bits", "4", "--quant_method", "bnb"},
      {"--quantization_bit", "4", "--quantization_method", "bitsandbytes", "--quantization_type",
       "nf4"},
      {"--quant_method", "bnb", "--quant_bits", "4", "--bnb_4bit_compute_dtype", "bfloat16"}};
  for (const std::vector<std::string>& line : lines_of_four) {
    const ProgramResult result = ok(asking(line));
    EXPECT_EQ(line_with(result.err, "in blocks"), in_four) << line[0];
    EXPECT_EQ(result.out, four.out);
  }
  for (const char* flag : {"--quantization_bit", "--quant_bits"}) {
    const ProgramResult result = ok(asking({flag, "8"}));
    EXPECT_EQ(line_with(result.err, "in blocks"), in_eight);
    EXPECT_THAT(result.err, HasSubstr("8 bits are Q8_0 here"));
  }
  const ProgramResult notices = ok(asking({"--load_in_8bit", "--quantize", "auto", "--use_unsloth",
                                           "--trust_remote_code", "--lora_rank", "8"}));
  EXPECT_EQ(line_with(notices.err, "in blocks"), in_eight);
  EXPECT_THAT(notices.err, HasSubstr("8 bits are Q8_0 here"));
  expect_error(run(asking({"--quantization", "gguf"})), 2, {"--quantization", "no GGUF file"});
  expect_error(run(asking({"--quantization", "gguf", "--quantize", "q4_0"})), 2,
               {"--quantization", "--quantize", "q4_0"});
  EXPECT_EQ(line_with(ok(asking({"--quantization_bit", "0"})).err, "in blocks"), "");
  EXPECT_THAT(ok(asking({"--quant_method", "bnb"})).err, HasSubstr("nothing asks for 4 bits"));
  expect_error(run(asking({"--load_in_4bit", "true", "--quantize", "q4_0"})), 2,
               {"--load_in_4bit", "nf4", "--quantize", "q4_0"});
  expect_error(run(asking({"--quant_method", "hqq"})), 2, {"--quant_method", "bnb"});
}

TEST_F(OtherSystemsLines, EveryVerbThatAsksAModelReadsTheBits) {
  const std::string model = good("model").string(), rows = good("good.jsonl").string();
  const std::vector<std::vector<std::string>> lines = {
      {"infer", "--prompt", "fox"},
      {"chat"},
      {"deploy", "--port", "0"},
      {"rollout", "--dataset", rows, "--reward_funcs", "format", "--output", "out.jsonl"}};
  for (std::vector<std::string> line : lines) {
    line.insert(line.end(), {"--model", model, "--quantization_bit", "3"});
    expect_error(run(line), 2, {"--quantization_bit", "4 bits (NF4)", "Q8_0"});
  }
}

// --- the name of the model ---

TEST_F(OtherSystemsLines, LlamaFactorysApiAnswersUnderAnyName) {
  const std::vector<std::string> words = {"--model_name_or_path", good("model").string()};
  const Body wish = a_chat({{"model", "gpt-3.5-turbo"}});
  ServedProgram api(words, "api");
  const Body own = answered(api, "/v1/chat/completions", a_chat());
  for (int i = 0; i < 2; ++i) {
    const Body answer = answered(api, "/v1/chat/completions", wish);
    EXPECT_EQ(answer.at("choices"), own.at("choices"));
    EXPECT_EQ(answer.at("model"), "gpt-3.5-turbo");
  }
  answered(api, "/v1/completions", {{"model", "x"}, {"prompt", "fox"}, {"max_tokens", 2}});
  answered(api, "/v1/embeddings", {{"model", "text-embedding-ada-002"}, {"input", "fox"}});
  answered(api, "/tokenize", {{"model", "y"}, {"prompt", "fox"}});
  api.send(SIGTERM);
  EXPECT_EQ(api.wait(), 0);
  const std::string log = api.log(), notice = "name a model that is not served";
  EXPECT_THAT(log, HasSubstr(notice));
  EXPECT_EQ(log.find(notice, log.find(notice) + 1), log.npos) << "once";

  const ServedProgram deployed(words, "deploy");
  EXPECT_EQ(posted(deployed, "/v1/chat/completions", wish).status, 404);
}

TEST_F(OtherSystemsLines, ApisDefaultIsNobodysFlag) {
  const std::string model = good("model").string();
  write("api.yaml", "model_name_or_path: " + model + "\nany_model_name: false\n");
  const std::vector<std::vector<std::string>> lines = {
      {"api", "--model", model, "--any_model_name", "false", "--print_config"},
      {"api", "api.yaml", "--print_config"}};
  for (const std::vector<std::string>& line : lines) {
    const ProgramResult told = ok(line);
    EXPECT_THAT(told.out, HasSubstr("\nany_model_name: false"));
    EXPECT_THAT(told.err, Not(HasSubstr("takes the place")));
  }
  EXPECT_THAT(line_with(ok({"api", "--model", model, "--print_config"}).out, "any_model_name"),
              HasSubstr("# any_model_name: true"));
  EXPECT_THAT(line_with(ok({"deploy", "--model", model, "--print_config"}).out, "any_model_name"),
              HasSubstr("# any_model_name: false"));
}

// --- how other systems draw where nothing is said ---

TEST_F(OtherSystemsLines, LlamaFactorysFilesHaveItsGeneratingArguments) {
  const std::string model = good("model").string();
  write("lf.yaml", "model_name_or_path: " + model + "\ntemplate: chatml\n");
  write("own.yaml",
        "model_name_or_path: " + model + "\ntemplate: chatml\ntemperature: 0.3\ntop_k: 7\n");
  for (const char* verb : {"api", "webchat", "chat"}) {
    const std::string told = ok({verb, "lf.yaml", "--print_config"}).out;
    EXPECT_THAT(line_with(told, "temperature:"), HasSubstr("0.95"));
    EXPECT_THAT(line_with(told, "temperature:"), HasSubstr("profile llamafactory"));
    EXPECT_THAT(line_with(told, "top_p:"), HasSubstr("0.7"));
    EXPECT_THAT(line_with(told, "top_k:"), HasSubstr("50"));
    EXPECT_THAT(line_with(told, "max_new_tokens:"), HasSubstr("1024"));
    EXPECT_THAT(line_with(told, "do_sample:"), HasSubstr("true"));
    const std::string own = ok({verb, "own.yaml", "--print_config"}).out;
    EXPECT_THAT(line_with(own, "temperature:"), HasSubstr("0.3"));
    EXPECT_THAT(line_with(own, "top_k:"), HasSubstr("7"));
  }
  const std::string plain = ok({"api", "--model", model, "--print_config"}).out;
  EXPECT_THAT(line_with(plain, "temperature:"), Not(HasSubstr("0.95")));
}

TEST_F(OtherSystemsLines, DeployIsGreedyWhereMsSwiftsIs) {
  const fs::path model = copy_model();
  const auto answers = [&](const ServedProgram& server) {
    std::set<std::string> all;
    for (int i = 0; i < 4; ++i) {
      Body body = a_chat({{"max_tokens", 12}, {"ignore_eos", true}});
      body.erase("temperature");
      all.insert(
          answered(server, "/v1/chat/completions", body).at("choices")[0].at("message").dump());
    }
    return all.size();
  };
  {
    const ServedProgram deployed({"--model", model.string()}, "deploy");
    EXPECT_EQ(answers(deployed), 1u);
    EXPECT_THAT(deployed.log(), HasSubstr("as ms-swift's deploy gives them"));
    const Body whole = answered(deployed, "/v1/completions",
                                {{"prompt", "fox"}, {"ignore_eos", true}, {"temperature", 0}});
    EXPECT_GT(whole.at("usage").at("completion_tokens").get<int>(), 16);
  }
  const ServedProgram drawing({"--model", model.string(), "--generation-config", "auto"}, "deploy");
  EXPECT_GT(answers(drawing), 1u);
}

// --- flags that would change answers ---

TEST_F(OtherSystemsLines, SettingsOfFormsThatAreNotHereAreRefused) {
  const std::string model = good("model").string();
  expect_error(run({"serve", "--model", model, "--structured-outputs-config",
                    R"({"disable_any_whitespace": true})"}),
               2, {"--structured-outputs-config", "disable_any_whitespace"});
  expect_error(run({"serve", "--model", model, "--guided-decoding-disable-any-whitespace"}), 2,
               {"--guided-decoding-disable-any-whitespace"});
  expect_error(
      run({"serve", "--model", model, "--tool_call_parser", "none", "--enable-auto-tool-choice"}),
      2, {"--enable-auto-tool-choice", "how this model writes calls is not known"});
}

// --- numbers of generation_config.json ---

TEST_F(OtherSystemsLines, GenerationConfigIsLeftOutWhereVllmsFlagSaysSo) {
  const fs::path model = copy_model();
  write("model/generation_config.json", R"({"max_new_tokens": 3})");
  const auto tokens = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"--model", model.string()};
    words.insert(words.end(), more.begin(), more.end());
    const ServedProgram server(words);
    Body body = a_chat({{"ignore_eos", true}});
    body.erase("max_tokens");
    return answered(server, "/v1/chat/completions", body)
        .at("usage")
        .at("completion_tokens")
        .get<int>();
  };
  EXPECT_EQ(tokens({}), 3);
  EXPECT_GT(tokens({"--generation-config", "vllm"}), 3) << "as long as the window";
}

TEST_F(OtherSystemsLines, ASamplesFileLiesInItsFolder) {
  ok({"rollout",
      "--model",
      good("model").string(),
      "--dataset",
      good("good.jsonl").string(),
      "--orm_model",
      "format",
      "--output_dir",
      "samples",
      "--output_file",
      "a.jsonl",
      "--num_return_sequences",
      "2",
      "--max_new_tokens",
      "2",
      "--max_samples",
      "1",
      "--sampler_engine",
      "vllm",
      "--sampler_type",
      "sample"});
  EXPECT_TRUE(fs::exists((*this) / "samples" / "a.jsonl"));
  for (const char* place : {"x/b.jsonl", "/tmp/b.jsonl"}) {
    expect_error(
        run({"rollout", "--model", good("model").string(), "--dataset", good("good.jsonl").string(),
             "--orm_model", "format", "--output_dir", "samples", "--output_file", place}),
        2, {"--output_dir", "--output_file", "say where the file goes"});
  }
}

}  // namespace
}  // namespace danlu::test
