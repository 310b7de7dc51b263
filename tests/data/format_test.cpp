// Recognising layouts, and the meaning of a row in each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/formats/row_format.h"
#include "data/formats/unread_columns.h"
#include "preprocess_fakes.h"

namespace danlu::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json json(const char* text) { return parse_json(text, "test"); }

std::unique_ptr<RowHandler> handler_for(const char* row, FormatOptions options = {}) {
  return make_row_handler(options, {json(row)}, false);
}

/// "role:content|…" of a conversation row, or "reason (detail)" of a problem.
std::string told(const RowHandler& handler, const char* row) {
  const RowResult result = handler.read(json(row));
  if (const auto* problem = std::get_if<RowProblem>(&result)) {
    return problem->reason + (problem->detail.empty() ? "" : " (" + problem->detail + ")");
  }
  const Row& meaning = std::get<Row>(result);
  if (const auto* text = std::get_if<TextRow>(&meaning)) return "text:" + text->texts[0];
  std::string all;
  for (const auto& message : std::get<text::Conversation>(meaning).messages) {
    all += (all.empty() ? "" : "|") + message.role + ":" + message.content;
    if (message.extra.contains("tool_calls")) all += message.extra["tool_calls"].dump();
    if (!message.train) all += "(no loss)";
  }
  return all;
}

std::string told(const char* row, FormatOptions options = {}) {
  return told(*handler_for(row, std::move(options)), row);
}

TEST(Detection, GoesByColumnsInTheDocumentedOrder) {
  EXPECT_EQ(handler_for(R"({"input_ids":[1],"text":"x"})")->format(), RowFormat::kTokens);
  EXPECT_EQ(handler_for(R"({"conversations":[{"from":"human","value":"x"}],"instruction":""})")
                ->description(),
            "sharegpt (conversations: from,value)");
  EXPECT_EQ(handler_for(R"({"messages":[{"role":"user","content":"x"}]})")->description(),
            "messages (messages: role,content)");
  EXPECT_EQ(
      handler_for(R"({"instruction":"a","input":"","output":"b","history":[]})")->description(),
      "alpaca (instruction,input,output,history)");
  EXPECT_EQ(handler_for(R"({"Question":"a","answer":"b","id":3})")->description(),
            "query/response (Question,answer)");
  EXPECT_EQ(handler_for(R"({"instruction":"a","output":"b"})")->description(),
            "query/response (instruction,output)");
  EXPECT_EQ(handler_for(R"({"text":"a","meta":{}})")->description(), "text (text)");
}

TEST(Detection, RefusesWhatItCannotDecide) {
  EXPECT_THAT(error_text<DataError>([] { handler_for(R"({"a":1,"b":2})"); }),
              HasSubstr("no known layout has these columns: a, b"));
  EXPECT_THAT(
      error_text<DataError>([] { handler_for(R"({"prompt":"","problem":"","answer":""})"); }),
      HasSubstr("problem, prompt could all be the query"));
  EXPECT_THAT(error_text<UsageError>([] {
                handler_for(R"({"instruction":"","input":"","chosen":"","rejected":""})");
              }),
              HasSubstr("preference"));
}

std::vector<std::string> unread(const char* row, FormatOptions options = {}) {
  ColumnCounts counts;
  count_unread_columns(*handler_for(row, std::move(options)), json(row), &counts);
  std::vector<std::string> names;
  for (const auto& [name, rows] : counts) names.push_back(name);
  return names;
}

/// What is said of the columns of these rows that are not read.
std::string said_of_unread(const std::vector<Json>& rows, const FormatOptions& options = {}) {
  const auto handler = make_row_handler(options, rows, false);
  ColumnCounts counts;
  for (const Json& row : rows) count_unread_columns(*handler, row, &counts);
  ::testing::internal::CaptureStderr();
  report_unread_columns("rows", *handler, counts, options, rows);
  return ::testing::internal::GetCapturedStderr();
}

