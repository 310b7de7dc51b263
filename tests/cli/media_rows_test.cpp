// Rows with pictures on the command line: preprocess, render, inspect, convert-rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/bad_input.h"
#include "cli/own_folder.h"
#include "support/fake_hub.h"
#include "support/shared_data.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

/// A directory with the tokenizer and the picture processor of a model, and the golden rows beside.
class PictureRows : public OwnFolder {
 protected:
  void SetUp() override {
    DANLU_REQUIRES_SHARED();
    for (const auto& file : fs::directory_iterator(unpacked("tokenizers") / "qwen2_5"))
      fs::copy(file, model() / file.path().filename());
    fs::copy_file(shared_dir() / "golden/vl/qwen2_vl/preprocessor_config.json",
                  model() / "preprocessor_config.json");
  }
  fs::path model() const {
    fs::create_directories(folder_ / "model");
    return folder_ / "model";
  }
  /// In the folder of the rows.
  ProgramResult run(const std::vector<std::string>& words) const {
    return run_danlu(words, {.directory = golden()});
  }
  static fs::path golden() { return shared_dir() / "golden/vl/rows"; }
};

TEST_F(PictureRows, DataJsonSaysWhatPreprocessReads) {
  const ProgramResult result =
      run({"preprocess", "--mm-data", "data.json", "--model", model(), "--output-prefix",
           *this / "out/x", "--cache-dir", *this / "work"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("8 read, 8 kept"));
  EXPECT_THAT(result.out, HasSubstr("11 pictures, 0 videos in 7 samples"));
  EXPECT_THAT(result.out, HasSubstr("samples by visual tokens: ≤ 64: 7"));
  EXPECT_TRUE(fs::exists(*this / "out/x_packed_media_document.idx"));
  const ProgramResult shown =
      run({"inspect", *this / "out/x", "--sample", "0", "--model", model()});
  EXPECT_THAT(shown.out, HasSubstr("151652 [151655 * 9] 151653"));
  EXPECT_THAT(shown.out, HasSubstr("a.png: grid 1 x 6 x 6, 9 tokens at 15"));
  EXPECT_THAT(shown.out, HasSubstr("<|vision_start|>[<|image_pad|> * 9]<|vision_end|>"));
  const ProgramResult both =
      run({"preprocess", "--mm-data", "data.json", "--input", "mllm.json#2", "--model", model(),
           "--output-prefix", *this / "out/y", "--cache-dir", *this / "work"});
  EXPECT_THAT(both.out, HasSubstr("2 read, 2 kept")) << "a flag beside it wins";
}

TEST_F(PictureRows, BadOnesAreCountedAndStrictRefusesThem) {
  const std::vector<std::string> words{
      "preprocess", "--input", "bad_mllm.json",   "--model",       model(),
      "--template", "qwen2vl", "--output-prefix", *this / "out/x", "--max_dropped_ratio",
      "1"};
  const ProgramResult result = run(words);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("6 read, 3 kept, 3 dropped"))
      << "two questions in a row are one, and a picture without a tag stands first";
  EXPECT_THAT(result.out, HasSubstr("<image> and pictures differ in number"));
  EXPECT_THAT(result.out, HasSubstr("bad_mllm.json:2: 2 tags, 1 picture"));
  std::vector<std::string> strict = words;
  strict.push_back("--strict");
  EXPECT_EQ(run(strict).exit_code, 3);
}

TEST_F(PictureRows, RenderShowsGridsAndFoldedIds) {
  const fs::path rows = write("ask.json", R"({"images": ["media/a.png"], "messages": [
      {"role": "user", "content": "<image>\nWhat is in the picture?"},
      {"role": "assistant", "content": "A red bus."}]})");
  const ProgramResult result = run(
      {"render", "--model", model(), "--input", rows, "--template", "qwen2vl", "--exif", "ignore"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("151652, 151655 * 9, 151653"));
  EXPECT_THAT(result.out, HasSubstr("a.png: grid 1 x 6 x 6, 9 tokens at 15"));
  EXPECT_THAT(result.out, HasSubstr("[-100 * 37]A red bus.<|im_end|>\n"));
  EXPECT_THAT(result.out, HasSubstr("[TOKENS] 43, of which 6 are targets"));
  const fs::path parts = write("parts.json", R"([{"role": "user", "content": [
      {"type": "text", "text": "Who? "}, {"type": "image_url", "image_url": {"url": "media/c.webp"}}]}])");
  const auto json =
      nlohmann::json::parse(run({"render", "--model", model(), "--input", parts, "--template",
                                 "qwen2vl", "--json", "--add_vision_id"})
                                .out);
  EXPECT_THAT(json["text"].get<std::string>(),
              HasSubstr("Who? Picture 1: <|vision_start|><|image_pad|><|vision_end|><|im_end|>"));
  EXPECT_EQ(json["media"][0]["grid_thw"], nlohmann::json::array({1, 4, 8}));
  const fs::path literal =
      write("literal.json", R"([{"role": "user", "content": "<|image_pad|>"}])");
  EXPECT_THAT(run({"render", "--model", model(), "--input", literal}).err,
              HasSubstr("holds <|image_pad|>, which stands for a picture"));
}

