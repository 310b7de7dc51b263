#include "eval/environments/tips.h"

#include <algorithm>
#include <utility>

#include "eval/rewards/reward.h"

namespace danlu::eval {
namespace {

// Source: ms-swift, MathTipsScheduler and ThinkingModelTipsScheduler.
constexpr const char* kDoubt = "But wait... It seems I made a mistake,";
constexpr const char* kTip =
    "The answer is not correct, It seems You made a mistake, you need to recheck very carefully.";

/// Tells once, and none of a right answer, a cut one or one to a row that has no right answer.
class Tips : public Environment {
 public:
  Tips(std::string name, const std::string& reference_column, Reply (*tip)(const std::string&))
      : name_(std::move(name)),
        accuracy_(make_reward("accuracy", {.reference_column = reference_column})),
        tip_(tip) {}

  std::string name() const override { return name_; }

  std::vector<Reply> replies(std::span<const Talk> talks) const override {
    std::vector<Completion> answers;
    for (const Talk& talk : talks) {
      Completion& answer = answers.emplace_back();
      answer.text = talk.answer;
      answer.row = talk.row;
    }
    const std::vector<Score> scores = accuracy_->scores(answers);
    std::vector<Reply> replies;
    for (size_t i = 0; i < talks.size(); ++i) {
      const bool is_wrong = scores[i] && *scores[i] != 1;
      const bool is_told = is_wrong && talks[i].turn == 1 && talks[i].is_ended;
      replies.push_back(is_told ? tip_(talks[i].answer) : Reply{.is_done = true});
    }
    return replies;
  }

 private:
  std::string name_;
  std::unique_ptr<Reward> accuracy_;
  Reply (*tip_)(const std::string& answer);
};

Reply doubt_behind(const std::string& answer) {
  Reply reply;
  reply.goes_on = kDoubt;
  const size_t end = std::min(answer.find("<answer>"), answer.find("</think>"));
  if (end != std::string::npos) reply.kept_bytes = end;
  return reply;
}

Reply tip_behind(const std::string&) {
  Reply reply;
  reply.messages.push_back({{"role", "user"}, {"content", kTip}});
  return reply;
}

}  // namespace

std::unique_ptr<Environment> make_doubt(const std::string& reference_column) {
  return std::make_unique<Tips>("math_tip_trick", reference_column, doubt_behind);
}

std::unique_ptr<Environment> make_tip(const std::string& reference_column) {
  return std::make_unique<Tips>("thinking_tips_scheduler", reference_column, tip_behind);
}

}  // namespace danlu::eval
