// Answers to prompts with pictures against those that another implementation gave by whole passes,
// and against themselves without caches.
#include "infer/prompt_pictures.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "infer/generate.h"
#include "infer/likelihood.h"
#include "infer/tested_device.h"
#include "models/adapters.h"
#include "models/merge.h"
#include "models/tensor_io.h"
#include "models/weight_files.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"
#include "weights/convert/checkpoint_source.h"
#include "weights/lora/lora_source.h"
#include "weights/tensor_source.h"

namespace danlu::infer {
namespace {

namespace fs = std::filesystem;

class PicturesGolden : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    DANLU_REQUIRES_SHARED();
    const fs::path directory = test::shared_dir() / "golden/vl" / GetParam();
    model_ = models::load_model(directory, parallel::Mesh::single(), at::kFloat, tested_device());
    golden_ = weights::open_safetensors(directory / "golden.safetensors");
  }

  std::vector<int64_t> integers(const std::string& name) const {
    const at::Tensor tensor = models::read_tensor(*golden_, name).to(at::kLong).reshape({-1});
    return {tensor.data_ptr<int64_t>(), tensor.data_ptr<int64_t>() + tensor.numel()};
  }

  PromptPicture picture(const std::string& name, bool is_video) {
    PromptPicture result;
    const std::vector<int64_t> thw = integers(name + ".grid_thw");
    result.grid = {thw[0], thw[1], thw[2]};
    result.is_video = is_video;
    if (is_video) {
      result.second_per_grid = models::read_tensor(*golden_, "second_per_grid_ts")
                                   .to(at::kDouble)
                                   .reshape({-1})[0]
                                   .item<double>();
    }
    const at::Tensor pixels = models::read_tensor(*golden_, name + ".pixel_values").to(at::kFloat);
    result.pixels = [this, pixels] {
      ++num_made_;
      return pixels;
    };
    result.content = std::hash<std::string>()(name);
    return result;
  }

  /// A row of the file as a request, with its pictures where the ids have their placeholders.
  Request request(const std::string& name, int64_t row) {
    Request result;
    for (const int64_t id : integers(name + ".prompt_ids"))
      result.prompt.push_back(static_cast<text::TokenId>(id));
    result.max_new_tokens = std::ssize(integers(name + ".output_ids")) - std::ssize(result.prompt);
    std::vector<PromptPicture> images, videos;
    const std::vector<int64_t> rows = integers("image_row"), files = integers("image_file");
    for (size_t k = 0; k < rows.size(); ++k) {
      if (rows[k] == row) images.push_back(picture("image" + std::to_string(files[k]), false));
    }
    const std::vector<int64_t> video_rows = integers("video_row");
    for (size_t k = 0; k < video_rows.size(); ++k) {
      if (video_rows[k] == row) videos.push_back(picture("video" + std::to_string(k), true));
    }
    const arch::VisionConfig& vision = *model_->config().vision;
    size_t image = 0, video = 0;
    for (int64_t i = 0; i < std::ssize(result.prompt);) {
      const text::TokenId id = result.prompt[static_cast<size_t>(i)];
      const bool is_video = id == vision.video_token;
      if (!is_video && id != vision.image_token) {
        ++i;
        continue;
      }
      PromptPicture& next = is_video ? videos.at(video++) : images.at(image++);
      next.begin = i;
      i += next.grid.visual_tokens(vision.merge_size);
      result.pictures.push_back(next);
    }
    return result;
  }

  std::vector<Request> all_requests() {
    return {request("gen_image", 0), request("gen_video", 2), request("gen_text", 1)};
  }

  std::vector<text::TokenId> expected(const std::string& name) const {
    const std::vector<int64_t> all = integers(name + ".output_ids");
    return {all.begin() + std::ssize(integers(name + ".prompt_ids")), all.end()};
  }

  /// The same prompt with another picture of the same size in its first place.
  Request with_other_picture(Request request) {
    PromptPicture& first = request.pictures.front();
    const at::Tensor pixels = first.pixels();
    first.pixels = [this, pixels] {
      ++num_made_;
      return pixels.flip({0}) * -1;
    };
    first.content += 1;
    return request;
  }

