#include "eval/needle/needle.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>

#include "base/file.h"
#include "eval/needle/needle_score.h"
#include "eval/needle/sentences.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"
#include "support/throws.h"
#include "text/tokenizer.h"

namespace danlu::eval {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// Whose tokens are bytes.
class ByteModel : public Model {
 public:
  void answer(const std::vector<Call>&, const OnAnswer&) override {}
  std::string chat_text(const std::vector<text::Message>&) const override { return ""; }
  bool chat_text_has_bos() const override { return false; }
  int64_t count_tokens(const std::string& text) const override {
    return static_cast<int64_t>(text.size());
  }
  Json identity() const override { return {}; }
};

Json yaml_as_json(const YAML::Node& node) {
  if (node.IsMap()) {
    Json object = Json::object();
    for (const auto& pair : node) object[pair.first.as<std::string>()] = yaml_as_json(pair.second);
    return object;
  }
  if (node.IsSequence()) {
    Json list = Json::array();
    for (const auto& value : node) list.push_back(yaml_as_json(value));
    return list;
  }
  // "!": quoted.
  if (int64_t number; node.Tag() != "!" && YAML::convert<int64_t>::decode(node, number))
    return number;
  if (double number; node.Tag() != "!" && YAML::convert<double>::decode(node, number))
    return number;
  return node.as<std::string>();
}

Json built_in_node() {
  const fs::path path = fs::path(DANLU_SOURCE_DIR) / "src/eval/tasks/needlebench.yaml";
  return yaml_as_json(YAML::LoadFile(path.string()))["needle"];
}

/// The built-in plan with short lengths.
Json short_node() {
  Json node = built_in_node();
  node["windows"] = {{"1k", {{"lengths", {1500, 2500}}, {"depths", {0, 40, 100}}}}};
  for (auto& [name, kind] : node["kinds"].items()) kind["repeats"] = 2;
  for (auto& [name, language] : node["languages"].items()) language["buffer"] = 100;
  return node;
}

class NeedleBench : public testing::Test {
 protected:
  NeedleBench() {
    std::string english, chinese, needles;
    for (int essay = 0; essay < 12; ++essay) {
      std::string text, zh;
      for (int i = 0; i < 8; ++i) {
        text += fmt::format("Essay {} says its sentence number {}. ", essay, i);
        zh += fmt::format("第{}篇文章的第{}句话。", essay, i);
      }
      english += Json{{"text", text}}.dump() + "\n";
      chinese += Json{{"text", zh + zh}}.dump() + "\n";
    }
    for (int i = 0; i < 4; ++i) {
      needles += Json{{"language", "English"},
                      {"needle", fmt::format("The fruit of tree {} is fruit{}.", i, i)},
                      {"retrieval_question",
                       fmt::format("What is the fruit of tree {}? Please answer in the format 'The "
                                   "fruit of tree {} is ______.'",
                                   i, i)},
                      {"arg2", fmt::format("fruit{}", i)}}
                     .dump() +
                 "\n";
      needles +=
          Json{
              {"language", "Chinese"},
              {"needle", fmt::format("{}号树的果实是果{}。", i, i)},
              {"retrieval_question",
               fmt::format("{}号树的果实是什么？请按照'{}号树的果实是______。'的格式回答。", i, i)},
              {"arg2", fmt::format("果{}", i)}}
              .dump() +
          "\n";
    }
    Json chains = Json::array();
    for (int count = 2; count <= 5; ++count) {
      Json chain = {{"question", "Who is last?"}, {"answer", fmt::format("Person{}", count)}};
      for (int i = 0; i < count; ++i)
        chain["derivations"].push_back(fmt::format("Person{} follows Person{}.", i + 1, i));
      chains.push_back(chain);
    }
    write("PaulGrahamEssays.jsonl", english);
    write("zh_finance.jsonl", chinese);
    write("needles.jsonl", needles);
    write("multi_needle_reasoning_en.json", chains.dump());
    write("multi_needle_reasoning_zh.json", chains.dump());
  }

