// Rows with pictures and videos: which value of which layout stands where in the messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/formats/media.h"
#include "data/formats/row_format.h"
#include "data/formats/unread_columns.h"
#include "preprocess_fakes.h"

namespace danlu::data {
namespace {

using ::testing::HasSubstr;

std::string shown(const text::MediaReference& media) {
  std::string text = media.kind == text::MediaKind::kImage ? "{" : "{v:";
  for (size_t i = 0; i < media.pieces.size(); ++i) {
    const text::MediaPiece& piece = media.pieces[i];
    text += (i == 0 ? "" : ",") + piece.name + (piece.bytes ? "=" + *piece.bytes : "");
  }
  if (media.is_frame_list) text += ";list";
  if (media.fps) text += fmt::format(";{}", *media.fps);
  return text + "}";
}

/// "role:content|…" with {name=bytes} where pictures stand, {v:…} videos; or the problem.
std::string told_with_media(const char* row, FormatOptions options = {}) {
  options.reads_media = true;
  const Json json = parse_json(row, "test");
  const auto handler = make_row_handler(options, {json}, false);
  const RowResult result = handler->read(json);
  if (const auto* problem = std::get_if<RowProblem>(&result)) {
    return problem->reason + (problem->detail.empty() ? "" : " (" + problem->detail + ")");
  }
  std::string all;
  for (const auto& message : std::get<text::Conversation>(std::get<Row>(result)).messages) {
    std::string content = message.content;
    for (auto place = message.media.rbegin(); place != message.media.rend(); ++place)
      content.insert(place->offset, shown(place->media));
    all += (all.empty() ? "" : "|") + message.role + ":" + content;
  }
  return all;
}

std::string asked(const std::string& user, const std::string& columns) {
  return R"({"messages":[{"role":"user","content":)" + user +
         R"(},{"role":"assistant","content":"a"}])" + columns + "}";
}

TEST(MediaColumn, HoldsOneValueOrAList) {
  for (const char* columns :
       {R"(,"image":"x.png")", R"(,"images":["x.png"])", R"(,"images":"[\"x.png\"]")",
        R"(,"image":{"bytes":null,"path":"x.png"})", R"(,"images":[{"path":"x.png"},null])",
        R"(,"images":[{"url":"file://x.png"}],"videos":[])"}) {
    EXPECT_EQ(told_with_media(asked(R"("<image>q")", columns).c_str()), "user:{x.png}q|assistant:a")
        << columns;
  }
  EXPECT_EQ(told_with_media(asked(R"("<video>,<image><image>")",
                                  R"(,"images":["x.png","y.png"],"videos":[["f0.png","f1.png"]])")
                                .c_str()),
            "user:{v:f0.png,f1.png;list},{x.png}{y.png}|assistant:a");
  EXPECT_EQ(told_with_media(asked(R"("<video>")", R"(,"video":"a.mp4")").c_str()),
            "user:{v:a.mp4}|assistant:a");
}

TEST(MediaColumn, HoldsBytesInEveryWriting) {
  // "GIF89a" and more; base64 of it, raw and as a URL; as a table writes it.
  const std::string gif = "R0lGODlhAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
  std::string bytes = "GIF89a";
  bytes.resize(48);
  EXPECT_EQ(told_with_media(asked(R"("<image>")", R"(,"images":[")" + gif + R"("])").c_str()),
            "user:{base64=" + bytes + "}|assistant:a");
  EXPECT_EQ(told_with_media(
                asked(R"("<image>")", R"(,"images":["data:image/gif;base64,R0lGODlh"])").c_str()),
            "user:{data:image/gif;base64=GIF89a}|assistant:a");
  EXPECT_EQ(told_with_media(
                asked(R"("<image>")", R"(,"images":[{"bytes":"\\xFF\\xD8J\\x5C","path":"x.jpg"}])")
                    .c_str()),
            "user:{x.jpg=\xFF\xD8J\\}|assistant:a");
  // A column of bytes, without names.
  EXPECT_EQ(told_with_media(asked(R"("<image>")", R"(,"image":"\\xFF\\xD8\\xFFJ.x\\x5C")").c_str()),
            "user:{bytes=\xFF\xD8\xFFJ.x\\}|assistant:a");
  EXPECT_EQ(told_with_media(
                asked(R"("<image>")", R"(,"image":")" + std::string(5000, 'x') + R"(")").c_str()),
            "a picture or video is named in no known way (a name of 5000 characters)");
  EXPECT_EQ(
      told_with_media(asked(R"("<image>")", R"(,"images":["data:image/gif;base64,R0l"])").c_str()),
      "a picture or video is named in no known way (a data: URL whose base64 is damaged)");
}

TEST(MediaParts, AreReadInEverySpelling) {
  for (const char* part :
       {R"({"type":"image","image":"x.png"})", R"({"type":"image_url","image_url":"x.png"})",
        R"({"type":"image_url","image_url":{"url":"file://x.png","detail":"low"}})",
        R"({"type":"input_image","image_url":"x.png"})", R"({"image":"x.png"})",
        R"({"type":"image","url":"x.png"})", R"({"type":"image","path":"x.png"})"}) {
    EXPECT_EQ(told_with_media(asked(std::string(R"([{"type":"text","text":"a"},)") + part +
                                        R"(,{"type":"text","text":"<image>b"}])",
                                    "")
                                  .c_str()),
              "user:a{x.png}<image>b|assistant:a")
        << part;
  }
  EXPECT_EQ(told_with_media(
                asked(R"([{"type":"video","video":["f0.png","f1.png"],"fps":4}])", "").c_str()),
            "user:{v:f0.png,f1.png;list;4}|assistant:a");
  // qwen_vl_utils 0.0.14 (fetch_video): the frames are there already, sample_fps is their rate.
  EXPECT_EQ(told_with_media(asked(R"([{"type":"video","video":["f0.png"],"fps":4,"sample_fps":1,)"
                                  R"("raw_fps":25}])",
                                  "")
                                .c_str()),
            "user:{v:f0.png;list;1}|assistant:a");
  EXPECT_THAT(
      told_with_media(asked(R"([{"type":"video","video":["f0.png"],"raw_fps":25}])", "").c_str()),
      HasSubstr("\"raw_fps\" without \"sample_fps\""));
  EXPECT_EQ(
      told_with_media(
          asked(R"([{"type":"image"},{"type":"text","text":"q"}])", R"(,"images":["x"])").c_str()),
      "user:{x}q|assistant:a");
}

TEST(MediaParts, WithLimitsOfTheirOwnAreNotPassedOver) {
  EXPECT_EQ(
      told_with_media(asked(R"([{"type":"image","image":"x.png","max_pixels":99}])", "").c_str()),
      "a picture or video with limits of its own (\"max_pixels\" holds for all rows: give it "
      "as a flag)");
}

TEST(MediaCounts, MustAgreeWithTheTags) {
  const auto one = [](const char* user, const char* columns) {
    return told_with_media(asked(user, columns).c_str());
  };
  EXPECT_EQ(one(R"("<image><image>")", R"(,"images":["x"])"),
            "<image> and pictures differ in number (2 tags, 1 picture)");
  EXPECT_EQ(one(R"("<image>")", R"(,"images":[])"),
            "<image> and pictures differ in number (1 tag, 0 pictures)");
  EXPECT_EQ(one(R"([{"type":"image","image":"x"}])", R"(,"images":["x"])"),
            "pictures or videos both in the messages and in a column");
  // A row that knows nothing of pictures is text.
  EXPECT_EQ(one(R"("<image> in HTML")", ""), "user:<image> in HTML|assistant:a");
}

TEST(MediaCounts, TagsStandInAnyMessage) {
  EXPECT_EQ(told_with_media(R"({"conversations":[{"from":"system","value":"s<image>"},
      {"from":"human","value":"q"},{"from":"gpt","value":"<image>a"}],"image":["x","y"]})"),
            "system:s{x}|user:q|assistant:{y}a");
  EXPECT_EQ(told_with_media(R"({"instruction":"see","input":"<image>","output":"b",
      "images":["x"]})"),
            "user:see\n{x}|assistant:b");
}

