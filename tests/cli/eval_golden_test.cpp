// `danlu eval` of a small real model on real benchmarks, against what an independent computation by
// lm-eval's rules recorded (tools/eval_goldens): contexts, log-likelihoods, answers and scores.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cli/run_program.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// What log-likelihoods in float32 may differ from float64 by.
constexpr double kRelative = 1e-5;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::vector<json> rows_of(const fs::path& path) {
  std::vector<json> rows;
  std::istringstream lines(text_of(path));
  for (std::string line; std::getline(lines, line);) rows.push_back(json::parse(line));
  return rows;
}

/// The first 32 digits of each text's SHA-256, by coreutils, in one process.
std::vector<std::string> digests(const std::vector<std::string>& texts) {
  const TemporaryDirectory directory;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string name = std::to_string(1'000'000 + i);  // in this order for the shell
    write_text(directory / name, texts[i]);
  }
  const std::string command = "cd '" + directory.path().string() + "' && sha256sum 1*";
  std::vector<std::string> out;
  FILE* const pipe = ::popen(command.c_str(), "r");
  for (char line[256]; pipe && std::fgets(line, sizeof line, pipe);)
    out.emplace_back(std::string(line).substr(0, 32));
  EXPECT_TRUE(pipe && ::pclose(pipe) == 0 && out.size() == texts.size()) << command;
  out.resize(texts.size());
  return out;
}

/// A number, however it was written: lm-eval writes those of answers as texts.
double number(const json& value) {
  return value.is_string() ? std::stod(value.get<std::string>()) : value.get<double>();
}

bool truth(const json& value) { return value.is_string() ? value == "True" : value.get<bool>(); }

/// What lists of one element hold.
const json& inmost(const json& value) {
  return value.is_array() && value.size() == 1 ? inmost(value[0]) : value;
}

const json& argument(const json& sample, size_t call, size_t place) {
  return sample.at("arguments")
      .at("gen_args_" + std::to_string(call))
      .at("arg_" + std::to_string(place));
}

void expect_near(double value, double recorded, double relative, const std::string& what) {
  EXPECT_NEAR(value, recorded, relative * std::fabs(recorded)) << what;
}

void expect_scores(const json& sample, const json& scores, const std::string& where) {
  for (const auto& [metric, value] : scores.items())
    EXPECT_EQ(number(sample.at(metric)), value.get<double>()) << where << metric;
}

const json& golden() {
  static const json kGolden = json::parse(
      text_of(fs::path(DANLU_SOURCE_DIR) / "tests/eval/golden_scores.json"), nullptr, false);
  return kGolden;
}

std::vector<std::string> names_of(const std::string& kind) {
  std::vector<std::string> names;
  if (golden().contains(kind))  // else the test says that it has no runs
    for (const json& run : golden().at(kind)) names.push_back(run.at("name"));
  return names;
}

class EvalGolden : public ::testing::TestWithParam<std::string> {
 protected:
  const json& recorded(const std::string& kind) const {
    for (const json& run : golden().at(kind))
      if (run.at("name") == GetParam()) return run;
    throw std::runtime_error("no golden " + GetParam());
  }

  /// The model, with the run's chat template if it has one.
  fs::path model_of(const json& run) const {
    const fs::path model = shared_dir() / "data/models/stories260K/hf";
    if (!run.contains("chat_template")) return model;
    const fs::path copy = directory_ / "model";
    fs::create_directory(copy);
    for (const auto& entry : fs::directory_iterator(model))
      write_text(copy / entry.path().filename(), text_of(entry.path()));
    json settings = json::parse(text_of(model / "tokenizer_config.json"));
    settings["chat_template"] =
        golden().at("chat_templates").at(run.at("chat_template").get<std::string>());
    write_text(copy / "tokenizer_config.json", settings.dump());
    return copy;
  }

  /// The folder of its rows; those of its own are written first.
  fs::path data_of(const json& run) const {
    if (run.contains("data")) return unpacked("eval") / run.at("data").get<std::string>();
    const fs::path data = directory_ / "data";
    fs::create_directory(data);
    if (run.contains("files")) {
      for (const auto& [name, text] : run.at("files").items())
        write_text(data / name, text.get<std::string>());
      return data;
    }
    const json& made = run.at("made_data");
    std::vector<std::string> lines;
    std::istringstream all(text_of(unpacked("eval") / made.at("from").get<std::string>()));
    for (std::string line; std::getline(all, line);) lines.push_back(line + "\n");
    for (const auto& [name, range] : made.at("lines").items()) {
      std::string text;
      for (size_t i = range[0]; i < range[1].get<size_t>(); ++i) text += lines.at(i);
      write_text(data / name, text);
    }
    return data;
  }

