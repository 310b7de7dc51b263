// tests/cli/short_training.h: a small model of any family, begun at random and trained for a few
// steps on the good data.
#pragma once
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/free_port.h"
#include "cli/bad_input.h"
#include "cli/guide_lines.h"
#include "cli/logged_steps.h"

namespace danlu::test {

class ShortTraining : public BadInput {
 protected:
  /// model/ as config.json describes it.
  void make_model(const nlohmann::json& config) const {
    write("config.json", config.dump());
    ok({"init", "--config", "config.json", "--output", "model", "--tokenizer",
        good("tokenizer").string(), "--seed", "3"});
  }
  /// `danlu sft --model model` on the good rows into `to`, with the words of `more`.
  Words train_line(const std::string& to, const std::string& more) const {
    Words line = words_of(
        "sft --model model --dtype fp32 --lr 1e-3 --global_batch_size 4 --logging_steps 1 "
        "--max_length 64 --eval_strategy no --plot_loss false " +
        more);
    const Words places = {"--dataset", good("good.jsonl").string(), "--output_dir", to};
    line.insert(line.end(), places.begin(), places.end());
    return line;
  }
  Words on_two(Words line) const {
    const Words two = {"--nproc_per_node", "2", "--master_port",
                       std::to_string(free_port().value())};
    line.insert(line.end(), two.begin(), two.end());
    return line;
  }
  std::vector<double> losses(const std::string& run_dir) const {
    std::vector<double> all;
    for (const Json& step : steps_of(*this / run_dir)) {
      if (step.contains("grad_norm")) all.push_back(step.at("loss"));
    }
    return all;
  }
  void expect_same(const std::string& a, const std::string& b) const {
    const ProgramResult same = run({"diff", a, b});
    EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  }
};

}  // namespace danlu::test
