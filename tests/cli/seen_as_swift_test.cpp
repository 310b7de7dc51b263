// Lines and rows of ms-swift for models that see, as `danlu render` and trainings read them: the
// environment, grounding, tools, and what is said where something has no effect.
#include <gmock/gmock.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/bad_input.h"
#include "cli/own_folder.h"
#include "cli/seeing_model.h"

namespace danlu::test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class SeenAsSwift : public OwnFolder {
 protected:
  void SetUp() override {
    DANLU_REQUIRES_SHARED();
    seeing_ = make_seeing_model(*this / "");
  }
  static std::string media(const std::string& name) {
    return (shared_dir() / "golden/vl" / name).string();
  }
  /// A question with this before it, and its answer.
  static json row(const std::string& before, json columns, const std::string& answer = "dog") {
    columns["messages"] = {{{"role", "user"}, {"content", before + "the fox?"}},
                           {{"role", "assistant"}, {"content", answer}}};
    return columns;
  }
  ProgramResult rendered(const json& given, const std::map<std::string, std::string>& environment,
                         const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"render", "--model", seeing_.model, "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return run_danlu(
        words,
        {.environment = environment, .input = given.dump(), .directory = folder_.path().string()});
  }
  json grid(const json& given, const std::map<std::string, std::string>& environment,
            const std::vector<std::string>& more = {}) const {
    const ProgramResult result = rendered(given, environment, more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out).at("media").at(0).at("grid_thw");
  }

  SeeingModel seeing_;
};

// clip.mp4 has 64 x 48 pixels. 105369 is max(50176, 100352 * 1.05): 64 x 48 grow to 392 x 280.
TEST_F(SeenAsSwift, TheEnvironmentOfVideosIsHeard) {
  const json clip = row("<video>", {{"videos", {media("video/clip.mp4")}}});
  EXPECT_EQ(grid(clip, {}), (json{2, 20, 28}));
  EXPECT_EQ(grid(clip, {{"VIDEO_MAX_PIXELS", "50176"}}), (json{2, 20, 28}));
  EXPECT_THAT(rendered(clip, {{"VIDEO_MAX_PIXELS", "50176"}}).err,
              HasSubstr("frames of videos have 100352 to 105369 pixels, not 50176"));
  EXPECT_EQ(grid(clip, {{"VIDEO_MIN_TOKEN_NUM", "4"}}), (json{2, 4, 4}));
  EXPECT_EQ(grid(clip, {{"VIDEO_MIN_PIXELS", "3136"}}), (json{2, 4, 4}));
  // 1 frame a second of 2 s: 4 frames at least, unless fewer are asked for.
  EXPECT_EQ(grid(clip, {{"FPS", "1"}}).at(0), 2);
  EXPECT_EQ(grid(clip, {{"FPS", "1"}, {"FPS_MIN_FRAMES", "2"}}).at(0), 1);
  for (const char* name : {"IMAGE_FACTOR", "FRAME_FACTOR", "MAX_RATIO"})
    EXPECT_THAT(rendered(clip, {{name, "56"}}).err,
                HasSubstr(std::string(name) + "=56 has no effect"));
  EXPECT_THAT(rendered(clip, {{"VIDEO_MAX_PIXELS", "50176"}}, {"--pre_resize", "llamafactory"}).err,
              HasSubstr("VIDEO_MAX_PIXELS has no effect"));
}

TEST_F(SeenAsSwift, TokensLimitPictures) {
  const json picture = row("<image>", {{"images", {media("rows/media/b.jpg")}}});
  const auto tokens = [&](const std::map<std::string, std::string>& environment,
                          const std::vector<std::string>& more = {}) {
    const json grid = this->grid(picture, environment, more);
    return grid.at(1).get<int>() * grid.at(2).get<int>() / 4;
  };
  EXPECT_GT(tokens({}), 4);
  EXPECT_LE(tokens({{"IMAGE_MIN_TOKEN_NUM", "1"}, {"IMAGE_MAX_TOKEN_NUM", "4"}}), 4);
  // What is typed outweighs the environment.
  EXPECT_EQ(tokens({{"IMAGE_MAX_TOKEN_NUM", "4"}}, {"--max_pixels", "1000000"}), tokens({}));
}

TEST_F(SeenAsSwift, ListsOfFramesFollowTheLimitsOfFrames) {
  json frames = json::array();
  for (int i = 0; i < 4; ++i)
    frames.push_back(media("rows/media/v0_" + std::to_string(i) + ".png"));
  const json list = row("<video>", {{"videos", json::array({frames})}});
  const json usual = grid(list, {});
  const json as_video = grid(list, {}, {"--pre_resize", "qwen_vl_utils"});
  EXPECT_EQ(as_video.at(0), usual.at(0));
  EXPECT_GE(as_video.at(1).get<int>() * as_video.at(2).get<int>() * 196, 100352);
  EXPECT_EQ(grid(list, {{"VIDEO_MIN_TOKEN_NUM", "128"}}), as_video);
}