  void write(const std::string& name, const std::string& text) const {
    write_file_atomic(folder_ / name, text);
  }
  std::shared_ptr<const NeedleData> data(const Json& node = short_node()) const {
    NeedlePlan plan = parse_needle_plan(node, "test.yaml");
    plan.where_from = "danlu download it";
    return std::make_shared<NeedleData>(std::move(plan), folder_ / "", fs::path(), &model_);
  }
  NeedleSource source(const std::string& kind, const Json& node = short_node()) const {
    return NeedleSource(data(node), "needlebench_1k_" + kind);
  }
  std::string error(const std::string& kind = "s_rt", const Json& node = short_node()) const {
    return test::error_of([&] { source(kind, node).item(0); });
  }
  ByteModel model_;
  test::TemporaryDirectory folder_;
};

/// What a prompt's document is, and what of the document is not a needle.
std::string document_of(const Item& item) {
  const std::string& prompt = item.calls.at(0).context;
  const bool english = item.doc["language"] == "English";
  const std::string before = english ? "by the user is " : "给你的文档是";
  const std::string behind = english ? "\n\nNow, the question" : "\n\n现在请问：";
  const size_t begin = prompt.find(before) + before.size();
  return prompt.substr(begin, prompt.rfind(behind) - begin);
}

std::string without_needles(const Item& item, std::vector<size_t>* places = nullptr) {
  std::string document = document_of(item);
  for (const Json& needle : item.doc["needles"]) {
    const std::string text = "\n" + needle.get<std::string>() + "\n";
    const size_t at = document.find(text);
    EXPECT_NE(at, document.npos) << text;
    document.erase(at, text.size());
    if (places) places->push_back(at);
  }
  return document;
}

TEST_F(NeedleBench, TheWholePromptIsAsWritten) {
  Json node = short_node();
  node["windows"]["1k"]["lengths"] = {250};
  const Item item = source("s_rt", node).item(0);
  const std::string number = item.target.get<std::string>().substr(5);
  const std::string& prompt = item.calls[0].context;
  EXPECT_TRUE(prompt.starts_with(
      "You are an intelligent AI assistant skilled in answering user questions.\nPlease keep your "
      "answers concise and clear. Do not talk about irrelevant topics or repeat your answers.\nThe "
      "document given to you by the user is \nThe fruit of tree " +
      number + " is fruit" + number + ".\nEssay "))
      << prompt;
  EXPECT_TRUE(prompt.ends_with(
      ".\n\nNow, the question is: What is the fruit of tree " + number +
      "? Before answering, please consider what in the document is most relevant to this question. "
      "Please answer in the format 'The fruit of tree " +
      number + " is ______.'"))
      << prompt;
  EXPECT_EQ(item.calls[0].kind, CallKind::kGeneration);
  EXPECT_EQ(item.calls[0].rules.max_tokens, 128);
}

TEST_F(NeedleBench, TheChinesePromptIsAsWritten) {
  const NeedleSource items = source("s_rt");
  const Item item = items.item(2 * 3);  // behind two lengths at three depths in English
  const std::string number = item.target.get<std::string>().substr(3);
  const std::string& prompt = item.calls[0].context;
  EXPECT_TRUE(
      prompt.starts_with("你是一个善于回答用户问题的智能AI助手\n请保持你的回答简洁清楚。不要"
                         "说和下面文档中的无关的话，或重复你的回答\n用户现在给你的文档是\n" +
                         number + "号树的果实是果" + number + "。\n第"))
      << prompt;
  EXPECT_TRUE(
      prompt.ends_with("。\n\n现在请问：" + number +
                       "号树的果实是什么？在回答之前，请思考文档中与此问题最相关的内容是什么"
                       "。请按照'" +
                       number + "号树的果实是______。'的格式回答。"))
      << prompt;
}

TEST_F(NeedleBench, EveryItemIsAsLongAndAsDeepAsItSays) {
  for (const char* kind : {"s_rt", "m_rs", "m_rt"}) {
    const NeedleSource items = source(kind);
    std::set<std::string> seen;
    for (int64_t i = 0; i < items.size(); ++i) {
      const Item item = items.item(i);
      EXPECT_EQ(item.doc_id, i);
      const auto length = item.doc["length"].get<int64_t>();
      const std::string document = document_of(item);
      // Tokens are bytes, the longest sentence has 40.
      EXPECT_LE(document.size(), static_cast<size_t>(length - 100));
      EXPECT_GT(document.size(), static_cast<size_t>(length - 100 - 40));
      EXPECT_EQ(item.doc["context_tokens"].get<size_t>(), document.size());
      EXPECT_TRUE(seen.insert(item.calls[0].context).second) << i;
      std::vector<size_t> places;
      const std::string hay = without_needles(item, &places);
      const bool everywhere = item.doc["depth"].is_null();
      for (size_t k = 0; k < places.size(); ++k) {
        const double depth = everywhere
                                 ? item.doc["depths"][k].get<double>()
                                 : std::min(100.0, item.doc["depth"].get<double>() + 10.0 * k);
        const double at = static_cast<double>(places[k]);
        // Needles that follow at the same place are found there too: all were taken out before.
        EXPECT_LE(at, depth / 100 * static_cast<double>(hay.size()) + 0.5) << kind << i;
        EXPECT_GT(at, depth / 100 * static_cast<double>(hay.size()) - 40) << kind << i;
        const bool at_border = places[k] == 0 || hay[places[k] - 1] == '.' ||
                               hay.substr(places[k] - 3, 3) == "。" || places[k] == hay.size() ||
                               hay[places[k] - 1] == ' ';
        EXPECT_TRUE(at_border) << hay.substr(places[k] - 10, 20);
      }
    }
  }
}

TEST_F(NeedleBench, TheHaystackIsWholeTextsInAnOrderOfTheRepeat) {
  const auto all = data();
  const NeedleLanguage& english = all->plan().languages[0];
  ASSERT_EQ(english.name, "English");
  std::set<std::string> firsts;
  for (int64_t repeat = 0; repeat < 6; ++repeat) {
    const std::string longer = all->haystack(english, repeat, 3000).text;
    EXPECT_EQ(longer, all->haystack(english, repeat, 3000).text);
    EXPECT_TRUE(longer.starts_with(all->haystack(english, repeat, 1000).text));
    firsts.insert(longer.substr(0, 9));
    // Sentences 0 … 7 of an essay, then those of another one.
    std::set<std::string> essays;
    for (size_t at = 0; at + 340 < longer.size(); at += longer.find(" number 7.", at) + 10 - at) {
      const size_t begin = longer.find("Essay", at);
      const std::string name = longer.substr(begin, longer.find(" says", begin) - begin);
      EXPECT_TRUE(essays.insert(name).second);
      EXPECT_EQ(longer.find(name + " says its sentence number 0.", begin), begin);
    }
    EXPECT_GE(essays.size(), 8u);
  }
  EXPECT_GE(firsts.size(), 3u);
}

// Recorded from Python 3.11: random.seed(c), random.shuffle(list) for c = 0 … repeat.
TEST_F(NeedleBench, OrdersAreThoseOfPython) {
  EXPECT_THAT(needle_order(8, 0), ElementsAre(4, 1, 5, 2, 0, 3, 7, 6));
  EXPECT_THAT(needle_order(8, 1), ElementsAre(2, 7, 1, 3, 6, 4, 0, 5));
  EXPECT_THAT(needle_order(8, 9), ElementsAre(5, 4, 6, 0, 1, 7, 3, 2));
  EXPECT_THAT(needle_order(1, 0), ElementsAre(0));
  EXPECT_TRUE(needle_order(0, 0).empty());
}

// Recorded from Python 3.11: random.seed(repeat), random.choice of the four.
TEST_F(NeedleBench, TheNeedleIsTheOneThatPythonChooses) {
  Json node = short_node();
  node["kinds"]["s_rt"]["repeats"] = 6;
  const NeedleSource items = source("s_rt", node);
  std::string chosen;
  for (int64_t repeat = 0; repeat < 6; ++repeat)
    chosen += items.item(items.size() / 6 * repeat).target.get<std::string>().substr(5);
  EXPECT_EQ(chosen, "310112");
}

TEST_F(NeedleBench, RepeatsHaveOtherNeedlesAndOtherTexts) {
  const NeedleSource items = source("s_rt");
  ASSERT_EQ(items.size(), 2 * 2 * 2 * 3);
  const Item first = items.item(0), later = items.item(items.size() / 2);
  EXPECT_EQ(first.doc["length"], later.doc["length"]);
  EXPECT_EQ(later.doc["repeat"], 1);
  EXPECT_NE(first.target, later.target);
  EXPECT_NE(without_needles(first).substr(0, 12), without_needles(later).substr(0, 12));
}

TEST_F(NeedleBench, AChainsAnswerIsTheTarget) {
  const NeedleSource items = source("m_rs");
  ASSERT_EQ(items.size(), 2 * 2 * 4 * 2 * 3);
  const Item item = items.item(2 * 3);  // the first of three needles
  EXPECT_EQ(item.doc["needles"].size(), 3u);
  EXPECT_EQ(item.target, "Person3");
  EXPECT_EQ(needle_item_score(item.doc, "It is Person3."), 100);
  EXPECT_EQ(needle_item_score(item.doc, "it is person3"), 100);
  EXPECT_EQ(needle_item_score(item.doc, "Person4"), 0);
  EXPECT_TRUE(
      item.calls[0].context.ends_with("\n\nNow, the question is: Who is last?Before answering, "
                                      "please consider what in the document "
                                      "is most relevant to this question."))
      << item.calls[0].context;
}

TEST_F(NeedleBench, AllQuestionsOfMultiRetrievalAreAskedAtOnce) {
  const NeedleSource items = source("m_rt");
  ASSERT_EQ(items.size(), 2 * 2 * 2);
  const Item item = items.item(0);
  ASSERT_EQ(item.target.size(), 3u);
  const auto number = [&](size_t i) { return item.target[i].get<std::string>().substr(5); };
  std::string questions, forms;
  for (const size_t i : {0, 1, 2}) {
    questions += (i ? "、" : "") + ("What is the fruit of tree " + number(i)) + "?";
    forms += (i ? "、" : "") + ("The fruit of tree " + number(i)) + " is ______";
  }
  EXPECT_EQ(item.doc["question"].get<std::string>(),
            questions +
                "Before answering, please consider what in the document is most relevant to this "
                "question. Please answer in the format of '" +
                forms + "'");
  EXPECT_TRUE(item.calls[0].context.ends_with(" is ______'\n"));
  EXPECT_NE(item.calls[0].context.find("\n\nNow, the questions are: What is"), std::string::npos);
  const Item chinese = items.item(2);
  EXPECT_TRUE(chinese.calls[0].context.starts_with(
      "你是一个善于回答用户问题的智能AI助手\n请保持你的回答简洁清楚。不要说和下面文档中的无关的话，"
      "或重复你的回答\n请先仔细阅读下面的文档再依次回答最后提出的问题\n用户现在给你的文档是"));
  const auto zh = [&](size_t i) { return chinese.target[i].get<std::string>().substr(3); };
  EXPECT_TRUE(chinese.calls[0].context.ends_with(
      "\n\n现在请问：" + zh(0) + "号树的果实是什么？、" + zh(1) + "号树的果实是什么？、" + zh(2) +
      "号树的果实是什么？在回答之前，请思考文档中与此问题最相关的内容是什么。请按照'" + zh(0) +
      "号树的果实是______、" + zh(1) + "号树的果实是______、" + zh(2) +
      "号树的果实是______'的格式回答。\n"))
      << chinese.doc["question"];
  EXPECT_NEAR(needle_item_score(item.doc, "fruit" + number(1)), 100.0 / 3, 1e-9);
  EXPECT_NEAR(needle_item_score(item.doc, "none"), 0, 1e-9);
}

TEST_F(NeedleBench, TheBuiltInFileAsksWhatNeedleBenchAsks) {
  const NeedlePlan plan = parse_needle_plan(built_in_node(), "needlebench.yaml");
  ASSERT_EQ(plan.windows.size(), 4u);
  // int(100 / 19 * i) in Python 3.11.
  for (const size_t short_window : {0, 1})
    EXPECT_THAT(
        plan.windows[short_window].depths,
        ElementsAre(0, 5, 10, 15, 21, 26, 31, 36, 42, 47, 52, 57, 63, 68, 73, 78, 84, 89, 94, 100));
  for (const size_t long_window : {2, 3})
    EXPECT_THAT(plan.windows[long_window].depths,
                ElementsAre(0, 10, 21, 31, 42, 52, 63, 73, 84, 94, 100));
  EXPECT_EQ(plan.windows[2].lengths.size(), 8u);
  EXPECT_EQ(plan.kinds.at(NeedleKind::kSingleRetrieval).repeats, 10);
  EXPECT_EQ(plan.kinds.at(NeedleKind::kMultiRetrieval).repeats, 25);
  const auto& buffers = plan.languages[0].buffers;
  EXPECT_EQ(buffers.at(NeedleKind::kSingleRetrieval).at("8k"), 800);
  EXPECT_EQ(buffers.at(NeedleKind::kMultiReasoning).at("8k"), 1000);
  EXPECT_EQ(buffers.at(NeedleKind::kMultiRetrieval).at("128k"), 3000);
  EXPECT_EQ(plan.languages[1].buffers.at(NeedleKind::kMultiRetrieval).at("32k"), 200);
  std::vector<std::string> names;
  for (const Task& task : needle_tasks(plan)) names.push_back(task.name);
  EXPECT_EQ(names.size(), 12u);
  EXPECT_THAT(names, testing::IsSupersetOf({"needlebench_4k_s_rt", "needlebench_128k_m_rt"}));
  const std::vector<Group> groups = needle_groups(plan);
  EXPECT_EQ(groups[0].name, "needlebench_4k");
  EXPECT_THAT(groups[0].members,
              ElementsAre("needlebench_4k_s_rt", "needlebench_4k_m_rs", "needlebench_4k_m_rt"));
  EXPECT_THAT(groups[0].weights, ElementsAre(0.4, 0.3, 0.3));
  EXPECT_EQ(groups.back().name, "needlebench");
}

TEST_F(NeedleBench, ATextThatIsTooShortForNeedlesHoldsThemAlone) {
  Json node = short_node();
  node["windows"]["1k"]["lengths"] = {120};
  const Item item = source("m_rt", node).item(0);
  EXPECT_EQ(without_needles(item), "");
}

TEST_F(NeedleBench, AnythingInATextStaysThere) {
  write("PaulGrahamEssays.jsonl",
        Json{{"text", std::string(700, 'x') + " {question} {document}. " + std::string(700, 'y')}}
            .dump());
  Json node = short_node();
  node["windows"]["1k"]["lengths"] = {1400};
  EXPECT_THAT(without_needles(source("s_rt", node).item(0)), HasSubstr("{question} {document}."));
}

TEST_F(NeedleBench, AMissingFileIsNamedWithWhereItComesFromAtOnce) {
  fs::remove(folder_ / "zh_finance.jsonl");
  EXPECT_THAT(test::error_of<DataError>([&] { source("s_rt"); }),
              AllOf(HasSubstr("NeedleBench's file zh_finance.jsonl is not there"),
                    HasSubstr("danlu download it")));
}

/// Who is not there when the items are planned.
class AbsentModel final : public ByteModel {
  int64_t count_tokens(const std::string&) const override { throw InternalError("absent"); }
};

TEST_F(NeedleBench, AModelThatCountsNeedNotBeThereYet) {
  const AbsentModel absent;
  const NeedleSource items(
      std::make_shared<NeedleData>(parse_needle_plan(short_node(), "test.yaml"), folder_ / "",
                                   fs::path(), &absent),
      "needlebench_1k_s_rt");
  EXPECT_EQ(items.size(), 24);
  Json node = short_node();
  node["windows"]["1k"]["lengths"] = {100, 100000};
  const NeedleSource longer = source("s_rt", node);
  EXPECT_THAT(test::error_of<DataError>([&] { longer.check_texts(); }),
              HasSubstr("all texts together have"));
}

TEST_F(NeedleBench, FilesMayLieInAFolderOfTheBenchmark) {
  fs::create_directory(folder_ / "needlebench");
  fs::rename(folder_ / "needles.jsonl", folder_ / "needlebench/needles.jsonl");
  EXPECT_GT(source("s_rt").size(), 0);
}

TEST_F(NeedleBench, ARowWithoutAFieldSaysWhatItHas) {
  write("needles.jsonl", "{\"language\":\"English\",\"needle\":\"a\",\"query\":\"b\"}\n");
  EXPECT_THAT(error(),
              HasSubstr("needles.jsonl:1: a row needs \"retrieval_question\" / \"question\" "
                        "(a text that is not empty), it has: language, needle, query"));
  write("needles.jsonl",
        "{\"language\":\"English\",\"needle\":\"a\",\"question\":\"b\",\"arg2\":\"\"}");
  EXPECT_THAT(error(), HasSubstr("\"keyword\" / \"arg2\""));
  write("needles.jsonl", "{\"language\":\"Dutch\"}\n");
  EXPECT_THAT(error(), HasSubstr("no row is of the language English"));
  write("PaulGrahamEssays.jsonl", "{\"text\":\"a.\"}\n{\"txt\":1}\n");
  EXPECT_THAT(
      test::error_of<DataError>([&] { data()->haystack(data()->plan().languages[0], 0, 9); }),
      HasSubstr("PaulGrahamEssays.jsonl:2: a row needs \"text\" (a text), it has: txt"));
  write("PaulGrahamEssays.jsonl", "{\"text\":\n");
  EXPECT_THAT(
      test::error_of<DataError>([&] { data()->haystack(data()->plan().languages[0], 0, 9); }),
      HasSubstr("PaulGrahamEssays.jsonl:"));
}

TEST_F(NeedleBench, FieldsMayBeToldApartByLanguage) {
  write("multi_needle_reasoning_en.json",
        R"([{"id":1,"derivations_en":["A."],"question_en":"Q?","answer_en":"x","question":"错"},
            {"id":2,"english":{"derivations":["A.","B."],"question":"R?","answer":"y"},
             "chinese":{"derivations":["甲"],"question":"问？","answer":"乙"}}])");
  const auto all = data();
  const NeedleLanguage& english = all->plan().languages[0];
  EXPECT_EQ(all->chains(english, 1).at(0)->question, "Q?");
  EXPECT_EQ(all->chains(english, 2).at(0)->answer, "y");
}