TEST(UnreadColumns, AreThoseThatNoPartOfTheSampleComesFrom) {
  EXPECT_THAT(unread(R"({"instruction":"a","input":"b","output":"c","tools":[],"history":[]})"),
              ElementsAre());
  EXPECT_THAT(unread(R"({"question":"a","answer":"b","id":3,"nothing":null})"), ElementsAre("id"));
  EXPECT_THAT(unread(R"({"messages":[{"role":"user","content":"x"}],"system":"s","tool":[]})"),
              ElementsAre("tool"));
  EXPECT_THAT(unread(R"({"text":"a","meta":{},"url":"u"})"), ElementsAre("meta", "url"));
  EXPECT_THAT(unread(R"({"input_ids":[1],"label":[1]})"), ElementsAre("label"));
  FormatOptions options;
  options.columns = {{"q", "query"}, {"label", "labels"}};
  EXPECT_THAT(unread(R"({"q":"a","answer":"b","query_id":1})", options), ElementsAre("query_id"));
  EXPECT_THAT(unread(R"({"input_ids":[1],"label":[1]})", options), ElementsAre());
}

TEST(UnreadColumns, AMisspeltNameIsWarnedOfWhereItsMappingWouldHelp) {
  const auto warned = [](const char* row, FormatOptions options = {}) {
    return said_of_unread({json(row)}, options);
  };
  EXPECT_THAT(warned(R"({"instruction":"a","inptu":"b","output":"c"})"),
              HasSubstr(R"(column "inptu" is not read; if it holds the input: )"
                        R"(--columns '{"inptu":"input"}')"));
  // What the mapping would contradict, displace or not reach is only named.
  for (const char* row : {R"({"question":"a","answer":"b","inputs":"c"})",
                          R"({"query":"a","response":"b","instructions":"c"})",
                          R"({"question":"a","answer":"b","outputs":"c"})"})
    EXPECT_THAT(warned(row), testing::ContainsRegex("^rows: columns that are not read.*s \\(1\\)"));
  FormatOptions mapped;
  mapped.map_keys = {{"prompt", "q"}, {"query", "ctx"}, {"response", "a"}};
  EXPECT_THAT(warned(R"({"q":"a","ctx":"b","a":"c","inputs":"d"})", mapped),
              HasSubstr("columns that are not read (rows): inputs (1)"));
  EXPECT_EQ(warned(R"({"query":"a","response":"b"})"), "");
}

TEST(Detection, OptionalColumnsMayComeLateOthersMayNot) {
  const char* first = R"({"instruction":"a","input":"b","output":"c"})";
  const auto alpaca = handler_for(first);
  EXPECT_EQ(told(*alpaca, R"({"instruction":"a","input":"b","output":"c","system":"s"})"),
            "system:s|user:a\nb|assistant:c");
  EXPECT_EQ(alpaca->description(), "alpaca (instruction,input,output)");
  const auto pairs = handler_for(R"({"instruction":"a","output":"c"})");
  EXPECT_EQ(told(*pairs, R"({"instruction":"a","output":"c","history":[["q","r"]]})"),
            "user:q|assistant:r|user:a|assistant:c");
  EXPECT_THAT(error_text<DataError>([&] { pairs->read(json(first)); }),
              HasSubstr("column \"input\" is not part of query/response (instruction,output)"));
  // Seen at once and not read, or named by the user: no fault.
  const auto both = handler_for(R"({"query":"a","response":"b","input":"c"})");
  EXPECT_EQ(told(*both, R"({"query":"a","response":"b","input":"c"})"), "user:a|assistant:b");
  EXPECT_EQ(told(*handler_for(first, {.handler_name = "alpaca"}), R"({"instruction":"a","output":)"
                                                                  R"("c","response":"d"})"),
            "user:a|assistant:c");
}

TEST(Detection, CapitalsAreNoOtherColumns) {
  const auto handler = handler_for(R"({"Instruction":"a","Input":"b","Output":"c"})");
  EXPECT_EQ(handler->description(), "alpaca (Instruction,Input,Output)");
  EXPECT_EQ(handler_for(R"({"Messages":[{"role":"user","content":"x"}]})")->description(),
            "messages (Messages: role,content)");
}

TEST(Detection, ColumnsRenameBeforeItLooks) {
  FormatOptions options;
  options.columns = {{"problem", "query"}};
  EXPECT_EQ(told(R"({"prompt":"not this","problem":"p","answer":"a"})", options),
            "user:p|assistant:a");
}

TEST(HandlerNames, AreMindSpeeds) {
  const char* row = R"({"instruction":"a","input":"b","output":"c"})";
  EXPECT_EQ(handler_for(row, {.handler_name = "AlpacaStyleInstructionHandler"})->format(),
            RowFormat::kAlpaca);
  EXPECT_THAT(error_text<UsageError>(
                  [&] { handler_for(row, {.handler_name = "AlpacaStylePairwiseHandler"}); }),
              HasSubstr("the rows are preference pairs"));
  try {
    handler_for(row, {.handler_name = "AlpacaStyleInstructHandler"});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.hint(), HasSubstr("AlpacaStyleInstructionHandler"));
  }
}