// ms-swift (template/base.py, _add_default_tags): before the first message that is not the
// system's, a kind before those that were put there already. Tags take pictures in order.
TEST(MediaCounts, PicturesWithoutATagStandFirst) {
  EXPECT_EQ(told_with_media(R"({"query":"q","response":"a","images":["x","y"]})"),
            "user:{x}{y}q|assistant:a");
  EXPECT_EQ(told_with_media(R"({"query":"q<image>","response":"a","images":["x","y"]})"),
            "user:{x}q{y}|assistant:a");
  EXPECT_EQ(told_with_media(asked(R"("q")", R"(,"images":["x","y"])").c_str()),
            "user:{x}{y}q|assistant:a");
  EXPECT_EQ(told_with_media(asked(R"("<image>q")", R"(,"images":["x"],"videos":["y"])").c_str()),
            "user:{v:y}{x}q|assistant:a");
  EXPECT_EQ(told_with_media(R"({"messages":[{"role":"system","content":"s"},{"role":"user",
      "content":"q"},{"role":"assistant","content":"a"}],"images":["x"],"videos":["v"]})"),
            "system:s|user:{v:v}{x}q|assistant:a");
}

// LLaMA-Factory and MindSpeed-MM, whose lines describe the columns, make an error of such rows.
TEST(MediaCounts, DescribedColumnsNeedTheirTags) {
  FormatOptions described;
  described.map_keys = parse_json(R"({"messages":"messages","images":"images"})", "test");
  EXPECT_EQ(told_with_media(asked(R"("q")", R"(,"images":["x","y"])").c_str(), described),
            "<image> and pictures differ in number (0 tags, 2 pictures)");
}