// Qwen2.5-VL's boxes lie in what the model sees of it.
TEST_F(SeenAsSwift, ObjectsAreWrittenIntoTheText) {
  json given =
      row("<image>Where is <ref-object>, ", {{"images", {media("rows/media/a.png")}}}, "<bbox>");
  given["objects"] = {
      {"ref", {"a fox"}}, {"bbox", {{0.25, 0.5, 1.0, 1.0}}}, {"bbox_type", "norm1"}};
  const ProgramResult plain = rendered(given, {});
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  const json grid = json::parse(plain.out).at("media").at(0).at("grid_thw");
  const int height = grid.at(1).get<int>() * 14, width = grid.at(2).get<int>() * 14;
  const std::string box = "(" + std::to_string(width / 4) + "," + std::to_string(height / 2) +
                          "),(" + std::to_string(width) + "," + std::to_string(height) + ")";
  EXPECT_THAT(
      json::parse(plain.out).at("text").get<std::string>(),
      testing::AllOf(HasSubstr("Where is <|object_ref_start|>a fox<|object_ref_end|>, the fox?"),
                     HasSubstr("<|box_start|>" + box + "<|box_end|>"), Not(HasSubstr("<bbox>"))));
  EXPECT_THAT(
      rendered(given, {{"QWENVL_BBOX_FORMAT", "new"}}, {"--norm_bbox", "norm1000"}).out,
      testing::AllOf(HasSubstr("Where is a fox, the fox?"), HasSubstr("[250, 500, 1000, 1000]")));
  write("rows.jsonl", given.dump() + "\n");
  const ProgramResult trained =
      run({"sft", "--model", seeing_.model, "--dataset", "rows.jsonl", "--output_dir", "out",
           "--max_steps", "1", "--val_ratio", "0", "--device", "cpu", "--max_length", "400",
           "--plot_loss", "false"});
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.err, testing::AllOf(HasSubstr("<|box_start|>" + box + "<|box_end|>"),
                                          Not(HasSubstr("<bbox>")), Not(HasSubstr("not read"))));
}

// The seeing model's template writes contents alone, as the hub's of Qwen2.5-VL does.
TEST_F(SeenAsSwift, ToolCallsAreLearntByTheTemplateThatWritesThem) {
  const json call = {{"name", "look"}, {"arguments", {{"x", 1}}}};
  const json given = {{"messages",
                       {{{"role", "user"}, {"content", "the fox?"}},
                        {{"role", "tool_call"}, {"content", call.dump()}},
                        {{"role", "tool_response"}, {"content", "dog"}},
                        {{"role", "assistant"}, {"content", "dog"}}}}};
  write("rows.jsonl", given.dump() + "\n" + given.dump() + "\n");
  const auto train = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> words = {
        "sft", "--model",      seeing_.model, "--dataset",   "rows.jsonl", "--output_dir",
        name,  "--max_steps",  "1",           "--val_ratio", "0",          "--device",
        "cpu", "--max_length", "400",         "--plot_loss", "false",      "--no-version-dir"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const ProgramResult dropped = train("dropped", {});
  EXPECT_NE(dropped.exit_code, 0);
  EXPECT_THAT(dropped.err, HasSubstr("does not write tool calls"));
  const ProgramResult hermes = train("hermes", {"--agent_template", "hermes"});
  EXPECT_EQ(hermes.exit_code, 0) << hermes.err;
  EXPECT_THAT(hermes.err,
              testing::AllOf(HasSubstr("template: qwen2_vl"), HasSubstr("<tool_call>")));
  const json args = json::parse(content_of(*this / "hermes/args.json"));
  EXPECT_EQ(args.at("template"), "qwen2_vl");
}

TEST_F(SeenAsSwift, NoBlocksAreMadeOfTheTower) {
  json config = json::parse(content_of(*this / "seeing/config.json"));
  config["hidden_size"] = 40;  // no matrix of the decoder can be in blocks of 32
  config["intermediate_size"] = 72;
  config["rope_scaling"]["mrope_section"] = {1, 2, 2};
  config["vision_config"]["hidden_size"] = 32;
  config["vision_config"]["intermediate_size"] = 64;
  config["vision_config"]["out_hidden_size"] = 40;
  write("wide.json", config.dump());
  ok({"init", "--config", "wide.json", "--tokenizer", "seeing-tokenizer", "--output", "wide"});
  std::filesystem::copy_file(*this / "seeing/preprocessor_config.json",
                             *this / "wide/preprocessor_config.json");
  const ProgramResult answered = run({"infer", "--model", "wide", "--prompt", "the", "--quantize",
                                      "q4_0", "--max_new_tokens", "2", "--device", "cpu"});
  EXPECT_EQ(answered.exit_code, 0) << answered.err;
  EXPECT_THAT(answered.err, testing::AllOf(HasSubstr("nothing is quantised"),
                                           Not(HasSubstr("of them in blocks"))));
}

}  // namespace
}  // namespace danlu::test