TEST(HandlerNames, GeneralPretrainHandlerReadsTheJsonKeys) {
  FormatOptions options;
  options.handler_name = "GeneralPretrainHandler";
  options.json_keys = {"content"};
  EXPECT_EQ(told(R"({"content":"c","text":"t"})", options), "text:c");
  options.json_keys = {"body"};
  EXPECT_THAT(error_text<DataError>([&] { handler_for(R"({"content":"c"})", options); }),
              HasSubstr("no row has a column \"body\"; there are: content"));
}

TEST(Media, RowsThatHoldMoreThanTextAreRefused) {
  const auto refusal = [](const char* row, FormatOptions options = {}) {
    return error_text<DataError>([&] { told(row, options); });
  };
  EXPECT_THAT(refusal(R"({"query":"a","response":"b","videos":["v"]})"),
              HasSubstr("column \"videos\" holds video: the model reads text alone"));
  // Hugging Face's image column.
  EXPECT_THAT(refusal(R"({"query":"a","response":"b","image":{"bytes":null,"path":"x"}})"),
              HasSubstr("column \"image\" holds pictures"));
  EXPECT_THAT(refusal(R"({"query":"<image>a","response":"b","file_name":"x.JPEG"})"),
              HasSubstr("column \"file_name\" names a file"));
  FormatOptions named;
  named.json_keys = {"text"};
  EXPECT_THAT(refusal(R"({"text":"<image> a","images":["x"]})", named),
              HasSubstr("column \"images\""));
  EXPECT_EQ(told(R"({"text":"a","images":["x"]})", named), "text:a");
}

TEST(Media, WhatOnlySpeaksOfPicturesIsText) {
  EXPECT_EQ(told(R"({"query":"<image>","response":"b"})"), "user:<image>|assistant:b");
  EXPECT_EQ(told(R"({"query":"a","response":"b","source":"x.jpg","image":false})"),
            "user:a|assistant:b");
  EXPECT_EQ(told(R"({"query":"<image>a","response":"b","images":[],"image":
                     {"bytes":null,"path":null},"video":"","audios":"[]","url":"x.html"})"),
            "user:<image>a|assistant:b");
}

TEST(Detection, TextMayComeFirst) {
  const char* row = R"({"text":"t","instruction":"a","input":"","output":"b"})";
  FormatOptions options;
  EXPECT_EQ(handler_for(row, options)->format(), RowFormat::kAlpaca);
  options.text_first = true;
  EXPECT_EQ(handler_for(row, options)->description(), "text (text)");
  options.handler_name = "AlpacaStyleInstructionHandler";
  EXPECT_EQ(handler_for(row, options)->format(), RowFormat::kAlpaca);
}

TEST(Alpaca, JoinsInstructionAndInputByANewline) {
  EXPECT_EQ(told(R"({"instruction":"a","input":"b","output":"c"})"), "user:a\nb|assistant:c");
  EXPECT_EQ(told(R"({"instruction":"a","input":"","output":"c"})"), "user:a|assistant:c");
  EXPECT_EQ(told(R"({"instruction":"","input":"b","output":"c"})"), "user:b|assistant:c");
}

TEST(Alpaca, PutsSystemAndHistoryFirst) {
  EXPECT_EQ(told(R"({"instruction":"a","input":"","output":"c","system":"s",
                     "history":[["q1","a1"],["q2","a2"]]})"),
            "system:s|user:q1|assistant:a1|user:q2|assistant:a2|user:a|assistant:c");
}

TEST(Alpaca, SaysWhatIsWrongWithARow) {
  const auto handler = handler_for(R"({"instruction":"a","input":"","output":"c","history":[]})");
  EXPECT_EQ(told(*handler, R"({"instruction":"a","input":"","output":3})"),
            "column \"output\" is not a string (got a number)");
  EXPECT_EQ(told(*handler, R"({"instruction":"a","input":""})"), "column \"output\" is missing");
  EXPECT_EQ(told(*handler, R"({"instruction":"a","input":"","output":""})"), "empty answer");
  EXPECT_EQ(told(*handler, R"({"instruction":"","input":null,"output":"x"})"), "empty question");
  EXPECT_THAT(told(*handler, R"({"instruction":"a","output":"x","history":[["q"]]})"),
              HasSubstr("is not a list of [question, answer] pairs"));
  EXPECT_EQ(told(*handler, "[1]"), "row is not an object (got a list)");
}