TEST_F(NeedleBench, TooShortOrTooFewDataAreRefused) {
  Json node = short_node();
  node["windows"]["1k"]["lengths"] = {100000};
  EXPECT_THAT(error("s_rt", node), HasSubstr("all texts together have"));
  write("PaulGrahamEssays.jsonl", "");
  EXPECT_THAT(error(), HasSubstr("PaulGrahamEssays.jsonl: the file is empty"));
  write("PaulGrahamEssays.jsonl", "{\"text\":\"\"}\n");
  EXPECT_THAT(error(), HasSubstr("all texts together have 0 tokens"));
  node = short_node();
  node["windows"]["1k"]["depths"] = 5;
  const std::string needles = read_file(folder_ / "needles.jsonl");
  write("needles.jsonl", needles + needles);  // the same ones twice
  EXPECT_THAT(error("m_rt", node),
              HasSubstr("5 needles with different keywords are needed (English), there are 4"));
  node = short_node();
  node["kinds"]["m_rs"]["needles"] = {7};
  EXPECT_THAT(error("m_rs", node), HasSubstr("no row has 7 derivations"));
  EXPECT_THAT(test::error_of<UsageError>([&] { source("x"); }),
              HasSubstr("needlebench has no task needlebench_1k_x"));
}

TEST_F(NeedleBench, WhatIsWrongInTheFileOfTheBenchmarkIsNamed) {
  const auto error = [](const std::function<void(Json&)>& change) {
    Json node = built_in_node();
    change(node);
    return test::error_of<DataError>([&] { parse_needle_plan(node, "my.yaml"); });
  };
  EXPECT_THAT(error([](Json& node) { node["depth"] = 3; }),
              HasSubstr("my.yaml: needle: unknown key \"depth\""));
  EXPECT_THAT(error([](Json& node) { node["kinds"]["s_rt"].erase("repeats"); }),
              HasSubstr("\"repeats\" is missing"));
  EXPECT_THAT(error([](Json& node) { node["kinds"]["m_rt"]["repeats"] = "ten"; }),
              HasSubstr("must hold whole numbers from 1 to 100000000, got \"ten\""));
  EXPECT_THAT(error([](Json& node) { node["windows"]["4k"]["depths"] = {50, 20}; }),
              HasSubstr("ascending"));
  EXPECT_THAT(error([](Json& node) { node["windows"]["4k"]["depths"] = 1; }),
              HasSubstr("from 2 to 101, got 1"));
  EXPECT_THAT(error([](Json& node) { node["windows"]["4k"]["lengths"] = Json::array(); }),
              HasSubstr("needle.windows.4k: \"lengths\" must be a list that is not empty, got []"));
  EXPECT_THAT(error([](Json& node) { node["languages"]["English"]["buffer"]["m_rt"].erase("8k"); }),
              HasSubstr("needle.languages.English.buffer.m_rt: \"8k\" is missing"));
  EXPECT_THAT(error([](Json& node) { node["languages"]["English"]["prompt"] = "{document}"; }),
              HasSubstr("needle.languages.English: \"prompt\" must hold {question} once"));
  EXPECT_THAT(error([](Json& node) { node["kinds"]["s_rt"]["gap"] = 1; }),
              HasSubstr("needle.kinds.s_rt: unknown key \"gap\""));
}

