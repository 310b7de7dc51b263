// A model that was trained with a system message or without thoughts is asked so, unless the line
// says otherwise.
#include <nlohmann/json.hpp>

#include "cli/served_program.h"
#include "cli/trained_adapter.h"
#include "support/raw_http.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using Body = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kSystem = "the lazy dog jumps\nover\tall";
constexpr const char* kNotice = "notice: prompts as in training (";
const std::string kAsksForThoughts =
    "{% for message in messages %}{{ message.content }}{% endfor %}"
    "{% if enable_thinking is defined and not enable_thinking %}!!!{% endif %}";

class TrainedPrompts : public TrainedAdapter {
 protected:
  std::string tokens(const std::vector<std::string>& more, std::string* err = nullptr) const {
    std::vector<std::string> words = {"infer", "--prompt", "fox", "--max_new_tokens", "1"};
    words.insert(words.end(), more.begin(), more.end());
    const ProgramResult result = ok(words);
    if (err) *err = result.err;
    return prompt_tokens(result);
  }
  /// Tokens of the prompt of a chat with `model`.
  static int served_tokens(const ServedProgram& server, const std::string& model,
                           const Body& more = Body::object()) {
    Body body = {{"model", model},
                 {"messages", {{{"role", "user"}, {"content", "fox"}}}},
                 {"max_tokens", 1}};
    body.update(more);
    RawClient client(server.port());
    client.send(raw_request("POST", "/v1/chat/completions", body.dump()));
    const RawResponse response = client.response();
    EXPECT_EQ(response.status, 200) << response.body;
    const int used = Body::parse(response.body)["usage"]["prompt_tokens"];
    body["max_tokens"] = nullptr;
    RawClient again(server.port());
    again.send(raw_request("POST", "/tokenize", body.dump()));
    EXPECT_EQ(Body::parse(again.response().body)["count"], used);
    return used;
  }
};

TEST_F(TrainedPrompts, ARunIsAskedWithItsSystemMessage) {
  const fs::path file = write("words.txt", kSystem);
  const std::string run_dir =
      train_adapter({"--system", file.string(), "--max_steps", "1", "--save_steps", "1"}).string();
  fs::remove(file);  // what it said is kept
  for (const char* place : {"args.json", "last/args.json"})
    EXPECT_EQ(Body::parse(content_of(fs::path(run_dir) / place))["system"], kSystem);
  const std::string model = good("model").string(), last = run_dir + "/last";
  const std::string plain = tokens({"--model", model});
  const std::string with = tokens({"--model", model, "--system", kSystem});
  ASSERT_NE(plain, with);
  std::string err;
  for (const std::vector<std::string>& asked :
       {std::vector<std::string>{"--model", last}, {"--model", model, "--adapters", last}}) {
    EXPECT_EQ(tokens(asked, &err), with);
    EXPECT_THAT(err, HasSubstr(kNotice + last + "/args.json): --system \"the lazy dog jumps…\";"));
    std::vector<std::string> none = asked;
    none.insert(none.end(), {"--system", ""});
    EXPECT_EQ(tokens(none, &err), plain);
    EXPECT_THAT(err, Not(HasSubstr(kNotice)));
    none.back() = "the";
    EXPECT_EQ(tokens(none, &err), tokens({"--model", model, "--system", "the"}));
  }
  tokens({"--model", last, "--raw"}, &err);
  EXPECT_THAT(err, Not(HasSubstr(kNotice)));
  ProgramSettings typed;
  typed.input = "fox\n";
  const ProgramResult chat = run_danlu({"chat", "--model", last, "--max_new_tokens", "1"}, typed);
  EXPECT_THAT(chat.err, HasSubstr(kNotice + last));
  // Merged, it says so itself.
  ok({"merge", "--model", model, "--adapters", last, "--output", "merged"});
  EXPECT_EQ(tokens({"--model", "merged"}), with);
}

// ms-swift 3's --model_type is a family's name; what was trained says where its base is.
TEST_F(TrainedPrompts, AFamilysNameBesideACheckpointNamesNoWeights) {
  const std::string last = train_adapter().string() + "/last";
  const std::string with = ok({"infer", "--model", good("model").string(), "--adapters", last,
                               "--prompt", "fox", "--max_new_tokens", "6"})
                               .out;
  for (const char* flag : {"--ckpt_dir", "--adapters"}) {
    EXPECT_EQ(ok({"infer", "--model_type", "qwen2_5", flag, last, "--prompt", "fox",
                  "--max_new_tokens", "6"})
                  .out,
              with);
  }
  ok({"infer", "--model_type", "qwen2_5", "--ckpt_dir", good("model").string(), "--prompt", "fox",
      "--max_new_tokens", "1"});
  expect_error(run({"infer", "--model_type", "qwen2_5", "--prompt", "fox"}), 4, {"qwen2_5"});
}

