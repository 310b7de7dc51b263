#include "board/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "board/line_follower.h"
#include "board/run_folder.h"

namespace danlu::board {
namespace {

using ::testing::ElementsAre;

using Points = std::map<std::string, std::map<int64_t, double>>;  // NaN as 1e99

Points points_of(const Metrics& metrics) {
  Points points;
  for (const auto& [name, curve] : metrics.curves()) {
    EXPECT_EQ(curve.steps.size(), curve.values.size());
    EXPECT_TRUE(std::is_sorted(curve.steps.begin(), curve.steps.end()));
    for (size_t i = 0; i < curve.steps.size(); ++i)
      points[name][curve.steps[i]] = std::isnan(curve.values[i]) ? 1e99 : curve.values[i];
    EXPECT_EQ(points[name].size(), curve.steps.size()) << "a step stands twice";
  }
  return points;
}

TEST(Metrics, AStepThatComesAgainHasItsLaterValue) {
  Metrics metrics;
  metrics.add(R"({"loss":3,"global_step":5})");
  metrics.add(R"({"eval_loss":2.5,"global_step":5})");
  metrics.add(R"({"loss":2,"global_step":5})");
  EXPECT_EQ(points_of(metrics), (Points{{"loss", {{5, 2}}}, {"eval_loss", {{5, 2.5}}}}));
}

TEST(Metrics, AResumedRunForgetsWhatItHadBeyond) {
  Metrics metrics;
  for (int step : {10, 20, 30}) metrics.add(step_line(step, step));
  metrics.add(R"({"eval_loss":7,"global_step":30})");
  const uint64_t before = metrics.generation();
  metrics.add(step_line(20, 99));
  EXPECT_NE(metrics.generation(), before);
  EXPECT_EQ(points_of(metrics)["loss"], (std::map<int64_t, double>{{10, 10}, {20, 99}}));
  EXPECT_FALSE(metrics.curves().contains("eval_loss"));
  EXPECT_EQ(metrics.last_step(), 20);
}

TEST(Metrics, AnEvaluationThatComesLateTakesNothingAway) {
  Metrics metrics;
  for (int step : {10, 20}) metrics.add(step_line(step, step));
  metrics.add(R"({"eval_loss":7,"global_step":10})");
  EXPECT_EQ(points_of(metrics)["loss"].size(), 2u);
  EXPECT_EQ(points_of(metrics)["eval_loss"], (std::map<int64_t, double>{{10, 7}}));
}

TEST(Metrics, WhatIsNoRecordSaysNothing) {
  Metrics metrics;
  for (const char* line :
       {"", "{", "[1]", "null", R"({"loss":1})", R"({"loss":1,"global_step":-1})",
        R"({"loss":1,"global_step":1e300})", R"({"loss":1,"global_step":"5"})", "\xff\xfe",
        "{\"loss\":1,\"global_step\":3,}"})
    metrics.add(line);
  EXPECT_TRUE(metrics.curves().empty());
}

TEST(Metrics, NullAndPythonsNaNAreGaps) {
  Metrics metrics;
  metrics.add(R"({"loss":null,"global_step":1})");
  metrics.add(R"({"loss":NaN,"note":"NaN","grad_norm":-Infinity,"global_step":2})");
  EXPECT_EQ(points_of(metrics),
            (Points{{"loss", {{1, 1e99}, {2, 1e99}}}, {"grad_norm", {{2, 1e99}}}}));
}

TEST(Metrics, MsSwiftsLinesHaveTheirStepInTheFraction) {
  Metrics metrics;
  metrics.add(R"({"loss":1.5,"global_step/max_steps":"371/3090","remaining_time":"2h 3m 4s"})");
  EXPECT_EQ(metrics.last_step(), 371);
  EXPECT_EQ(metrics.max_steps(), 3090);
  EXPECT_EQ(metrics.remaining(), "2h 3m 4s");
}

TEST(Metrics, ALogOfManyNamesIsBounded) {
  Metrics metrics;
  for (int i = 0; i < 2000; ++i) metrics.add(fmt::format(R"({{"name{}":1,"global_step":1}})", i));
  metrics.add(fmt::format(R"({{"{}":1,"global_step":1}})", std::string(1000, 'n')));
  EXPECT_EQ(metrics.curves().size(), 500u);
}

TEST(CurveJson, KeepsTheSmallestAndTheLargestOfEachStretch) {
  Curve curve;
  for (int i = 0; i < 1000; ++i) {
    curve.steps.push_back(i);
    curve.values.push_back(i == 333 ? 50 : i == 777 ? -50 : i % 2);
  }
  const Json json = curve_json(curve, 0, INT64_MAX, 100);
  EXPECT_LE(json["x"].size(), 100u);
  EXPECT_TRUE(json["thinned"]);
  const auto y = json["y"].get<std::vector<double>>();
  EXPECT_EQ(*std::max_element(y.begin(), y.end()), 50);
  EXPECT_EQ(*std::min_element(y.begin(), y.end()), -50);
  const auto x = json["x"].get<std::vector<int64_t>>();
  EXPECT_TRUE(std::is_sorted(x.begin(), x.end()));
  EXPECT_EQ(curve_json(curve, 10, 12, 100)["x"], Json({10, 11, 12}));
  EXPECT_FALSE(curve_json(curve, 10, 12, 100)["thinned"]);
}

// --- random logs -----------------------------------------------------------------------------

/// The rule once more, over all lines at once and without curves: the oracle.
Points expected_of(const std::string& text) {
  Points points;
  int64_t last_trained = 0;
  for (size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1) {
    const Json json = Json::parse(text.substr(at, end - at), nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("global_step")) continue;
    const auto step = json["global_step"].get<int64_t>();
    if (json.contains("loss")) {
      if (step < last_trained) {
        for (auto it = points.begin(); it != points.end();) {
          it->second.erase(it->second.lower_bound(step), it->second.end());
          it = it->second.empty() ? points.erase(it) : std::next(it);
        }
      }
      last_trained = step;
    }
    for (const auto& item : json.items()) {
      if (item.key() == "global_step" || item.value().is_string()) continue;
      points[item.key()][step] = item.value().is_null() ? 1e99 : item.value().get<double>();
    }
  }
  return points;
}

/// A log with evaluations, resumptions, gaps and lines that are none.
std::string random_log(std::mt19937& random, int num_lines) {
  std::string text;
  int64_t step = 0;
  for (int i = 0; i < num_lines; ++i) {
    switch (random() % 12) {
      case 0:
        text += fmt::format("{{\"eval_loss\":{},\"global_step\":{}}}\n", random() % 9, step);
        break;
      case 1:
        text += "not a record\n";
        break;
      case 2:
        step = step > 3 ? static_cast<int64_t>(random() % static_cast<uint64_t>(step)) : step;
        break;
      case 3:
        text += fmt::format("{{\"loss\":null,\"global_step\":{}}}\n", ++step);
        break;
      default:
        text += step_line(++step, static_cast<double>(random() % 100) / 8);
    }
  }
  return text;
}

void read_into(LineFollower& follower, Metrics& metrics) {
  for (bool has_more = true; has_more;) {
    auto news = follower.read_on(1);
    if (news.begins_anew) metrics.clear();
    for (const std::string& line : news.lines) metrics.add(line);
    has_more = news.has_more;
  }
}

TEST(MetricsOfAFile, CutAtEveryByteItSaysWhatItsWholeLinesSay) {
  std::mt19937 random(7);
  const test::TemporaryDirectory folder;
  for (int round = 0; round < 6; ++round) {
    const std::string text = random_log(random, 25);
    const auto file = folder / fmt::format("{}.jsonl", round);
    LineFollower follower(file);
    Metrics metrics;
    for (size_t size = 1; size <= text.size(); ++size) {
      append(file, text.substr(size - 1, 1));
      read_into(follower, metrics);
      if (text[size - 1] == '\n' || size % 17 == 0) {
        ASSERT_EQ(points_of(metrics), expected_of(text.substr(0, size))) << text.substr(0, size);
      }
    }
  }
}

TEST(MetricsOfAFile, ReplacedCutAndGrownInAnyOrderItSaysWhatIsThere) {
  const test::TemporaryDirectory folder;
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto file = folder / fmt::format("{}.jsonl", seed);
    LineFollower follower(file);
    Metrics metrics;
    std::string text;
    for (int turn = 0; turn < 12; ++turn) {
      const std::string more = random_log(random, static_cast<int>(random() % 8));
      switch (random() % 5) {
        case 0:
          replace(file, text = random_log(random, 10));
          break;
        case 1:
          put(file, text = text.substr(0, random() % (text.size() + 1)) + more);
          break;
        case 2:
          text = text.substr(0, random() % (text.size() + 1));
          put(file, text);
          break;
        default:
          append(file, more), text += more;
      }
      if (random() % 2) continue;  // changes between two looks
      read_into(follower, metrics);
      ASSERT_EQ(points_of(metrics), expected_of(text)) << "seed " << seed << "\n" << text;
    }
  }
}

/// What a client that asks for what is new has in the end.
TEST(MetricsOfAFile, WhatIsNewSinceAGenerationMakesTheWhole) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    Metrics metrics;
    uint64_t generation = 0;
    int64_t after = -1;
    Points kept;
    for (int turn = 0; turn < 20; ++turn) {
      const std::string text = random_log(random, static_cast<int>(random() % 6));
      for (size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1)
        metrics.add(std::string_view(text).substr(at, end - at));
      if (generation != metrics.generation()) {
        kept.clear();
        after = -1;
      }
      for (const auto& [name, curve] : metrics.curves()) {
        const Json part = curve_json(curve, after, INT64_MAX, 1000);
        auto& points = kept[name];
        points.erase(points.lower_bound(after), points.end());
        for (size_t i = 0; i < part["x"].size(); ++i)
          points[part["x"][i]] = part["y"][i].is_null() ? 1e99 : part["y"][i].get<double>();
      }
      generation = metrics.generation();
      after = metrics.last_step();
      ASSERT_EQ(kept, points_of(metrics)) << "seed " << seed << " turn " << turn;
    }
  }
}

}  // namespace
}  // namespace danlu::board