// Qwen-VL's data and those of ms-swift 1 and 2 (template/base.py, _replace_image_tags).
TEST(MediaTags, FilesWithinTheTextArePictures) {
  EXPECT_EQ(told_with_media(R"({"query":"<img>/a/x.png</img>q<img>y.JPG</img>","response":"a"})"),
            "user:{/a/x.png}q{y.JPG}|assistant:a");
  EXPECT_EQ(
      told_with_media(
          R"({"conversations":[{"from":"human","value":"Picture 1: <img>x.jpeg</img>\nq"},{"from":"gpt","value":"a"}]})"),
      "user:Picture 1: {x.jpeg}\nq|assistant:a");
  // Beside pictures of a column, and where no file is named, it is text.
  EXPECT_EQ(told_with_media(asked(R"("<image><img>y.png</img>")", R"(,"images":["x"])").c_str()),
            "user:{x}<img>y.png</img>|assistant:a");
  EXPECT_EQ(told_with_media(asked(R"("<img>a word</img> <img src=x.png>")", "").c_str()),
            "user:<img>a word</img> <img src=x.png>|assistant:a");
  EXPECT_EQ(told_with_media(asked(R"("<img>x.png</img><video>")", R"(,"videos":["v"])").c_str()),
            "user:{x.png}{v:v}|assistant:a");
}

TEST(MediaColumns, HaveTheNamesThatTheUserGives) {
  FormatOptions mapped;
  mapped.map_keys = parse_json(R"({"messages":"messages","images":"pics","videos":null})", "test");
  EXPECT_EQ(
      told_with_media(asked(R"("<image>")", R"(,"pics":["x"],"videos":["v"])").c_str(), mapped),
      "user:{x}|assistant:a");
  FormatOptions renamed;
  renamed.columns = parse_json(R"({"photo":"images"})", "test");
  EXPECT_EQ(told_with_media(asked(R"("<image>")", R"(,"photo":"x.png")").c_str(), renamed),
            "user:{x.png}|assistant:a");
  EXPECT_THAT(error_text<DataError>(
                  [] { told_with_media(asked(R"("<image>")", R"(,"photo":"x.png")").c_str()); }),
              HasSubstr("column \"photo\" names a file"));
  EXPECT_THAT(error_text<DataError>(
                  [] { told_with_media(asked(R"("q")", R"(,"audio":"x.wav")").c_str()); }),
              HasSubstr("column \"audio\" holds audio"));
  EXPECT_EQ(told_with_media(R"({"text":"a dog","image":"x.png"})"),
            "pictures or videos beside text that is no conversation (column \"image\" holds "
            "pictures)");
}

TEST(MediaColumns, MayBreakLinesOfBase64) {
  EXPECT_EQ(
      told_with_media(
          asked(R"("<image>")", R"(,"images":["data:image/gif;base64,R0lG\nODlh\r\n"])").c_str()),
      "user:{data:image/gif;base64=GIF89a}|assistant:a");
}

TEST(MediaColumns, AreNotCalledUnread) {
  FormatOptions options;
  options.reads_media = true;
  const Json row = parse_json(asked(R"("<image>")", R"(,"images":["x"],"id":3)"), "test");
  ColumnCounts counts;
  count_unread_columns(*make_row_handler(options, {row}, false), row, &counts);
  EXPECT_EQ(counts, (ColumnCounts{{"id", 1}}));
}

}  // namespace
}  // namespace danlu::data
