// Rows of preference training, process rewards and reinforcement learning: every layout, and what
// becomes of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/formats/row_format.h"
#include "preprocess_fakes.h"

namespace danlu::data {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::unique_ptr<RowHandler> preference_handler(const std::string& row, FormatOptions options) {
  return make_row_handler(options, {parse_json(row, "test")}, false);
}

FormatOptions of_kind(std::optional<SampleKind> kind, const std::string& handler = "",
                      const std::string& map = "{}") {
  FormatOptions options;
  options.kind = kind;
  options.handler_name = handler;
  options.map_keys = parse_json(map, "map");
  return options;
}

/// "user:q|assistant:a", messages without loss in brackets.
std::string told_messages(const text::Conversation& conversation) {
  std::string all;
  for (const text::Message& message : conversation.messages) {
    const std::string one = message.role + ":" + message.content;
    const bool learnt = message.role != "assistant" || message.train;
    all += (all.empty() ? "" : "|") + (learnt ? one : "[" + one + "]");
  }
  return all;
}

std::string told_tokens(const TokenRow& row) {
  return fmt::format("{}/{}", Json(row.ids).dump(), Json(row.labels).dump());
}

std::string told_answer(const AnsweredRow& answer) {
  if (const auto* conversation = std::get_if<text::Conversation>(&answer))
    return told_messages(*conversation);
  return told_tokens(std::get<TokenRow>(answer));
}

/// What the row means, in one line.
std::string meaning(const std::string& row, FormatOptions options = of_kind(std::nullopt)) {
  const RowResult result = preference_handler(row, options)->read(parse_json(row, "test"));
  if (const auto* problem = std::get_if<RowProblem>(&result))
    return "problem: " + problem->reason +
           (problem->detail.empty() ? "" : " (" + problem->detail + ")");
  const Row& read = std::get<Row>(result);
  if (const auto* pair = std::get_if<PairRow>(&read)) {
    return told_answer(pair->chosen) + " > " + told_answer(pair->rejected) +
           (pair->margin == 0 ? "" : fmt::format(" by {}", pair->margin));
  }
  if (const auto* judged = std::get_if<UnpairedRow>(&read))
    return (judged->liked ? "liked " : "disliked ") + told_answer(judged->answer);
  if (const auto* steps = std::get_if<StepsRow>(&read))
    return steps->text + " " + Json(steps->steps).dump() + Json(steps->values).dump();
  if (const auto* prompt = std::get_if<PromptRow>(&read)) {
    std::string asked = "tokens";
    if (const auto* text = std::get_if<TextRow>(&prompt->prompt)) asked = "text:" + text->texts[0];
    if (const auto* messages = std::get_if<text::Conversation>(&prompt->prompt))
      asked = told_messages(*messages);
    return asked + " " + prompt->columns.dump();
  }
  return "an instruction";
}

std::string refusal_of_row(const std::string& row, FormatOptions options) {
  try {
    preference_handler(row, options);
  } catch (const Error& error) {
    return std::string(error.what()) + " hint: " + error.hint();
  }
  return "";
}

// --- pairs ---------------------------------------------------------------------------------------

TEST(PairRows, AlpacaWithChosenAndRejected) {
  const std::string row =
      R"({"instruction":"q","input":"i","chosen":"good","rejected":"bad","system":"s",)"
      R"("history":[["h","k"]]})";
  const std::string told =
      "system:s|user:h|[assistant:k]|user:q\ni|assistant:good > "
      "system:s|user:h|[assistant:k]|user:q\ni|assistant:bad";
  EXPECT_EQ(meaning(row), told);
  EXPECT_EQ(meaning(row, of_kind(SampleKind::kPairs)), told);
  EXPECT_EQ(meaning(row, of_kind(SampleKind::kPairs, "AlpacaStylePairwiseHandler")), told);
  EXPECT_EQ(preference_handler(row, of_kind(SampleKind::kPairs))->description(),
            "pairs: alpaca (instruction,input,chosen,system,history), rejected");
}

// MindSpeed-RL's orca_rlhf.
TEST(PairRows, AlpacaWithMappedColumns) {
  EXPECT_EQ(meaning(R"({"system":"s","question":"q","chosen":"good","rejected":"bad"})",
                    of_kind(std::nullopt, "AlpacaStylePairwiseHandler",
                            R"({"prompt":"question","query":"","system":"system"})")),
            "system:s|user:q|assistant:good > system:s|user:q|assistant:bad");
  // dataset_info.json's, without a handler.
  EXPECT_EQ(meaning(R"({"a":"q","yes":"good","no":"bad"})",
                    of_kind(std::nullopt, "", R"({"prompt":"a","chosen":"yes","rejected":"no"})")),
            "user:q|assistant:good > user:q|assistant:bad");
}

TEST(PairRows, EarlierRoundsAreLearntWhereTheyAreAskedFor) {
  const std::string row =
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"k"},)"
      R"({"role":"user","content":"r"},{"role":"assistant","content":"good"}],)"
      R"("rejected_response":"bad"})";
  FormatOptions options = of_kind(SampleKind::kPairs);
  EXPECT_EQ(meaning(row, options),
            "user:q|[assistant:k]|user:r|assistant:good > "
            "user:q|[assistant:k]|user:r|assistant:bad");
  const Json before = options.to_json();
  options.learns_all_rounds = true;
  EXPECT_EQ(meaning(row, options),
            "user:q|assistant:k|user:r|assistant:good > user:q|assistant:k|user:r|assistant:bad");
  EXPECT_NE(options.to_json(), before) << "samples of the two are cached apart";
  const std::string judged =
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"k"},)"
      R"({"role":"user","content":"r"},{"role":"assistant","content":"good"}],"label":true})";
  FormatOptions kto = of_kind(SampleKind::kUnpaired);
  EXPECT_EQ(meaning(judged, kto), "liked user:q|[assistant:k]|user:r|assistant:good");
  kto.learns_all_rounds = true;
  EXPECT_EQ(meaning(judged, kto), "liked user:q|assistant:k|user:r|assistant:good");
}