TEST(Alpaca, MapKeysNameOtherColumns) {
  FormatOptions options;
  options.handler_name = "AlpacaStyleInstructionHandler";
  options.map_keys = {{"prompt", "q"}, {"query", ""}, {"response", "r"}};
  EXPECT_EQ(told(R"({"q":"a","r":"b","input":"unused"})", options), "user:a|assistant:b");
  options.map_keys = {{"promt", "q"}};
  EXPECT_THAT(error_text<UsageError>([&] { handler_for(R"({"q":"a"})", options); }),
              HasSubstr("unknown role \"promt\""));
  options.map_keys = {{"prompt", "q"}, {"response", "nowhere"}};
  EXPECT_THAT(error_text<DataError>([&] { handler_for(R"({"q":"a"})", options); }),
              HasSubstr("response: no row has a column \"nowhere\""));
}

TEST(Alpaca, AMapLeavesHistorySystemAndToolsUnread) {
  const char* row = R"({"instruction":"a","input":"b","output":"c","system":"s","tools":[],
                        "history":[["p","q"]]})";
  EXPECT_EQ(told(row), "system:s|user:p|assistant:q|user:a\nb|assistant:c");
  FormatOptions options;
  options.map_keys = {{"prompt", "instruction"}, {"response", "output"}};
  EXPECT_EQ(told(row, options), "user:a\nb|assistant:c") << "as MindSpeed-LLM";
  options.map_keys["history"] = "history";
  EXPECT_EQ(told(row, options), "user:p|assistant:q|user:a\nb|assistant:c");
  options.map_is_whole = true;
  EXPECT_EQ(told(row, options), "user:p|assistant:q|user:a|assistant:c") << "as LLaMA-Factory";
  options.map_keys = {{"images", "pictures"}};
  EXPECT_EQ(told(row, options), "system:s|user:p|assistant:q|user:a\nb|assistant:c");
}

// LLaMA-Factory's own entry "webqa".
TEST(Alpaca, AColumnThatOneRoleNamesIsNoOthers) {
  FormatOptions options;
  options.map_keys = {{"prompt", "input"}, {"response", "output"}};
  EXPECT_EQ(told(R"({"input":"q","output":"a"})", options), "user:q|assistant:a");
  options.map_keys = {{"query", "q"}, {"response", "output"}};
  options.map_is_whole = true;
  EXPECT_EQ(told(R"({"q":"q","output":"a","instruction":"no"})", options), "user:q|assistant:a");
}

TEST(ShareGpt, AMapLeavesSystemAndToolsUnread) {
  FormatOptions options;
  options.map_keys = {{"messages", "talk"}};
  const char* row = R"({"talk":[{"from":"human","value":"q"},{"from":"gpt","value":"a"}],
                        "system":"s","tools":"not JSON"})";
  EXPECT_EQ(told(row, options), "user:q|assistant:a");
  options.map_keys["system"] = "system";
  EXPECT_EQ(told(row, options), "system:s|user:q|assistant:a");
}

TEST(ShareGpt, ASystemMessageOutweighsTheColumn) {
  EXPECT_EQ(told(R"({"system":"s","conversations":[{"from":"system","value":"t"},
                {"from":"human","value":"q"},{"from":"gpt","value":"a"}]})"),
            "system:t|user:q|assistant:a");
}

TEST(ShareGpt, MapsRolesAndFunctionCalls) {
  EXPECT_EQ(told(R"({"system":"s","conversations":[
      {"from":"human","value":"q"},
      {"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{\"x\":1}}"},
      {"from":"observation","value":"42"},{"from":"gpt","value":"a"}]})"),
            "system:s|user:q|assistant:[{\"type\":\"function\",\"function\":{\"name\":\"f\","
            "\"arguments\":{\"x\":1}}}]|tool:42|assistant:a");
}

