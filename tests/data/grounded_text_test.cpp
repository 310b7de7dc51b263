// Objects that rows name beside their text: the texts that ms-swift's page on data sets has for its
// examples (Customization/Custom-dataset.md, "Grounding"), and numbers worked out by hand.
#include "data/grounded_text.h"

#include <gtest/gtest.h>

#include "data/formats/row_format.h"
#include "preprocess_fakes.h"

namespace danlu::data {
namespace {

MediaSpan picture(media::Size shown, media::Size seen = {}) {
  MediaSpan span;
  span.shown = shown;
  span.grid = {1, seen.height / 14, seen.width / 14};
  return span;
}

RowResult read(const std::string& row) {
  FormatOptions options;
  options.reads_media = true;
  const Json json = parse_json(row, "test");
  return make_row_handler(options, {json}, false)->read(json);
}

/// "user text|assistant text" of a row; or the problem.
std::string written(const std::string& row, const std::vector<MediaSpan>& spans,
                    const BoxStyle& style = {}) {
  RowResult result = read(row);
  RowProblem problem;
  const auto told = [](const RowProblem& what) { return what.reason + " (" + what.detail + ")"; };
  if (const auto* found = std::get_if<RowProblem>(&result)) return told(*found);
  auto conversation = std::get<text::Conversation>(std::get<Row>(std::move(result)));
  if (!write_objects(&conversation, spans, style, 14, &problem)) return told(problem);
  std::string all;
  for (const text::Message& message : conversation.messages) {
    std::string content = message.content;
    for (auto place = message.media.rbegin(); place != message.media.rend(); ++place)
      content.insert(place->offset, "{}");
    all += (all.empty() ? "" : "|") + content;
  }
  return all;
}

std::string row(const std::string& question, const std::string& answer, const std::string& objects,
                const std::string& images = R"(["x.png"])") {
  return R"({"messages":[{"role":"user","content":")" + question +
         R"("},{"role":"assistant","content":")" + answer + R"("}],"images":)" + images +
         R"(,"objects":)" + objects + "}";
}

TEST(GroundedText, IsThatOfMsSwiftsExamples) {
  EXPECT_EQ(written(row("<image>Describe the image.",
                        "<ref-object><bbox> and <ref-object><bbox> are playing on the beach",
                        R"({"ref":["a dog","a woman"],"bbox":[[331.5,761.4,853.5,1594.8],)"
                        R"([676.5,685.8,1099.5,1427.4]]})"),
                    {picture({1500, 1800})}),
            "{}Describe the image.|<|object_ref_start|>a dog<|object_ref_end|><|box_start|>"
            "(221,423),(569,886)<|box_end|> and <|object_ref_start|>a woman<|object_ref_end|>"
            "<|box_start|>(451,381),(733,793)<|box_end|> are playing on the beach");
  EXPECT_EQ(written(row("<image>Find the <ref-object> in the image", "<bbox><bbox>",
                        R"({"ref":["sheep"],"bbox":[[90.9,160.8,135,212.8],)"
                        R"([360.9,480.8,495,532.8]]})"),
                    {picture({900, 800})}),
            "{}Find the <|object_ref_start|>sheep<|object_ref_end|> in the image|<|box_start|>"
            "(101,201),(150,266)<|box_end|><|box_start|>(401,601),(550,666)<|box_end|>");
  EXPECT_EQ(written(row("<image>Help me open Google Chrome", "Action: click(start_box='<bbox>')",
                        R"({"ref":[],"bbox":[[615,226]]})"),
                    {picture({2500, 2000})}),
            "{}Help me open Google Chrome|Action: click(start_box='<|box_start|>(246,113)"
            "<|box_end|>')");
}

