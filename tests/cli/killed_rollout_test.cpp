// A run that learns from rewards and is killed, also in the midst of a rollout: the same command
// leaves what an undisturbed run leaves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <map>

#include "cli/bad_input.h"
#include "cli/logged_steps.h"
#include "support/slow.h"

namespace danlu::test {
namespace {

namespace fs = std::filesystem;

class KilledRollout : public BadInput {
 protected:
  void SetUp() override {
    BadInput::SetUp();
    std::string prompts;
    for (int i = 0; i < 24; ++i)
      prompts += Json{{"prompt", "question " + std::to_string(i)}}.dump() + "\n";
    write("prompts.jsonl", prompts);
    // Counts rollouts; waits in the midst of the one that the file `wait` names, until it is gone.
    write("judge.sh",
          "#!/bin/sh\necho x >> judged\n"
          "is_asked() { [ \"$(cat wait 2>/dev/null)\" = \"$(wc -l < judged | tr -d ' ')\" ]; }\n"
          "if is_asked; then echo > waiting; fi\nwhile is_asked; do sleep 0.02; done\n"
          "awk '{ print length($0) % 7 }'\n");
  }
  std::vector<std::string> line(const std::string& type, const std::string& to) const {
    const bool in_parts = type.ends_with("parts"), has_critic = type.starts_with("ppo");
    const std::string passes = has_critic ? "--num_ppo_epochs" : "--num_iterations";
    return {"rlhf",
            "--rlhf_type",
            has_critic ? "ppo" : "grpo",
            "--partial_rollout_max_split",
            in_parts ? "3" : "1",
            "--model",
            good("model").string(),
            "--dataset",
            "prompts.jsonl",
            "--reward_funcs",
            "program:sh judge.sh",
            "--num_generations",
            "2",
            "--max_completion_length",
            "6",
            passes,
            "2",
            "--output_dir",
            to,
            "--tuner",
            "full",
            "--dtype",
            "fp32",
            "--max_steps",
            "8",
            "--lr",
            "1e-2",
            "--lr_scheduler",
            "constant",
            "--global_batch_size",
            "4",
            "--batch_size",
            "2",
            "--logging_steps",
            "1",
            "--save_steps",
            "4",
            "--val_ratio",
            "0",
            "--version_dir",
            "false",
            "--log_completions",
            "true",
            "--plot_loss",
            "false",
            "--seed",
            "5"};
  }
  /// Sends the run a signal as soon as `when` is true.
  ProgramResult killed(const std::string& type, const std::string& to,
                       const std::function<bool()>& when, int signal = SIGKILL) const {
    ProgramSettings settings;
    settings.environment = {{"OMP_NUM_THREADS", "1"}};
    settings.directory = (*this / "").string();
    settings.signal = signal;
    settings.signal_when = when;
    return run_danlu(line(type, to), settings);
  }
  /// Kills every process of a run in the test's folder.
  void kill_all() const {
    for (const auto& process : fs::directory_iterator("/proc")) {
      std::error_code error;
      if (!fs::equivalent(process.path() / "cwd", *this / "", error) || error) continue;
      if (fs::read_symlink(process.path() / "exe", error).filename() == "danlu")
        ::kill(std::stoi(process.path().filename()), SIGKILL);
    }
  }
  /// Forgets rollouts that were judged, so that the next run counts its own.
  void judge_anew() const {
    for (const char* name : {"judged", "wait", "waiting"}) fs::remove(*this / name);
  }
  size_t judged() const {
    const std::string lines = content_of(*this / "judged");
    return static_cast<size_t>(std::count(lines.begin(), lines.end(), '\n'));
  }
  void expect_the_same(const std::string& got, const std::string& wanted) const {
    const auto one = steps_of(*this / got), other = steps_of(*this / wanted);
    ASSERT_EQ(one.size(), other.size());
    for (size_t step = 0; step < one.size(); ++step) {
      for (const char* name : {"loss", "grad_norm", "reward", "entropy", "loss/value_avg"})
        EXPECT_EQ(one[step].value(name, Json()), other[step].value(name, Json()))
            << name << " of step " << step + 1;
    }
    EXPECT_EQ(content_of(*this / got / "samples.jsonl"),
              content_of(*this / wanted / "samples.jsonl"))
        << "every prompt once, with the same answers";
    EXPECT_EQ(content_of(*this / got / "model.safetensors"),
              content_of(*this / wanted / "model.safetensors"));
    EXPECT_FALSE(fs::exists(*this / got / "rollouts"));
  }
};

TEST_F(KilledRollout, GoesOnAsIfNothingHadBeen) {
  for (const std::string type : {"grpo", "ppo", "grpo_parts", "ppo_parts"}) {
    if (!is_slow() && (type == "grpo" || type == "ppo_parts")) continue;
    SCOPED_TRACE(type);
    judge_anew();
    ok(line(type, type + "-whole"));
    EXPECT_EQ(judged(), 4u);
    // Four rollouts of two steps, checkpoints behind the second and the fourth. Killed while the
    // answers of each are judged, they are drawn already.
    for (int rollout = 1; rollout <= 4; ++rollout) {
      if (!is_slow() && rollout % 2 == (type == "ppo")) continue;
      SCOPED_TRACE(rollout);
      const std::string to = type + std::to_string(rollout);
      judge_anew();
      write("wait", std::to_string(rollout));
      EXPECT_EQ(killed(type, to, [&] { return fs::exists(*this / "waiting"); }).exit_code,
                128 + SIGKILL);
      EXPECT_TRUE(fs::exists(*this / to / "rollouts"));
      judge_anew();
      ok(line(type, to));
      EXPECT_EQ(judged(), static_cast<size_t>(5 - rollout)) << "only what was not judged yet";
      expect_the_same(to, type + "-whole");
    }
  }
}

TEST_F(KilledRollout, ASignalDoesNotWaitForAProgramThatHangs) {
  ok(line("grpo", "whole"));
  for (const int rollout : {1, 2}) {
    SCOPED_TRACE(rollout);
    const std::string to = "stopped" + std::to_string(rollout);
    judge_anew();
    write("wait", std::to_string(rollout));
    const ProgramResult result =
        killed("grpo", to, [&] { return fs::exists(*this / "waiting"); }, SIGTERM);
    EXPECT_EQ(result.exit_code, 143) << result.err;
    EXPECT_THAT(result.err, testing::Not(testing::HasSubstr("took longer")));
    EXPECT_THAT(result.err, testing::HasSubstr(rollout == 1 ? "no step was finished"
                                                            : "checkpoint-2 is complete"));
    judge_anew();
    ok(line("grpo", to));
    EXPECT_EQ(judged(), static_cast<size_t>(5 - rollout));
    expect_the_same(to, "whole");
  }
}

TEST_F(KilledRollout, AnswersThatWereLeftUnfinishedAreDrawnFurther) {
  const auto with = [](std::vector<std::string> words, const std::string& flag,
                       const std::string& value) {
    *(std::find(words.begin(), words.end(), flag) + 1) = value;
    return words;
  };
  for (const std::string type : {"grpo_parts", "ppo_parts"}) {
    SCOPED_TRACE(type);
    const auto saved_often = [&](const std::string& to) {
      std::vector<std::string> words = with(line(type, to), "--save_steps", "2");
      words.insert(words.end(), {"--save_total_limit", "10"});
      return words;
    };
    const std::string whole = type + "-whole", again = type + "-again";
    ok(saved_often(whole));
    double most = 0;
    for (const Json& step : steps_of(*this / whole))
      most = std::max(most, step.value("partial/max_rollouts", 0.0));
    EXPECT_GE(most, 2);
    // Checkpoints between two rollouts keep them; nothing else of the run does.
    const Json state = Json::parse(content_of(*this / whole / "checkpoint-2" / "data_state.json"));
    EXPECT_FALSE(state.at("stream").at("prompts").empty());
    fs::copy(*this / whole, *this / again,
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    for (const char* name : {"checkpoint-4", "checkpoint-6", "checkpoint-8", "DONE"})
      fs::remove_all(*this / again / name);
    EXPECT_THAT(ok(saved_often(again)).err, testing::HasSubstr("checkpoint-2 at step 2"));
    expect_the_same(again, whole);
  }
  expect_error(run(with(line("grpo_parts", "x"), "--partial_rollout_max_split", "7")), 2,
               {"--partial_rollout_max_split: an answer of 6 tokens", "--max_completion_length 7"});
}

TEST_F(KilledRollout, ASignalInAnEvaluationOnlyPutsItOff) {
  write("held.jsonl", R"({"prompt": "who?"}
{"prompt": "question 3 or 4"}
)");
  const auto evaluating = [&](const std::string& to) {
    std::vector<std::string> words = line("grpo", to);
    words.insert(words.end(), {"--val_dataset", "held.jsonl", "--eval_steps", "4"});
    return words;
  };
  const auto evaluations = [&](const std::string& of) {
    std::vector<Json> found;
    std::ifstream file(*this / of / "logging.jsonl");
    for (std::string text; std::getline(file, text);) {
      Json record = Json::parse(text);
      if (!record.contains("eval_reward")) continue;
      for (const char* name : {"eval_runtime", "eval_samples_per_second"}) record.erase(name);
      found.push_back(record);
    }
    return found;
  };
  judge_anew();
  ok(evaluating("whole"));
  ASSERT_EQ(evaluations("whole").size(), 2u);
  // Two rollouts, an evaluation, two rollouts, and the one at the end.
  EXPECT_EQ(judged(), 6u);
  for (const int moment : {3, 6}) {
    SCOPED_TRACE(moment);
    const std::string to = "stopped" + std::to_string(moment);
    judge_anew();
    write("wait", std::to_string(moment));
    ProgramSettings settings;
    settings.environment = {{"OMP_NUM_THREADS", "1"}};
    settings.directory = (*this / "").string();
    settings.signal = SIGTERM;
    settings.signal_when = [&] { return fs::exists(*this / "waiting"); };
    const ProgramResult result = run_danlu(evaluating(to), settings);
    EXPECT_EQ(result.exit_code, 143) << result.err;
    EXPECT_EQ(evaluations(to).size(), moment == 3 ? 0u : 1u);
    judge_anew();
    ok(evaluating(to));
    EXPECT_EQ(judged(), moment == 3 ? 4u : 1u);
    expect_the_same(to, "whole");
    const auto got = evaluations(to), wanted = evaluations("whole");
    ASSERT_EQ(got.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(got[i].at("eval_reward"), wanted[i].at("eval_reward"));
      EXPECT_EQ(got[i].at("global_step/max_steps"), wanted[i].at("global_step/max_steps"));
    }
    EXPECT_EQ(fs::read_symlink(*this / to / "best"), fs::read_symlink(*this / "whole" / "best"));
    const auto best = [&](const std::string& of) {
      return Json::parse(content_of(*this / of / "last" / "trainer_state.json"))
          .at("best_global_step");
    };
    EXPECT_EQ(best(to), best("whole"));
  }
}

TEST_F(KilledRollout, ASignalInAnEvaluationThatWasPutOffSavesARunThatGoesOnElsewhere) {
  write("held.jsonl", R"({"prompt": "who?"}
)");
  const auto evaluating = [&](const std::string& to, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = line("grpo", to);
    words.insert(words.end(), {"--val_dataset", "held.jsonl", "--eval_steps", "4"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  /// A run that gets a signal while the answers of its nth rollout or evaluation are judged.
  const auto stopped = [&](const std::vector<std::string>& words, int nth) {
    judge_anew();
    write("wait", std::to_string(nth));
    ProgramSettings settings;
    settings.environment = {{"OMP_NUM_THREADS", "1"}};
    settings.directory = (*this / "").string();
    settings.signal = SIGTERM;
    settings.signal_when = [&] { return fs::exists(*this / "waiting"); };
    const ProgramResult result = run_danlu(words, settings);
    EXPECT_EQ(result.exit_code, 143) << result.err;
    return result.err;
  };
  judge_anew();
  ok(evaluating("whole"));
  // Two rollouts, then the evaluation.
  stopped(evaluating("first"), 3);
  const std::vector<std::string> from = {"--resume", "first/checkpoint-4"};
  // In the evaluation that was put off, and in the rollout behind it.
  for (const int nth : {1, 2}) {
    SCOPED_TRACE(nth);
    const std::string to = "elsewhere" + std::to_string(nth);
    EXPECT_THAT(stopped(evaluating(to, from), nth), testing::HasSubstr("checkpoint-4 is complete"));
    EXPECT_TRUE(fs::exists(*this / to / "checkpoint-4" / "DONE"));
    judge_anew();
    EXPECT_THAT(ok(evaluating(to)).err, testing::HasSubstr("checkpoint-4 at step 4"));
    EXPECT_EQ(judged(), nth == 1 ? 4u : 3u);
    EXPECT_EQ(content_of(*this / to / "model.safetensors"),
              content_of(*this / "whole" / "model.safetensors"));
  }
}

TEST_F(KilledRollout, WheneverItIsKilled) {
  for (const std::string type : {"grpo", "ppo", "grpo_parts", "ppo_parts"}) {
    if (!is_slow() && (type == "ppo" || type == "grpo_parts")) continue;
    SCOPED_TRACE(type);
    judge_anew();
    ok(line(type, type + "-whole"));
    const std::string to = type + "-killed";
    // Again and again, a little later each time: while a model is loaded, answers are drawn or
    // learnt from, a checkpoint is written.
    int kills = 0;
    for (int moment = 0; moment < 12; ++moment) {
      int asked = 0;
      const ProgramResult result = killed(
          type, to, [&] { return fs::exists(*this / to / "args.json") && ++asked > moment * 3; });
      if (result.exit_code != 128 + SIGKILL) break;
      ++kills;
    }
    EXPECT_GE(kills, 3);
    ok(line(type, to));
    expect_the_same(to, type + "-whole");
  }
}

TEST_F(KilledRollout, TensorRanksLearnAsOneDoesAndGoOn) {
  DANLU_SLOW_TEST();
  for (const std::string type : {"grpo", "ppo"}) {
    SCOPED_TRACE(type);
    // Draws are the same as long as none falls between two tokens to rounding.
    const auto drawn = [&](const std::string& to, const std::vector<std::string>& more) {
      std::vector<std::string> words = line(type, to);
      // At 1e-8, gradients that are rounding noise become whole steps.
      words.insert(words.end(), {"--lr", "1e-3", "--adam_epsilon", "1e-5"});
      words.insert(words.end(), more.begin(), more.end());
      return ok(words);
    };
    const auto expect_the_numbers_of_one = [&] {
      const auto one = steps_of(*this / (type + "-one")), four = steps_of(*this / (type + "-four"));
      ASSERT_EQ(one.size(), 8u);
      ASSERT_EQ(four.size(), 8u);
      for (size_t step = 0; step < 8; ++step) {
        EXPECT_NEAR(four[step].at("loss").get<double>(), one[step].at("loss").get<double>(), 1e-5)
            << step;
        EXPECT_EQ(four[step].value("reward", Json()), one[step].value("reward", Json())) << step;
      }
    };
    judge_anew();
    drawn(type + "-one", {});
    EXPECT_EQ(judged(), 4u);
    judge_anew();
    const std::vector<std::string> ranks = {"--nproc", "4", "--tp", "2"};
    drawn(type + "-four", ranks);
    EXPECT_EQ(judged(), 8u) << "by one rank of each model";
    expect_the_numbers_of_one();
    fs::remove_all(*this / (type + "-four") / "checkpoint-8");
    fs::remove(*this / (type + "-four") / "DONE");
    drawn(type + "-four", ranks);
    expect_the_numbers_of_one();
  }
}

TEST_F(KilledRollout, StagesOfAPipelineLearnAsOneProcessDoesAndGoOn) {
  for (const std::string type : {"grpo", "ppo"}) {
    if (!is_slow() && type == "ppo") continue;
    SCOPED_TRACE(type);
    const std::string to = type + "-stages";
    const auto ranks = [&](const std::string& directory) {
      std::vector<std::string> words = line(type, directory);
      words.insert(words.end(), {"--lr", "1e-3", "--adam_epsilon", "1e-5", "--nproc", "2", "--pp",
                                 "2", "--shard", "zero3"});
      return words;
    };
    judge_anew();
    std::vector<std::string> one = line(type, type + "-one");
    one.insert(one.end(), {"--lr", "1e-3", "--adam_epsilon", "1e-5"});
    ok(one);
    judge_anew();
    ok(ranks(type + "-whole"));
    EXPECT_EQ(judged(), 4u) << "by the first rank of the model";
    judge_anew();
    write("wait", "2");
    ProgramSettings settings;
    settings.environment = {{"OMP_NUM_THREADS", "1"}};
    settings.directory = (*this / "").string();
    settings.signal = SIGKILL;
    settings.signal_when = [&] {
      if (!fs::exists(*this / "waiting")) return false;
      kill_all();
      return true;
    };
    EXPECT_EQ(run_danlu(ranks(to), settings).exit_code, 128 + SIGKILL);
    EXPECT_TRUE(fs::exists(*this / to / "rollouts"));
    judge_anew();
    ok(ranks(to));
    EXPECT_EQ(judged(), 3u) << "only what was not judged yet";
    expect_the_same(to, type + "-whole");
    const auto losses = steps_of(*this / (type + "-one")), got = steps_of(*this / to);
    ASSERT_EQ(losses.size(), 8u);
    for (size_t step = 0; step < 8; ++step) {
      EXPECT_NEAR(got[step].at("loss").get<double>(), losses[step].at("loss").get<double>(), 1e-5)
          << step;
    }
  }
}

}  // namespace
}  // namespace danlu::test
