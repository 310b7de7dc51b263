// tests/cli/preference_lines.h: lines of preference training on a tiny model.
#pragma once
#include <fstream>
#include <string>
#include <vector>

#include "cli/bad_input.h"
#include "cli/logged_steps.h"
#include "support/raw_http.h"

namespace danlu::test {

class PreferenceLines : public BadInput {
 protected:
  void SetUp() override {
    BadInput::SetUp();
    std::string pairs, answers;
    for (int i = 0; i < 12; ++i) {
      const std::string prompt = "question " + std::to_string(i);
      pairs += Json{{"prompt", prompt},
                    {"chosen", "yes, " + std::string(static_cast<size_t>(i % 4), 'y')},
                    {"rejected", "no"}}
                   .dump() +
               "\n";
      answers += Json{{"prompt", prompt},
                      {"completion", "answer " + std::to_string(i * 7)},
                      {"label", i % 3 != 0}}
                     .dump() +
                 "\n";
    }
    write("pairs.jsonl", pairs);
    write("answers.jsonl", answers);
  }
  /// What `danlu infer` writes of each row of a file. model: the flags that name the model.
  std::vector<Json> rows_of_infer(const std::vector<std::string>& model,
                                  const std::string& data) const {
    std::vector<std::string> words = {"infer",    "--dataset",   data,
                                      "--output", "found.jsonl", "--overwrite",
                                      "true",     "--dtype",     "fp32"};
    words.insert(words.end(), model.begin(), model.end());
    ok(words);
    std::vector<Json> rows;
    std::ifstream file(*this / "found.jsonl");
    for (std::string text; std::getline(file, text);) rows.push_back(Json::parse(text));
    return rows;
  }
  /// What a server on this port answers to a body.
  static Json posted(uint16_t port, const std::string& path, const Json& body) {
    RawClient client(port);
    client.send(raw_request("POST", path, body.dump()));
    return Json::parse(client.response().body);
  }
  std::vector<std::string> line(const std::vector<std::string>& begin, const std::string& data,
                                const std::string& to,
                                const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = begin;
    words.insert(words.end(), {"--model",
                               good("model").string(),
                               "--dataset",
                               data,
                               "--output_dir",
                               to,
                               "--dtype",
                               "fp32",
                               "--max_steps",
                               "4",
                               "--lr",
                               "1e-3",
                               "--global_batch_size",
                               "4",
                               "--batch_size",
                               "2",
                               "--logging_steps",
                               "1",
                               "--plot_loss",
                               "false",
                               "--max_length",
                               "64",
                               "--save_steps",
                               "2",
                               "--val_ratio",
                               "0.2",
                               "--eval_steps",
                               "4",
                               "--warmup_ratio",
                               "0",
                               "--version_dir",
                               "false",
                               "--seed",
                               "5"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Json evaluation_of(const std::string& run) const {
    std::ifstream file(*this / run / "logging.jsonl");
    Json found;
    for (std::string text; std::getline(file, text);) {
      const Json record = Json::parse(text);
      if (record.contains("eval_loss")) found = record;
    }
    return found;
  }
};

}  // namespace danlu::test