TEST_F(PictureRows, InspectShowsARowAsTrainingSeesIt) {
  const ProgramResult result =
      run({"inspect", "llamafactory.json", "--model", model(), "--sample", "10"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[<|video_pad|> * 12]"));
  EXPECT_THAT(result.out, HasSubstr("[VIDEO 1] "));
  EXPECT_THAT(result.out, HasSubstr("and 3 more frames: grid 2 x 4 x 6, 12 tokens at 25, 1 s"));
  EXPECT_THAT(result.out, HasSubstr("[PICTURE 1] "));
}

TEST_F(PictureRows, FlagsOfPicturesAreSaidToBeIdleForTextModels) {
  fs::remove(model() / "preprocessor_config.json");
  const ProgramResult result =
      run({"preprocess", "--input", write("a.jsonl", "{\"query\": \"a\", \"response\": \"b\"}\n"),
           "--model", model(), "--output-prefix", *this / "out/x", "--max_pixels", "9999"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("--max_pixels: without effect, the model reads text alone"));
}

TEST_F(PictureRows, LlavaRowsAreConvertedOnce) {
  const fs::path out = *this / "mllm.json";
  const std::vector<std::string> words{"convert-rows", "llava", "--input",  "llava.json",
                                       "--image_dir",  "media", "--output", out};
  const ProgramResult result = run(words);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("6 read, 6 kept"));
  EXPECT_EQ(nlohmann::json::parse(content_of(out))[0]["images"][0], "media/a.png");
  const ProgramResult again = run(words);
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("mllm.json"));
  EXPECT_THAT(run({"preprocess", "--input", out, "--model", model(), "--output-prefix",
                   *this / "out/x", "--template", "qwen2vl"})
                  .out,
              HasSubstr("6 read, 6 kept"));
}

TEST_F(PictureRows, PicturesOnTheWebComeFromTheHostsThatAreAllowed) {
  FakeHub hub;
  hub.rule = [&](const HubRequest& request) {
    if (request.path == "/a.png") return HubAnswer{.body = content_of(golden() / "media/a.png")};
    if (request.path == "/moved.png")
      return HubAnswer{.status = 302, .headers = {{"Location", hub.url("localhost") + "/a.png"}}};
    return HubAnswer{.status = 404};
  };
  std::string rows;
  for (const std::string& url :
       {hub.url() + "/a.png", hub.url() + "/gone.png", hub.url() + "/moved.png",
        hub.url("localhost") + "/a.png", (golden() / "media/b.jpg").string()})
    rows += nlohmann::json{{"images", {url}},
                           {"messages",
                            {{{"role", "user"}, {"content", "<image>What is it?"}},
                             {{"role", "assistant"}, {"content", "A bus."}}}}}
                .dump() +
            "\n";
  const fs::path file = write("web.jsonl", rows);
  const auto preprocess = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> words{"preprocess", "--input",
                                   file,         "--model",
                                   model(),      "--output-prefix",
                                   *this / name, "--template",
                                   "qwen2vl",    "--max_dropped_ratio",
                                   "1"};
    words.insert(words.end(), more.begin(), more.end());
    return run_danlu(
        words, {.environment = {{"no_proxy", "127.0.0.1,localhost"}}, .directory = folder_.path()});
  };
  const ProgramResult none = preprocess("out/none", {});
  EXPECT_THAT(none.out, HasSubstr("5 read, 1 kept, 4 dropped"));
  EXPECT_THAT(none.out, HasSubstr("4 rows: a picture on the web: --allow_media_domains says"));
  EXPECT_TRUE(hub.requests().empty()) << "nothing is fetched unasked";
  const ProgramResult some = preprocess("out/some", {"--allow_media_domains", "127.0.0.1"});
  EXPECT_EQ(some.exit_code, 0) << some.err;
  EXPECT_THAT(some.out, HasSubstr("5 read, 2 kept, 3 dropped"));
  EXPECT_THAT(some.out, HasSubstr("1 row: a picture on the web that cannot be fetched"));
  EXPECT_THAT(some.out, HasSubstr("gone.png: status 404"));
  EXPECT_THAT(some.out, HasSubstr("2 rows: a picture on the web: --allow_media_domains says"));
  EXPECT_THAT(some.out, HasSubstr("moved.png: localhost is not among --allow_media_domains"));
  for (const HubRequest& request : hub.requests())
    EXPECT_THAT(request.header("host"), HasSubstr("127.0.0.1"));
  const ProgramResult strict =
      preprocess("out/strict", {"--allow_media_domains", "127.0.0.1", "--strict"});
  EXPECT_EQ(strict.exit_code, 3);
  EXPECT_THAT(strict.err, HasSubstr("web.jsonl:2"));
}

}  // namespace
}  // namespace danlu::test
