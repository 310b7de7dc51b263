#include "train/rollouts/generator.h"

#include <algorithm>
#include <utility>

#include "base/at_exit.h"
#include "base/json.h"
#include "models/answering_model.h"
#include "models/training_memory.h"
#include "parallel/agree.h"
#include "settings/answers_at_a_time.h"
#include "train/rollouts/stop_words.h"

namespace danlu::train {
namespace {

std::string told(const std::vector<infer::Answer>& answers) {
  Json list = Json::array();
  for (const infer::Answer& answer : answers) {
    list.push_back({answer.ids, static_cast<int>(answer.reason), answer.problem,
                    answer.stopped_by ? Json(*answer.stopped_by) : Json()});
  }
  return dump_text(list);
}

void hear(const std::string& text, std::vector<infer::Answer>& answers) {
  for (const Json& one : parse_json(text, "the answers of a rank")) {
    infer::Answer answer;
    answer.ids = one[0].get<std::vector<text::TokenId>>();
    answer.reason = static_cast<infer::FinishReason>(one[1].get<int>());
    answer.problem = one[2].get<std::string>();
    if (!one[3].is_null()) answer.stopped_by = one[3].get<text::TokenId>();
    answers.push_back(std::move(answer));
  }
}

class MeshDrawing {
 public:
  MeshDrawing(models::CausalLM& policy, std::shared_ptr<const DrawingRanks> ranks,
              int64_t batch_size, EndingWords ending)
      : policy_(policy),
        ranks_(std::move(ranks)),
        batch_size_(batch_size),
        ending_(std::move(ending)) {
    if (ranks_->draws_otherwise())
      answering_ = std::make_unique<models::AnsweringModel>(policy, ranks_->mesh());
  }

  void with_weights(const std::function<void()>& use) {
    const auto with = [&](const models::CausalLM& model) {
      model_ = &model;
      const AtExit forget([this] { model_ = nullptr; });
      use();
    };
    if (answering_) return answering_->with_weights(with);
    policy_.memory().with_all([&] { with(policy_); });
  }

  std::vector<infer::Answer> generate(const std::vector<infer::Request>& requests) const {
    const parallel::Group& drawers = ranks_->drawers();
    const models::CausalLM& model = model_ ? *model_ : policy_;
    const bool go_on = std::any_of(requests.begin(), requests.end(),
                                   [](const infer::Request& one) { return one.answered > 0; });
    const int64_t pass_tokens = go_on ? settings::kTokensWhereAnswersGoOn : 0;
    const auto answers_to = [&](const std::vector<infer::Request>& some) {
      return with_stop_words(ending_.tokenizer, ending_.words, some,
                             [&](const infer::OnToken& on_token) {
                               return infer::generate(model, some, batch_size_, on_token, nullptr,
                                                      {}, {}, nullptr, pass_tokens);
                             });
    };
    if (drawers.is_alone()) return answers_to(requests);
    const auto count = std::ssize(requests);
    const auto begin = requests.begin() + count * drawers.rank() / drawers.size(),
               end = requests.begin() + count * (drawers.rank() + 1) / drawers.size();
    std::string own;
    parallel::together(drawers, [&] { own = told(answers_to({begin, end})); });
    std::vector<infer::Answer> answers;
    for (const std::string& text : parallel::texts_of_all(drawers, own)) hear(text, answers);
    return answers;
  }

 private:
  models::CausalLM& policy_;
  std::shared_ptr<const DrawingRanks> ranks_;
  int64_t batch_size_;
  EndingWords ending_;
  std::unique_ptr<models::AnsweringModel> answering_;  ///< nullptr: the policy answers itself
  const models::CausalLM* model_ = nullptr;            ///< inside of with_weights()
};

}  // namespace

Drawing drawing_of(models::CausalLM& policy, const std::shared_ptr<const DrawingRanks>& ranks,
                   int64_t batch_size, const EndingWords& ending) {
  const auto drawing = std::make_shared<MeshDrawing>(policy, ranks, batch_size, ending);
  return {[drawing](const std::vector<infer::Request>& all) { return drawing->generate(all); },
          [drawing](const std::function<void()>& use) { drawing->with_weights(use); }};
}

}  // namespace danlu::train