TEST(ShareGpt, AThoughtMayStandBeforeAFunctionCall) {
  const auto call = [](const std::string& value) {
    const std::string row = R"({"conversations":[{"from":"human","value":"q"},
        {"from":"function_call","value":)" +
                            Json(value).dump() + R"(},
        {"from":"observation","value":"42"},{"from":"gpt","value":"a"}]})";
    return told(row.c_str());
  };
  const std::string f = R"({"name":"f","arguments":{"x":"</think>"}})";
  const std::string calls = R"([{"type":"function","function":)" + f + "}]|tool:42|assistant:a";
  EXPECT_EQ(call(f), "user:q|assistant:" + calls);
  EXPECT_EQ(call("<think>\nwhy\n</think>\n\n" + f),
            "user:q|assistant:<think>\nwhy\n</think>\n\n" + calls);
  EXPECT_THAT(call("<think>\nwhy\n</think>\n\nno call"), HasSubstr("a function call is not"));
}

TEST(ShareGpt, PartialTagsKeepTheOtherDefaults) {
  FormatOptions options;
  options.handler_name = "SharegptStyleInstructionHandler";
  options.map_keys = {{"messages", "talk"}, {"tags", {{"user_tag", "me"}}}};
  EXPECT_EQ(told(R"({"talk":[{"from":"me","value":"q"},{"from":"gpt","value":"a"}]})", options),
            "user:q|assistant:a");
}

TEST(ShareGpt, DropsConversationsWhoseRolesAreOutOfOrder) {
  const auto handler = handler_for(R"({"conversations":[{"from":"human","value":"q"}]})");
  EXPECT_THAT(told(*handler, R"({"conversations":[{"from":"gpt","value":"a"},
                                {"from":"human","value":"q"},{"from":"gpt","value":"b"}]})"),
              HasSubstr("roles out of order (message 1 is \"assistant\""));
  EXPECT_THAT(told(*handler, R"({"conversations":[{"from":"human","value":"a"},
                                {"from":"gpt","value":"b"},{"from":"system","value":"q"}]})"),
              HasSubstr("roles out of order (message 3 is \"system\""));
  EXPECT_EQ(told(*handler, R"({"conversations":[{"from":"human","value":"q"}]})"),
            "the last message is not an answer (got \"user\")");
  EXPECT_EQ(told(*handler, R"({"conversations":[]})"), "no messages");
  EXPECT_EQ(told(*handler, R"({"conversations":[{"from":"human","value":"q"},
                              {"from":"gpt","value":""}]})"),
            "empty answer (message 2)");
  EXPECT_EQ(told(*handler, R"({"conversations":[{"from":"alien","value":"q"}]})"),
            "unknown role (got \"alien\")");
}

TEST(ShareGpt, ReadsPairsAndListsKeptAsText) {
  EXPECT_EQ(
      told(R"({"conversation":[{"human":"q","assistant":"a"},{"human":"p","assistant":"b"}]})"),
      "user:q|assistant:a|user:p|assistant:b");
  EXPECT_EQ(
      told(
          R"({"conversations":"[{\"from\":\"human\",\"value\":\"q\"},{\"from\":\"gpt\",\"value\":\"a\"}]"})"),
      "user:q|assistant:a");
}

TEST(Messages, KeepToolCallsAndLossMarks) {
  EXPECT_EQ(told(R"({"messages":[{"role":"user","content":"q"},
      {"role":"assistant","content":null,"tool_calls":[{"id":"1"}]},
      {"role":"tool","content":"r","tool_call_id":"1"},
      {"role":"assistant","content":"a","loss":false},
      {"role":"user","content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]},
      {"role":"assistant","content":"b","weight":0}]})"),
            "user:q|assistant:[{\"id\":\"1\"}]|tool:r|assistant:a(no loss)|user:xy|assistant:b(no "
            "loss)");
}

// The samples of ms-swift's page on agents.
TEST(Messages, NeighboursOfOneRoleAreOneMessage) {
  EXPECT_EQ(
      told(R"({"messages":[{"role":"user","content":"q"},
      {"role":"tool_call","content":"{\"name\":\"f\",\"arguments\":1}"},
      {"role":"tool_call","content":"{\"name\":\"g\",\"arguments\":2}"},
      {"role":"tool_response","content":"x"},{"role":"tool_response","content":"y"},
      {"role":"assistant","content":"a"}]})"),
      R"(user:q|assistant:[{"type":"function","function":{"name":"f","arguments":1}},)"
      R"({"type":"function","function":{"name":"g","arguments":2}}]|tool:x|tool:y|assistant:a)");
  EXPECT_EQ(told(R"({"messages":[{"role":"user","content":"q"},{"role":"user","content":"r"},
      {"role":"assistant","content":"<think>t</think>","loss":false},
      {"role":"tool_call","content":"{\"name\":\"f\",\"arguments\":1}","loss":false},
      {"role":"tool","content":"x"},{"role":"assistant","content":"a"},
      {"role":"assistant","content":"b"}]})"),
            R"(user:qr|assistant:<think>t</think>[{"type":"function","function":{"name":"f",)"
            R"("arguments":1}}](no loss)|tool:x|assistant:ab)");
}