  double score(const Request& request, const std::vector<text::TokenId>& answer) const {
    ScoredText text{request.prompt, std::ssize(request.prompt), false, request.pictures};
    text.ids.insert(text.ids.end(), answer.begin(), answer.end());
    double sum = 0;
    score_texts(*model_, {text}, {}, [&](size_t, const Likelihood& found) { sum = found.sum; });
    return sum;
  }

  std::unique_ptr<models::CausalLM> model_;
  std::shared_ptr<const weights::TensorSource> golden_;
  int num_made_ = 0;
};

constexpr const char* kCases[] = {"gen_image", "gen_video", "gen_text"};

TEST_P(PicturesGolden, GreedyIdsAreThoseOfTheFileAloneAndTogether) {
  const std::vector<Request> requests = all_requests();
  for (const int64_t batch_size : {1, 2, 3}) {
    const std::vector<Answer> answers = generate(*model_, requests, batch_size);
    for (size_t i = 0; i < answers.size(); ++i)
      EXPECT_EQ(answers[i].ids, expected(kCases[i])) << kCases[i] << ", batches of " << batch_size;
  }
}

TEST_P(PicturesGolden, AnotherPictureGivesAnotherAnswer) {
  const Request request = with_other_picture(this->request("gen_image", 0));
  EXPECT_NE(generate(*model_, {request}, 1)[0].ids, expected("gen_image"));
}

TEST_P(PicturesGolden, AConversationMakesEachPictureOnce) {
  const Request first = request("gen_image", 0);
  Request second = first;
  for (const text::TokenId id : expected("gen_image")) second.prompt.push_back(id);
  second.prompt.push_back(5);
  const std::vector<text::TokenId> alone = generate(*model_, {second}, 1)[0].ids;
  num_made_ = 0;
  Session session(*model_);
  EXPECT_EQ(session.answer(first).ids, expected("gen_image"));
  EXPECT_EQ(num_made_, std::ssize(first.pictures));
  EXPECT_EQ(session.answer(second).ids, alone);
  EXPECT_EQ(num_made_, std::ssize(first.pictures));
}

/// Placeholders are equal ids: the cache tells pictures apart by what they show.
TEST_P(PicturesGolden, AConversationDoesNotTakeOnePictureForAnother) {
  const Request one = request("gen_image", 0), other = with_other_picture(one);
  const std::vector<text::TokenId> of_other = generate(*model_, {other}, 1)[0].ids;
  Session session(*model_);
  EXPECT_EQ(session.answer(one).ids, expected("gen_image"));
  EXPECT_EQ(session.answer(other).ids, of_other);
  EXPECT_EQ(session.answer(one).ids, expected("gen_image"));
  EXPECT_EQ(session.answer(request("gen_video", 2)).ids, expected("gen_video"));
}

TEST_P(PicturesGolden, LikelihoodsShareAPictureAndNotItsLikeness) {
  const Request one = request("gen_image", 0), other = with_other_picture(one);
  std::vector<ScoredText> texts;
  for (const Request* request : {&one, &other, &one}) {
    ScoredText text{request->prompt, std::ssize(request->prompt), false, request->pictures};
    for (int64_t i = 0; i < 3; ++i)
      text.ids.push_back(static_cast<text::TokenId>(7 + i + std::ssize(texts)));
    texts.push_back(text);
  }
  const auto scores = [&](bool share, int64_t batch_size) {
    std::vector<double> sums(texts.size());
    num_made_ = 0;
    score_texts(*model_, texts, {.batch_size = batch_size, .share_prefixes = share},
                [&](size_t index, const Likelihood& found) { sums[index] = found.sum; });
    return sums;
  };
  const std::vector<double> alone = scores(false, 1);
  EXPECT_EQ(num_made_, 3 * std::ssize(one.pictures));
  const std::vector<double> shared = scores(true, 0);
  // Two prompts, and behind the first picture nothing is common.
  EXPECT_EQ(num_made_, 2 * std::ssize(one.pictures));
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_NEAR(shared[i], alone[i], 1e-4) << i;
  EXPECT_GT(std::abs(alone[0] - score(other, {7, 8, 9})), 1e-3);
}

TEST_P(PicturesGolden, BeamsSeeThePictures) {
  Request request = this->request("gen_image", 0);
  const double greedy = score(request, expected("gen_image"));
  request.sampling.num_beams = 3;
  const Answer found = beam_search(*model_, request);
  EXPECT_EQ(std::ssize(found.ids), request.max_new_tokens);
  EXPECT_GE(score(request, found.ids), greedy - 1e-4);
  request.max_new_tokens = 1;
  EXPECT_EQ(beam_search(*model_, request).ids.front(), expected("gen_image").front());
}