/// Who adds five tokens to every text, so that those of sentences are more than those of the text.
class FramingModel final : public ByteModel {
  int64_t count_tokens(const std::string& text) const override {
    return ByteModel::count_tokens(text) + 5;
  }
};

TEST_F(NeedleBench, ATextIsFullHoweverTokensOfSentencesAddUp) {
  const FramingModel framing;
  const NeedleData all(parse_needle_plan(short_node(), "test.yaml"), folder_ / "", fs::path(),
                       &framing);
  for (const int64_t wanted : {500, 2000, 3000}) {
    const Haystack haystack = all.haystack(all.plan().languages[0], 1, wanted);
    EXPECT_EQ(haystack.num_tokens, static_cast<int64_t>(haystack.text.size()) + 5);
    EXPECT_LE(haystack.num_tokens, wanted);
    EXPECT_GT(haystack.num_tokens, wanted - 80);
  }
}

// Sentences are counted one by one; the whole text must come out as long, by the tokenizer itself.
TEST_F(NeedleBench, RealTextsAreAsLongAsTheySay) {
  DANLU_REQUIRES_SHARED();
  const fs::path corpora = test::unpacked("corpora");
  for (const auto& [from, to] : {std::pair{"sherlock.txt", "PaulGrahamEssays.jsonl"},
                                 {"zh_sanguoyanyi.txt", "zh_finance.jsonl"}}) {
    const std::string text = read_file(corpora / from);
    std::string rows;
    for (size_t at = 0, end = 0; at < text.size(); at = end) {
      end = text.find("\n", std::min(at + 9000, text.size() - 1)) + 1;
      if (end == 0) end = text.size();
      rows += Json{{"text", text.substr(at, end - at)}}.dump() + "\n";
    }
    write(to, rows);
  }
  Json node = short_node();
  node["windows"]["1k"]["lengths"] = {1000, 32000};
  const fs::path gpt2 = test::unpacked("tokenizers") / "gpt2";
  const auto tokenizer = text::Tokenizer::load(gpt2);
  const auto all = std::make_shared<NeedleData>(parse_needle_plan(node, "test.yaml"), folder_ / "",
                                                gpt2, nullptr);
  const NeedleSource items(all, "needlebench_1k_s_rt");
  for (int64_t i = 0; i < items.size(); ++i) {
    const Item item = items.item(i);
    const auto length = item.doc["length"].get<double>() - 100;
    const auto tokens = static_cast<double>(tokenizer->encode(document_of(item), false).size());
    EXPECT_NEAR(item.doc["context_tokens"].get<double>(), tokens, 0.002 * tokens + 2) << i;
    EXPECT_LE(item.doc["context_tokens"].get<double>(), length);
    EXPECT_GT(item.doc["context_tokens"].get<double>(), length - 1200) << item.doc["language"];
  }
}