// Qwen2.5-VL: of the pixels after the resize. 331.5 / 1500 * 1512 = 334.152, 761.4 / 1800 * 1820 =
// 769.86, 853.5 / 1500 * 1512 = 860.328, 1594.8 / 1800 * 1820 = 1612.52.
TEST(GroundedText, OfQwen25CountsPixelsOfTheResizedPicture) {
  const std::string one =
      row("<image>q", "<ref-object><bbox>",
          R"({"ref":["a dog"],"bbox":[[853.5,1594.8,331.5,761.4]]})");  // corners in any order
  EXPECT_EQ(written(one, {picture({1500, 1800}, {1512, 1820})}, {.of_seen_pixels = true}),
            "{}q|<|object_ref_start|>a dog<|object_ref_end|><|box_start|>(334,770),(860,1613)"
            "<|box_end|>");
  // QWENVL_BBOX_FORMAT=new
  EXPECT_EQ(written(one, {picture({1500, 1800}, {1512, 1820})},
                    {.of_seen_pixels = true, .is_list = true}),
            "{}q|a dog[334, 770, 860, 1613]");
}

// 0.0125 * 1000 and 0.0135 * 1000 are halves: to the even number, as Python rounds.
TEST(GroundedText, SharesOfSidesAreTimesTheWhole) {
  const std::string one =
      row("<image>q", "<bbox>", R"({"bbox":[[0.0125,0.0135,0.25,0.5]],"bbox_type":"norm1"})");
  EXPECT_EQ(written(one, {picture({1500, 1800})}), "{}q|<|box_start|>(12,14),(250,500)<|box_end|>");
  EXPECT_EQ(written(one, {picture({1500, 1800}, {1512, 1820})}, {.of_seen_pixels = true}),
            "{}q|<|box_start|>(19,25),(378,910)<|box_end|>");
}

TEST(GroundedText, EveryBoxHasItsPicture) {
  EXPECT_EQ(
      written(row("<bbox><image>, <bbox><image>?", "<bbox>",
                  R"({"bbox":[[10,20],[10,20],[10,20]],"image_id":[0,1]})", R"(["x.png","y.png"])"),
              {picture({100, 100}), picture({200, 400})}),
      "<|box_start|>(100,200)<|box_end|>{}, <|box_start|>(50,50)<|box_end|>{}?|"
      "<|box_start|>(100,200)<|box_end|>");
}

TEST(GroundedText, MayBeJsonAsText) {
  EXPECT_EQ(written(row("<image>q", "<ref-object>", R"("{\"ref\":[\"a\"],\"bbox\":[]}")"),
                    {picture({10, 10})}),
            "{}q|<|object_ref_start|>a<|object_ref_end|>");
}

TEST(GroundedText, WhatDoesNotGoTogetherIsDropped) {
  const std::vector<MediaSpan> one{picture({100, 100})};
  EXPECT_EQ(written(row("<image>q", "<bbox><bbox>", R"({"bbox":[[1,2]]})"), one),
            "<bbox> and boxes differ in number (2 and 1)");
  EXPECT_EQ(written(row("<image>q", "<ref-object>", R"({"bbox":[[1,2]]})"), one),
            "<ref-object> and the names of objects differ in number (1 and 0)");
  EXPECT_EQ(written(row("<image>q", "<bbox>", R"({"bbox":[[1,2]],"image_id":[1]})"), one),
            "a box in a picture that is not there (picture 1 of 1)");
  EXPECT_EQ(written(row("<image>q", "<bbox>", R"({"bbox":[[1,2,3]]})"), one),
            "objects in no known form (a box is two or four numbers)");
  EXPECT_EQ(written(row("<image>q", "<bbox>", R"({"bbox":[[1,2]],"bbox_type":"norm100"})"), one),
            R"(objects in no known form ("bbox_type" is "real" or "norm1"))");
  EXPECT_EQ(written(row("<image>q", "<bbox>", R"([1])"), one),
            "column \"objects\" is not an object (got a list)");
}

// Who reads `objects` for something else, or has no use for the tags, has them as they are.
TEST(GroundedText, WithoutTagsOrObjectsStaysAsItIs) {
  const std::vector<MediaSpan> one{picture({100, 100})};
  EXPECT_EQ(written(row("<image>q", "a", R"(["tree","house"])"), one), "{}q|a");
  EXPECT_EQ(written(row("<image>q", "<bbox>", "null"), one), "{}q|<bbox>");
  EXPECT_EQ(written(row("<image>q", "a", R"({"bbox":[[1,2]]})"), one), "{}q|a");
}

}  // namespace
}  // namespace danlu::data