TEST(PairRows, ShareGptWithOneMessageForEachAnswer) {
  const std::string row =
      R"({"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"k"},)"
      R"({"from":"human","value":"r"}],"chosen":{"from":"gpt","value":"good"},)"
      R"("rejected":{"from":"gpt","value":"bad"}})";
  const std::string told =
      "user:q|[assistant:k]|user:r|assistant:good > user:q|[assistant:k]|user:r|assistant:bad";
  EXPECT_EQ(meaning(row), told);
  EXPECT_EQ(meaning(row, of_kind(SampleKind::kPairs, "SharegptStylePairwiseHandler")), told);
  const std::string renamed =
      R"({"talk":[{"who":"me","says":"q"}],"yes":{"who":"bot2","says":"good"},)"
      R"("no":{"who":"bot2","says":"bad"}})";
  EXPECT_EQ(
      meaning(renamed,
              of_kind(std::nullopt, "SharegptStylePairwiseHandler",
                      R"({"messages":"talk","chosen":"yes","rejected":"no","tags":{"role_tag":)"
                      R"("who","content_tag":"says","user_tag":"me","assistant_tag":"bot2"}})")),
      "user:q|assistant:good > user:q|assistant:bad");
}

TEST(PairRows, TrlWithTextsAndWithMessages) {
  EXPECT_EQ(meaning(R"({"prompt":"q","chosen":"good","rejected":"bad","margin":0.5})"),
            "user:q|assistant:good > user:q|assistant:bad by 0.5");
  EXPECT_EQ(meaning(R"({"prompt":[{"role":"user","content":"q"}],)"
                    R"("chosen":[{"role":"assistant","content":"good"}],)"
                    R"("rejected":[{"role":"assistant","content":"bad"}]})"),
            "user:q|assistant:good > user:q|assistant:bad");
  // Without a prompt: what both begin with is one.
  EXPECT_EQ(meaning(R"({"chosen":[{"role":"user","content":"q"},)"
                    R"({"role":"assistant","content":"good"}],)"
                    R"("rejected":[{"role":"user","content":"q"},)"
                    R"({"role":"assistant","content":"bad"}]})"),
            "user:q|assistant:good > user:q|assistant:bad");
  // UltraFeedback: the question stands in the lists once more.
  EXPECT_EQ(meaning(R"({"prompt":"q","chosen":[{"role":"user","content":"q"},)"
                    R"({"role":"assistant","content":"good"}],)"
                    R"("rejected":[{"role":"user","content":"q"},)"
                    R"({"role":"assistant","content":"bad"}]})"),
            "user:q|assistant:good > user:q|assistant:bad");
  // The space before the difference belongs to the answers.
  EXPECT_EQ(meaning(R"({"chosen":"The sky is blue","rejected":"The sky is green"})"),
            "user:The sky is|assistant: blue > user:The sky is|assistant: green");
  // 甲 and 电 differ in their second byte.
  EXPECT_EQ(meaning(R"({"chosen":"a甲","rejected":"a电"})"),
            "user:a|assistant:甲 > user:a|assistant:电");
}

