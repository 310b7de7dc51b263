// Every built-in benchmark in every style, over all rows of the real data, against prompts that a
// script wrote without templates (tools/eval_goldens/prompts.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/file.h"
#include "eval/benchmarks/prompts.h"
#include "eval/data/choose_layout.h"
#include "eval/results/sha256.h"
#include "eval/shown_chat.h"
#include "support/shared_data.h"

namespace danlu::eval {
namespace {

void add_text(Sha256& sum, const std::string& text) {
  sum.add(std::to_string(text.size()) + ":");
  sum.add(text);
}

void add_item(Sha256& sum, const Item& item) {
  add_text(sum, item.calls.front().context);
  for (const Call& call : item.calls) {
    ASSERT_EQ(call.context, item.calls.front().context);
    add_text(sum, call.continuation);
  }
  add_text(sum, item.target.dump());
}

TEST(GoldenPrompts, AreThoseOfTheScript) {
  DANLU_REQUIRES_SHARED();
  const fs::path data = test::unpacked("eval");
  const std::map<std::string, std::string> places = {{"mmlu_ppl", "mmlu"},
                                                     {"ceval", "ceval"},
                                                     {"bbh_fewshot", "bbh"},
                                                     {"agieval", "agieval"},
                                                     {"humaneval_instruct", "humaneval"}};
  const ShownChat model;
  const Catalogue catalogue = Catalogue::built_in();
  const Json goldens =
      read_json_file(fs::path(DANLU_SOURCE_DIR) / "tests/eval/golden_prompts.json");
  for (const Json& golden : goldens) {
    const std::string name = golden["name"], style = golden["style"];
    SCOPED_TRACE(name + " in the style " + style);
    const Selection selection = catalogue.select({name}, style);
    const auto place = places.find(name);
    const DataTree tree = DataTree::open(data / (place == places.end() ? name : place->second));
    PromptSettings settings{.num_fewshot = golden["num_fewshot"].get<int64_t>(),
                            .limit = std::nullopt,
                            .system_instruction = std::nullopt};
    settings.apply_chat_template = golden.value("chat", false);
    settings.language = golden.value("language", "en");
    Sha256 sum;
    size_t num_items = 0;
    // The script goes through subjects as the file has them, except where files are listed.
    std::vector<Task> tasks = selection.leaves;
    if (name != "cmmlu" && name != "ceval") {
      std::sort(tasks.begin(), tasks.end(),
                [](const Task& a, const Task& b) { return a.subject < b.subject; });
    }
    const Benchmark& benchmark = catalogue.benchmark(tasks.front().benchmark);
    const int64_t num_shots = num_shots_of(tasks.front(), settings);
    WantedData wanted{.benchmark = name, .subjects = {}, .splits = {}, .source = ""};
    for (const Task& task : tasks) {
      if (!task.subject.empty()) wanted.subjects.push_back(task.subject);
    }
    wanted.splits = needed_splits(tasks.front(), num_shots);
    const ChosenLayout chosen = choose_layout(tree, benchmark.layouts, wanted);
    for (const Task& task : tasks) {
      const TaskRows rows =
          read_rows(benchmark, task, benchmark.layouts[chosen.index], chosen.tree, num_shots);
      for (const Item& item : make_items(task, rows.test, rows.shots, settings, &model)) {
        add_item(sum, item);
        ++num_items;
      }
    }
    EXPECT_EQ(tasks.size(), golden["leaves"]);
    EXPECT_EQ(num_items, golden["items"]);
    EXPECT_EQ(sum.hex(), golden["sha256"].get<std::string>());
  }
}

}  // namespace
}  // namespace danlu::eval