TEST_F(TrainedPrompts, ARecordIsATextAndNeverAFile) {
  const fs::path model = copy_model("base"), secret = write("secret.txt", kSystem);
  const std::string plain = tokens({"--model", model.string()});
  write("base/args.json", Body{{"system", secret.string()}}.dump());
  std::string err;
  EXPECT_EQ(tokens({"--model", model.string()}, &err), plain);
  EXPECT_THAT(err, HasSubstr("the run took its system message from " + secret.string()));
  for (const Body& none : {Body(nullptr), Body(""), Body(7)}) {
    write("base/args.json", Body{{"system", none}}.dump());
    EXPECT_EQ(tokens({"--model", model.string()}, &err), plain);
    EXPECT_THAT(err, Not(HasSubstr(kNotice)));
  }
}

TEST_F(TrainedPrompts, ThoughtsAreLeftOutAsTheyWere) {
  const fs::path model = copy_model("base");
  fs::remove(model / "chat_template.jinja");
  write("base/asks.jinja", kAsksForThoughts);
  const auto record = [&](const Body& json) { write("base/args.json", json.dump()); };
  record({{"template", "asks.jinja"}});
  const std::string plain = tokens({"--model", model.string()});
  record({{"template", "asks.jinja"}, {"enable_thinking", false}});
  std::string err;
  const std::string with = tokens({"--model", model.string()}, &err);
  EXPECT_NE(with, plain);
  EXPECT_THAT(err, HasSubstr("args.json): --enable_thinking false;"));
  EXPECT_EQ(tokens({"--model", model.string(), "--enable_thinking", "true"}, &err), plain);
  EXPECT_THAT(err, Not(HasSubstr(kNotice)));
  EXPECT_EQ(
      tokens({"--model", model.string(), "--chat_template_kwargs", R"({"enable_thinking": true})"}),
      plain);
  // Training passes over it where a named template knows no thoughts.
  record({{"template", "default"}, {"enable_thinking", false}});
  tokens({"--model", model.string()}, &err);
  EXPECT_THAT(err, Not(HasSubstr(kNotice)));
}

TEST_F(TrainedPrompts, EachServedNameHasItsOwn) {
  const fs::path base = copy_model("base");
  fs::remove(base / "chat_template.jinja");
  write("asks.jinja", kAsksForThoughts);
  fs::rename(train_adapter(), *this / "law");
  fs::copy(*this / "law", *this / "poems", fs::copy_options::recursive);
  write("base/args.json", Body{{"system", "the"}}.dump());
  write("law/last/args.json", Body{{"system", kSystem}}.dump());
  write("poems/last/args.json", Body{{"enable_thinking", false}}.dump());
  std::vector<std::string> words = {"--model",
                                    base.string(),
                                    "--lora-modules",
                                    "law=" + (*this / "law/last").string(),
                                    "poems=" + (*this / "poems/last").string(),
                                    "--template",
                                    (*this / "asks.jinja").string(),
                                    "--served_model_name",
                                    "base"};
  const Body thinks = {{"chat_template_kwargs", {{"enable_thinking", true}}}};
  {
    const ServedProgram server(words);
    EXPECT_THAT(server.log(), HasSubstr("--system \"the\""));
    EXPECT_THAT(server.log(), HasSubstr("--system \"the lazy dog jumps…\""));
    const int of_base = served_tokens(server, "base"), of_law = served_tokens(server, "law"),
              of_poems = served_tokens(server, "poems");
    EXPECT_GT(of_law, of_base);
    EXPECT_EQ(served_tokens(server, "base", thinks), of_base);
    EXPECT_LT(served_tokens(server, "poems", thinks), of_poems);
  }
  words.insert(words.end(), {"--system", ""});
  const ServedProgram server(words);
  EXPECT_EQ(served_tokens(server, "law"), served_tokens(server, "base"));
  EXPECT_EQ(served_tokens(server, "poems", thinks), served_tokens(server, "base"));
  EXPECT_THAT(server.log(), Not(HasSubstr("--system \"")));
}

}  // namespace
}  // namespace danlu::test