TEST_F(NeedleBench, DifferencesSayWithWhatLengthsAreCounted) {
  const auto has = [](const std::string& counted_with, const char* text) {
    return std::ranges::any_of(needle_differences(counted_with), [&](const std::string& sentence) {
      return sentence.find(text) != sentence.npos;
    });
  };
  EXPECT_TRUE(has(data()->ruler().name(), "the model's own tokenizer"));
  EXPECT_FALSE(has("cl100k_base.tiktoken", "counted"));
  EXPECT_TRUE(has("other.json", "counted with other.json"));
}

TEST_F(NeedleBench, AVocabularyThatIsNotWholeIsNotCl100k) {
  write("cl100k_base.tiktoken", "IQ== 0\n");
  EXPECT_THAT(test::error_of<ModelError>([&] { data(); }), HasSubstr("cl100k_base.tiktoken"));
}

TEST(TokenRuler, TiktokenCountsTheWholeTextAndEachTokenOnce) {
  DANLU_REQUIRES_SHARED();
  // A vocabulary of bytes and "ab": "xab" cut behind "xa" has its second token in the second part.
  const test::TemporaryDirectory folder;
  std::string file;
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (int byte = 0; byte < 256; ++byte)
    file += fmt::format("{}{}== {}\n", kDigits[byte >> 2], kDigits[(byte & 3) << 4], byte);
  write_file_atomic(folder / "tiny.tiktoken", file + "YWI= 256\n");
  const auto ruler = open_token_ruler(folder / "tiny.tiktoken");
  const size_t ends[] = {2, 3, 6};
  EXPECT_THAT(ruler->count_parts("xab炼", ends), ElementsAre(1, 1, 3));
  EXPECT_EQ(ruler->count("xab炼"), 5);
  EXPECT_EQ(ruler->count(""), 0);
  EXPECT_EQ(ruler->name(), "tiny.tiktoken");
  const auto gpt2 = open_token_ruler(test::unpacked("tokenizers") / "gpt2");
  EXPECT_EQ(gpt2->count("Hello world"), 2);
}