TEST_P(PicturesGolden, APictureThatCannotBeReadFailsItsRequestAlone) {
  std::vector<Request> requests = all_requests();
  requests[1].pictures.back().pixels = []() -> at::Tensor { throw DataError("broken.png: ends"); };
  std::vector<size_t> told;
  const std::vector<Answer> answers =
      generate(*model_, requests, 3, {}, nullptr, {},
               [&](size_t index, const Answer&) { told.push_back(index); });
  EXPECT_EQ(answers[0].ids, expected("gen_image"));
  EXPECT_EQ(answers[1].reason, FinishReason::kFailed);
  EXPECT_EQ(answers[1].problem, "broken.png: ends");
  EXPECT_EQ(answers[2].ids, expected("gen_text"));
  EXPECT_EQ(told.size(), 3u);
}

TEST_P(PicturesGolden, PlaceholdersWithoutTheirPictureAreRefused) {
  Request request = this->request("gen_image", 0);
  ++request.pictures.back().begin;
  EXPECT_THROW(generate(*model_, {request}, 1), DataError);
  request.pictures.pop_back();
  EXPECT_THROW(generate(*model_, {request}, 1), DataError);
}

TEST_P(PicturesGolden, AnAdapterAnswersMergedAsItDoesApart) {
  const fs::path directory = test::shared_dir() / "golden/vl" / GetParam();
  const test::TemporaryDirectory adapter;
  // The file's adapter is the decoder's; its names alone would mean the tower's MLPs too.
  Json config = read_json_file(directory / "lora/adapter_config.json");
  config["target_modules"] = ".*model\\.layers.*\\.(q|k|v|o|gate|up|down)_proj";
  write_json_file(adapter.path() / "adapter_config.json", config);
  fs::copy_file(directory / "lora/adapter_final.safetensors",
                adapter.path() / "adapter_model.safetensors");
  const weights::CheckpointSource base = weights::open_checkpoint_source(directory, {});
  const weights::AdapterSource adapters =
      weights::open_adapter_source(adapter.path(), base.config, {});
  const std::vector<Request> requests = all_requests();
  models::load_adapter(*model_, adapter.path());
  const std::vector<Answer> apart = generate(*model_, requests, 3);
  const auto merged =
      models::load_merged(weights::merge_adapters(base.model, adapters.tensors, adapters.peft,
                                                  base.config, DType::kF32),
                          parallel::Mesh::single(), at::kFloat, tested_device());
  const std::vector<Answer> together = generate(*merged, requests, 3);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(apart[i].ids, together[i].ids);
  EXPECT_NE(apart[0].ids, expected("gen_image")) << "the adapter does nothing";
}

/// Servers see pictures without end, and remember no more of them than is of use.
TEST_P(PicturesGolden, APictureThatWasForgottenGetsANameThatNoOtherHad) {
  PromptPicture one = picture("image0", /*is_video=*/false);
  one.begin = 0;
  const auto name_of = [&](PictureNames& names, uint64_t content) {
    one.content = content;
    const PromptPictures pictures(model_->config(), 1000, {one});
    return names.named(std::vector<text::TokenId>(1000, 5), &pictures).front();
  };
  PictureNames names(3);
  std::set<text::TokenId> given;
  for (uint64_t content = 0; content < 10; ++content) {
    EXPECT_TRUE(given.insert(name_of(names, content)).second) << content;
    EXPECT_LT(name_of(names, content), 0);
    EXPECT_TRUE(given.contains(name_of(names, content)));
  }
  EXPECT_TRUE(given.contains(name_of(names, 7)));  // asked for again, it stays
  EXPECT_TRUE(given.insert(name_of(names, 10)).second);
  EXPECT_TRUE(given.insert(name_of(names, 11)).second);
  EXPECT_TRUE(given.contains(name_of(names, 7)));
  EXPECT_TRUE(given.insert(name_of(names, 0)).second) << "it was forgotten";
}

INSTANTIATE_TEST_SUITE_P(Infer, PicturesGolden, testing::Values("qwen2_vl", "qwen2_5_vl"));

}  // namespace
}  // namespace danlu::infer