TEST(PairRows, MsSwiftWithARejectedResponse) {
  EXPECT_EQ(meaning(R"({"messages":[{"role":"user","content":"q"},)"
                    R"({"role":"assistant","content":"k"},{"role":"user","content":"r"},)"
                    R"({"role":"assistant","content":"good"}],"rejected_response":"bad"})"),
            "user:q|[assistant:k]|user:r|assistant:good > "
            "user:q|[assistant:k]|user:r|assistant:bad");
  EXPECT_EQ(meaning(R"({"messages":[{"role":"user","content":"q"},)"
                    R"({"role":"assistant","content":"good"}],"rejected_messages":)"
                    R"([{"role":"user","content":"q"},{"role":"assistant","content":"bad"}]})"),
            "user:q|assistant:good > user:q|assistant:bad");
  EXPECT_EQ(meaning(R"({"query":"q","response":"good","rejected_response":"bad","system":"s"})"),
            "system:s|user:q|assistant:good > system:s|user:q|assistant:bad");
}

// Messages may be kept as text, and an answer may be JSON.
TEST(PairRows, TextThatIsJsonIsAMessageOnlyIfItHasARole) {
  EXPECT_EQ(meaning(R"({"messages":[{"role":"user","content":"q"}],"chosen":"{\"a\": 1}",)"
                    R"("rejected":"[{\"a\": 2}]"})"),
            R"(user:q|assistant:{"a": 1} > user:q|assistant:[{"a": 2}])");
  EXPECT_EQ(meaning(R"({"prompt":"q","chosen":"[{\"a\": 1}]","rejected":"b"})"),
            R"(user:q|assistant:[{"a": 1}] > user:q|assistant:b)");
  EXPECT_EQ(meaning(R"({"prompt":"[{\"role\": \"user\", \"content\": \"q\"}]","chosen":)"
                    R"("[{\"role\": \"assistant\", \"content\": \"a\"}]","rejected":"b"})"),
            "user:q|assistant:a > user:q|assistant:b");
}

TEST(PairRows, Tokens) {
  EXPECT_EQ(meaning(R"({"chosen_input_ids":[1,2,3],"chosen_labels":[-100,2,3],)"
                    R"("rejected_input_ids":[1,4],"rejected_labels":[-100,4]})"),
            "[1,2,3]/[-100,2,3] > [1,4]/[-100,4]");
}

TEST(PairRows, WhatIsWrongWithARowIsSaid) {
  const auto told = [](const char* row) { return meaning(row, of_kind(SampleKind::kPairs)); };
  EXPECT_EQ(told(R"({"prompt":"q","chosen":"a","rejected":"a"})"),
            "problem: chosen and rejected do not differ");
  EXPECT_EQ(told(R"({"prompt":"q","chosen":"a","rejected":""})"), "problem: empty answer");
  EXPECT_EQ(told(R"({"prompt":"q","chosen":"a","rejected":["b"]})"),
            "problem: column \"rejected\" is not a string (got a list)");
  EXPECT_EQ(told(R"({"prompt":"q","chosen":"a","rejected":"b","margin":"much"})"),
            "problem: column \"margin\" is not a finite number (got a string)");
  EXPECT_EQ(told(R"({"chosen":"a","rejected":"b"})"),
            "problem: chosen and rejected have no beginning in common");
  EXPECT_EQ(told(R"({"chosen":"ab","rejected":"abc"})"), "problem: empty answer (chosen)");
  EXPECT_EQ(told(R"({"chosen":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],)"
                 R"("rejected":[{"role":"user","content":"p"},)"
                 R"({"role":"assistant","content":"b"}]})"),
            "problem: chosen and rejected answer different questions (message 1)");
  EXPECT_EQ(told(R"({"messages":[{"role":"user","content":"q"}],"rejected_response":"b"})"),
            "problem: the last message is not an answer (got \"user\")");
}

// --- answers that are liked or not
// -----------------------------------------------------------------

TEST(UnpairedRows, OfEverySystem) {
  EXPECT_EQ(meaning(R"({"prompt":"q","completion":"a","label":true})"), "liked user:q|assistant:a");
  EXPECT_EQ(meaning(R"({"prompt":[{"role":"user","content":"q"}],)"
                    R"("completion":[{"role":"assistant","content":"a"}],"label":false})"),
            "disliked user:q|assistant:a");
  EXPECT_EQ(meaning(R"({"instruction":"q","input":"","output":"a","kto_tag":false})"),
            "disliked user:q|assistant:a");
  EXPECT_EQ(meaning(R"({"messages":[{"role":"user","content":"q"},)"
                    R"({"role":"assistant","content":"k"},{"role":"user","content":"r"},)"
                    R"({"role":"assistant","content":"a"}],"label":true})"),
            "liked user:q|[assistant:k]|user:r|assistant:a");
  EXPECT_EQ(
      meaning(R"({"ask":"q","say":"a","good":1})",
              of_kind(std::nullopt, "", R"({"prompt":"ask","response":"say","kto_tag":"good"})")),
      "liked user:q|assistant:a");
  EXPECT_EQ(
      meaning(R"({"prompt":"q","completion":"a","label":"yes"})", of_kind(SampleKind::kUnpaired)),
      "problem: column \"label\" is not true or false (got a string)");
  EXPECT_EQ(meaning(R"({"prompt":"q","completion":"","label":true})"), "problem: empty answer");
}

// A column "label" that is no judgement leaves rows what they were.
TEST(UnpairedRows, AreNotGuessedFromAnyLabel) {
  EXPECT_EQ(meaning(R"({"messages":[{"role":"user","content":"q"},)"
                    R"({"role":"assistant","content":"a"}],"label":"news"})"),
            "an instruction");
  EXPECT_EQ(meaning(R"({"query":"q","response":"a","label":true})"), "an instruction");
}

// --- steps
// -----------------------------------------------------------------------------------------

TEST(StepsRows, OfMindSpeedAndOfTrl) {
  EXPECT_EQ(meaning(R"({"input":"q a ки b ки","value":["+","-"]})"), R"(q a ки b ки []["+","-"])");
  EXPECT_EQ(meaning(R"({"prompt":"q","completions":["a","b"],"labels":[true,false]})"),
            R"(q ["a","b"][true,false])");
  EXPECT_EQ(meaning(R"({"prompt":"q","completions":["a"],"labels":[true,false]})"),
            "problem: the row has not one value for each step (1 steps, 2 values)");
  EXPECT_EQ(meaning(R"({"input":"q","value":[]})", of_kind(SampleKind::kSteps)),
            "problem: no step is judged");
}

// --- prompts
// ---------------------------------------------------------------------------------------

TEST(PromptRows, HaveTheirOtherColumnsBeside) {
  const auto prompts = of_kind(SampleKind::kPrompts);
  EXPECT_EQ(meaning(R"({"prompt":"q","solution":"4","level":3})", prompts),
            R"(user:q {"solution":"4","level":3,"labels":"4"})");
  EXPECT_EQ(meaning(R"({"prompt":[{"role":"user","content":"q"}],"solution":"4"})", prompts),
            R"(user:q {"solution":"4"})");
  // The last answer is what is to be answered; earlier ones are part of the question.
  EXPECT_EQ(meaning(R"({"messages":[{"role":"user","content":"q"},)"
                    R"({"role":"assistant","content":"k"},{"role":"user","content":"r"},)"
                    R"({"role":"assistant","content":"a"}],"solution":"4"})",
                    prompts),
            R"(user:q|assistant:k|user:r {"solution":"4","labels":"a"})");
  EXPECT_EQ(meaning(R"({"instruction":"q","input":"i","output":"a"})", prompts),
            "user:q\ni {\"output\":\"a\",\"labels\":\"a\"}");
  // DeepScaleR: two columns could be the answer.
  EXPECT_EQ(meaning(R"({"problem":"q","answer":"4","solution":"2+2"})", prompts),
            R"(user:q {"answer":"4","solution":"2+2","labels":"4"})");
  EXPECT_EQ(meaning(R"({"text":"q"})", prompts), "text:q {}");
  EXPECT_EQ(meaning(R"({"messages":[{"role":"system","content":"s"}]})", prompts),
            "problem: the last message is not an answer (got \"system\")");
}

TEST(PromptRows, OfMindSpeedsHandlers) {
  const std::string orz = R"({"problem":"q","answer":"4","id":1})";
  const char* map = R"({"prompt":"problem","query":"","response":"answer","system":""})";
  for (const char* handler :
       {"R1AlpacaStyleInstructionHandler", "PPOAlpacaStyleInstructionHandler"}) {
    EXPECT_EQ(meaning(orz, of_kind(std::nullopt, handler, map)),
              R"(user:q {"answer":"4","id":1,"labels":"4"})");
  }
  EXPECT_EQ(meaning(R"({"conversations":[{"from":"human","value":"q"},)"
                    R"({"from":"gpt","value":"4"}]})",
                    of_kind(std::nullopt, "R1SharegptStyleInstructionHandler")),
            R"(user:q {"labels":"4"})");
  EXPECT_EQ(meaning(R"({"data_source":"math","prompt":[{"role":"user","content":"q"}],)"
                    R"("reward_model":{"ground_truth":"4","style":"rule"}})",
                    of_kind(std::nullopt, "Math17kAlpacaStyleInstructionHandler")),
            R"(user:q {"data_source":"math","reward_model":{"ground_truth":"4","style":"rule"},)"
            R"("labels":"4"})");
}

// --- refusals
// --------------------------------------------------------------------------------------

TEST(Descriptions, NameColumnsThatAreThere) {
  const auto told = [](const std::string& row, SampleKind kind) {
    return preference_handler(row, of_kind(kind))->description();
  };
  // Whole conversations in chosen and rejected: there is no column of prompts.
  EXPECT_EQ(
      told(R"({"chosen":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],)"
           R"("rejected":[{"role":"user","content":"q"},{"role":"assistant","content":"b"}]})",
           SampleKind::kPairs),
      "pairs: messages (role,content), chosen, rejected");
  EXPECT_EQ(told(R"({"prompt":[{"role":"user","content":"q"}],)"
                 R"("chosen":[{"role":"assistant","content":"a"}],)"
                 R"("rejected":[{"role":"assistant","content":"b"}]})",
                 SampleKind::kPairs),
            "pairs: messages (prompt: role,content), chosen, rejected");
  EXPECT_EQ(told(R"({"completion":[{"role":"user","content":"q"},)"
                 R"({"role":"assistant","content":"a"}],"label":true})",
                 SampleKind::kUnpaired),
            "liked or not: messages (role,content), completion, label");
  EXPECT_EQ(told(R"({"prompt":"q"})", SampleKind::kPrompts), "prompts: query/response (prompt)");
  EXPECT_EQ(told(R"({"prompt":"q","answer":"1"})", SampleKind::kPrompts),
            "prompts: query/response (prompt,answer)");
}

TEST(RowKinds, AColumnThatLacksIsSaidWithWhatTheRowsAre) {
  const std::string pairs = R"({"prompt":"q","chosen":"a","rejected":"b"})",
                    judged = R"({"prompt":"q","completion":"a","label":true})";
  EXPECT_THAT(refusal_of_row(pairs, of_kind(SampleKind::kLabelled)),
              HasSubstr("the rows are pairs: danlu rlhf --rlhf_type rm makes a reward model"));
  EXPECT_THAT(refusal_of_row(pairs, of_kind(SampleKind::kUnpaired)),
              HasSubstr("the rows are preference pairs: danlu rlhf --rlhf_type dpo"));
  EXPECT_THAT(refusal_of_row(judged, of_kind(SampleKind::kPairs)),
              HasSubstr("the rows are answers that are liked or not: danlu rlhf --rlhf_type kto"));
  EXPECT_THAT(refusal_of_row(R"({"instruction":"q","output":"a"})", of_kind(SampleKind::kPairs)),
              HasSubstr("rows of questions and answers alone: danlu sft"));
}

TEST(RowKinds, RowsOfAnotherKindAreRefusedByTheCommandThatTrainsOnThem) {
  const auto sft = of_kind(SampleKind::kTokens);
  EXPECT_THAT(refusal_of_row(R"({"prompt":"q","chosen":"a","rejected":"b"})", sft),
              testing::AllOf(HasSubstr("column \"rejected\": preference pairs"),
                             HasSubstr("hint: danlu rlhf --rlhf_type dpo")));
  EXPECT_THAT(refusal_of_row(R"({"instruction":"q","chosen":"a","rejected":"b"})",
                             of_kind(SampleKind::kTokens, "AlpacaStylePairwiseHandler")),
              testing::AllOf(StartsWith("[handler_name] AlpacaStylePairwiseHandler: the rows are "
                                        "preference pairs, and texts or conversations are needed"),
                             HasSubstr("hint: danlu rlhf --rlhf_type dpo")));
  EXPECT_THAT(refusal_of_row(R"({"a":"q","b":"a","good":true})",
                             of_kind(SampleKind::kTokens, "", R"({"kto_tag":"good"})")),
              HasSubstr("hint: danlu rlhf --rlhf_type kto"));
  EXPECT_THAT(refusal_of_row(R"({"problem":"q","answer":"a"})",
                             of_kind(SampleKind::kTokens, "R1AlpacaStyleInstructionHandler")),
              HasSubstr("hint: danlu rlhf --rlhf_type grpo"));
  EXPECT_THAT(refusal_of_row(R"({"input":"q","value":["+"]})",
                             of_kind(SampleKind::kPairs, "AlpacaStyleProcessRewardHandler")),
              HasSubstr("hint: danlu posttrain --stage prm"));
  EXPECT_THAT(refusal_of_row(R"({"query":"q","response":"a"})", of_kind(SampleKind::kPairs)),
              testing::AllOf(StartsWith("[dataset] preference pairs have a column \"chosen\"; "
                                        "there are: query, response"),
                             HasSubstr("danlu sft")));
}

}  // namespace
}  // namespace danlu::data