TEST(Sentences, EndBehindTheirMarksQuotesAndLines) {
  const auto cut = [](const std::string& text, size_t most = 400) {
    std::vector<std::string> sentences;
    size_t begin = 0;
    for (const size_t end : sentence_ends(text, most)) {
      sentences.push_back(text.substr(begin, end - begin));
      begin = end;
    }
    return sentences;
  };
  EXPECT_THAT(cut("It is 3.14 now. He said \"go!\" Then? Yes"),
              ElementsAre("It is 3.14 now.", " He said \"go!\"", " Then?", " Yes"));
  EXPECT_THAT(cut("一。“二！”三；四"), ElementsAre("一。", "“二！”", "三；", "四"));
  EXPECT_THAT(cut("Title\n\nText one.\n  Two."), ElementsAre("Title\n\n", "Text one.\n", "  Two."));
  EXPECT_THAT(cut("aaa bbb ccc", 5), ElementsAre("aaa", " bbb", " ccc"));
  EXPECT_THAT(cut("炼丹炉炼丹", 2), ElementsAre("炼丹", "炉炼", "丹"));
  EXPECT_THAT(cut(""), ElementsAre());
  EXPECT_THAT(cut("...\n"), ElementsAre("...\n"));
}

}  // namespace
}  // namespace danlu::eval