  /// Runs it and keeps the samples by item and filter, and the results.
  void evaluate(const json& run) {
    const fs::path data = data_of(run), output = directory_ / "output";
    std::vector<std::string> words = {"eval",        "--model",       model_of(run).string(),
                                      "--dtype",     "fp32",          "--data_dir",
                                      data.string(), "--output_path", output.string()};
    for (const json& word : run.at("arguments")) words.push_back(word);
    for (std::string& word : words)
      if (word.ends_with(".yaml")) word = (data / word).string();
    const ProgramResult result = run_danlu(words);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const std::string task = run.at("task");
    for (const auto& entry : fs::recursive_directory_iterator(output)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("results_")) results_ = json::parse(text_of(entry.path()));
      if (!name.starts_with("samples_" + task + "_")) continue;
      for (const json& row : rows_of(entry.path()))
        samples_[{row.at("doc_id"), row.value("filter", "none")}] = row;
    }
    ASSERT_FALSE(samples_.empty()) << result.err;
    ASSERT_TRUE(results_.contains("results")) << result.err;
  }

  const json& sample(const json& item, const std::string& filter = "none") const {
    const auto found = samples_.find({item.at("doc_id").get<int>(), filter});
    if (found == samples_.end()) throw std::runtime_error("no sample of " + item.dump());
    return found->second;
  }

  void expect_results(const json& run, double relative) const {
    const json& results = results_.at("results").at(run.at("task").get<std::string>());
    for (const auto& [name, value] : run.at("results").items())
      expect_near(number(results.at(name)), value, relative, name);
  }

  TemporaryDirectory directory_;
  std::map<std::pair<int, std::string>, json> samples_;
  json results_;
};

using EvalGoldenChoice = EvalGolden;

TEST_P(EvalGoldenChoice, IsAskedAndScoredAsByTheHarness) {
  DANLU_REQUIRES_SHARED();
  const json& run = recorded("multiple_choice");
  ASSERT_NO_FATAL_FAILURE(evaluate(run));
  EXPECT_EQ(samples_.size(), run.at("items").size());
  std::vector<std::string> texts, wanted;
  for (const json& item : run.at("items")) {
    const json& given = sample(item);
    const json& answers = item.at("answers");
    ASSERT_EQ(given.at("resps").size(), answers.size());
    for (size_t i = 0; i < answers.size(); ++i) {
      const std::string where =
          "item " + item.at("doc_id").dump() + ", choice " + std::to_string(i) + ": ";
      texts.insert(texts.end(), {argument(given, i, 0), argument(given, i, 1)});
      wanted.insert(wanted.end(), {item.at("context"), answers[i].at("continuation")});
      const json& answer = given.at("resps")[i].at(0);
      expect_near(number(answer.at(0)), answers[i].at("log_likelihood"), kRelative,
                  where + "log-likelihood");
      EXPECT_EQ(truth(answer.at(1)), answers[i].at("is_greedy")) << where << "is_greedy";
      EXPECT_EQ(given.at("filtered_resps").at(i), answer) << where;
    }
    expect_scores(given, item.at("scores"), "item " + item.at("doc_id").dump() + ": ");
  }
  EXPECT_EQ(digests(texts), wanted);
  expect_results(run, 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Runs, EvalGoldenChoice, ::testing::ValuesIn(names_of("multiple_choice")),
                         [](const auto& run) { return run.param; });

using EvalGoldenText = EvalGolden;

TEST_P(EvalGoldenText, IsGeneratedAndFilteredAsByTheHarness) {
  DANLU_REQUIRES_SHARED();
  const json& run = recorded("generation");
  ASSERT_NO_FATAL_FAILURE(evaluate(run));
  size_t num_recorded = 0;
  for (const json& item : run.at("items")) num_recorded += item.at("filters").size();
  EXPECT_EQ(samples_.size(), num_recorded);
  std::vector<std::string> texts, wanted;
  for (const json& item : run.at("items")) {
    for (const auto& [filter, filtered] : item.at("filters").items()) {
      const json& given = sample(item, filter);
      texts.insert(texts.end(), {argument(given, 0, 0), inmost(given.at("resps")),
                                 inmost(given.at("filtered_resps"))});
      wanted.insert(wanted.end(), {item.at("context"), item.at("text"), filtered.at("filtered")});
      if (filtered.contains("scores"))
        expect_scores(given, filtered.at("scores"), "item " + item.at("doc_id").dump() + ": ");
    }
  }
  EXPECT_EQ(digests(texts), wanted);
  expect_results(run, 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Runs, EvalGoldenText, ::testing::ValuesIn(names_of("generation")),
                         [](const auto& run) { return run.param; });

using EvalGoldenRolling = EvalGolden;

TEST_P(EvalGoldenRolling, HasThePerplexityOfTheHarness) {
  DANLU_REQUIRES_SHARED();
  const json& run = recorded("rolling");
  ASSERT_NO_FATAL_FAILURE(evaluate(run));
  EXPECT_EQ(samples_.size(), run.at("items").size());
  std::vector<std::string> texts, wanted;
  for (const json& item : run.at("items")) {
    const json& given = sample(item);
    texts.push_back(argument(given, 0, 0));
    wanted.push_back(item.at("text"));
    expect_near(number(inmost(given.at("resps"))), item.at("log_likelihood"), kRelative,
                "text " + item.at("doc_id").dump());
  }
  EXPECT_EQ(digests(texts), wanted);
  // A perplexity is e to the power of about 8 natural units a word.
  expect_results(run, 10 * kRelative);
}

INSTANTIATE_TEST_SUITE_P(Runs, EvalGoldenRolling, ::testing::ValuesIn(names_of("rolling")),
                         [](const auto& run) { return run.param; });

}  // namespace
}  // namespace danlu::test