TEST(Messages, NeighboursThatOneMessageCannotSayAreRefused) {
  EXPECT_EQ(told(R"({"messages":[{"role":"user","content":"q"},
      {"role":"assistant","content":"a","loss":false},{"role":"assistant","content":"b"}]})"),
            "messages of one turn differ in \"loss\" (message 2)");
  EXPECT_THAT(told(R"({"messages":[{"role":"user","content":"q"},
      {"role":"tool_call","content":"{\"name\":\"f\",\"arguments\":1}"},
      {"role":"assistant","content":"behind"}]})"),
              HasSubstr("roles out of order (message 3"));
}

TEST(Messages, RefuseContentThatIsNotText) {
  EXPECT_EQ(told(R"({"messages":[{"role":"user","content":[{"type":"file","file":{}}]}]})"),
            "a message holds something other than text (got \"file\")");
  EXPECT_THAT(error_text<DataError>([] {
                told(R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})");
              }),
              HasSubstr("a message holds \"image_url\": the model reads text alone"));
}

TEST(Messages, ALoneAnswerIsPlainText) {
  EXPECT_EQ(told(R"({"messages":[{"role":"assistant","content":"once upon"}]})"), "text:once upon");
}

TEST(Messages, ToolsMayBeAListOrText) {
  for (const char* row :
       {R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],
                             "tools":"[{\"name\":\"f\"}]"})",
        R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],
                             "tools":[{"name":"f"}]})"}) {
    const RowResult result = handler_for(row)->read(json(row));
    EXPECT_EQ(std::get<text::Conversation>(std::get<Row>(result)).tools[0]["name"], "f");
  }
}

TEST(QueryResponse, WhereRowsAreQuestionsTheirAnswerMayBeAnything) {
  FormatOptions questions;
  questions.answers_optional = true;
  for (const char* row : {R"({"query":"q","solution":3})", R"({"question":"q","answer":[1,2]})"})
    EXPECT_EQ(told(row, questions), "user:q") << row;
  EXPECT_EQ(told(R"({"query":"q","solution":"3"})", questions), "user:q|assistant:3");
  EXPECT_THAT(told(R"({"query":"q","solution":3})"), HasSubstr("is not a string"));
}

// As a value the digits would be others.
TEST(Messages, ToolsAsTextWithAnIntegerBeyond64BitsAreNamedAsThat) {
  EXPECT_EQ(told(R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],
                     "tools":"[{\"name\":20250101123456789012}]"})"),
            "column \"tools\" holds an integer beyond 64 bits (got 20250101123456789012)");
}

TEST(Tokens, LabelsDefaultToIdsAndPaddingGoes) {
  const auto handler = handler_for(R"({"input_ids":[1]})");
  RowResult result = handler->read(json(R"({"input_ids":[5,6,0],"attention_mask":[1,1,0]})"));
  EXPECT_THAT(std::get<TokenRow>(std::get<Row>(result)).ids, ElementsAre(5, 6));
  EXPECT_THAT(std::get<TokenRow>(std::get<Row>(result)).labels, ElementsAre(5, 6));
  result = handler->read(json(R"({"input_ids":"[5,6]","labels":[-100,6]})"));
  EXPECT_THAT(std::get<TokenRow>(std::get<Row>(result)).labels, ElementsAre(-100, 6));
}

TEST(Tokens, SayWhatIsWrong) {
  const auto handler = handler_for(R"({"input_ids":[1]})");
  EXPECT_EQ(told(*handler, R"({"input_ids":[1,2],"labels":[1]})"),
            "column \"labels\" is not as long as \"input_ids\" (1 and 2)");
  EXPECT_EQ(told(*handler, R"({"input_ids":[1.5]})"),
            "column \"input_ids\" is not a list of integers (got 1.5)");
  EXPECT_EQ(told(*handler, R"({"input_ids":[-3]})"), "negative token id (got -3)");
  EXPECT_EQ(told(*handler, R"({"input_ids":[]})"), "no tokens");
}

}  // namespace
}  // namespace danlu::data
