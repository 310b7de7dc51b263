// Answers that end where their text has a word.
#include "train/rollouts/stop_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include "train/rollout_parts.h"

namespace danlu::train {
namespace mesh_test {
namespace {

/// Ids as texts of their own: 7 is "</", 8 "ans", 9 "wer>", all others their number and a space.
class Pieces : public Numbers {
 public:
  std::string decode(std::span<const text::TokenId> ids, bool) const override {
    std::string text;
    for (const text::TokenId id : ids) {
      text += id == 7 ? "</" : id == 8 ? "ans" : id == 9 ? "wer>" : std::to_string(id) + " ";
    }
    return text;
  }
};

Request request_to(std::vector<text::TokenId> prompt) {
  Request request;
  request.prompt = std::move(prompt);
  return request;
}

/// How many tokens of each answer are drawn until it ends, as infer::generate() draws them.
std::vector<size_t> drawn_tokens(const std::vector<std::string>& words,
                                 const std::vector<Request>& requests,
                                 const std::vector<std::vector<text::TokenId>>& all,
                                 std::vector<Answer>* made = nullptr) {
  std::vector<size_t> tokens;
  const std::vector<Answer> answers = with_stop_words(std::make_shared<Pieces>(), words, requests,
                                                      [&](const infer::OnToken& on_token) {
                                                        std::vector<Answer> drawn(requests.size());
                                                        for (size_t i = 0; i < drawn.size(); ++i) {
                                                          for (const text::TokenId id : all[i]) {
                                                            drawn[i].ids.push_back(id);
                                                            if (on_token && !on_token(i, id)) break;
                                                          }
                                                        }
                                                        return drawn;
                                                      });
  for (const Answer& answer : answers) tokens.push_back(answer.ids.size());
  if (made) *made = answers;
  return tokens;
}

TEST(StopWords, AnAnswerEndsBehindTheTokenThatCompletesAWord) {
  const std::vector<Request> requests(4, request_to({3}));
  const std::vector<std::vector<text::TokenId>> all = {
      {5, 7, 8, 9, 5, 5}, {7, 8, 7, 8, 9}, {5, 6, 5}, {50, 5, 6, 60, 6, 5}};
  std::vector<Answer> made;
  EXPECT_THAT(drawn_tokens({"</answer>", "6 5"}, requests, all, &made),
              testing::ElementsAre(4, 5, 3, 6));
  for (const Answer& answer : made) {
    const DrawnAnswer drawn = drawn_answer(answer);
    EXPECT_TRUE(drawn.is_ended);
    EXPECT_EQ(drawn.ids, answer.ids) << "no stop token is behind it";
  }
  EXPECT_THAT(drawn_tokens({}, requests, all, &made), testing::ElementsAre(6, 5, 3, 6));
  EXPECT_FALSE(drawn_answer(made[0]).is_ended);
  EXPECT_THAT(drawn_tokens({"nowhere"}, requests, all, &made), testing::ElementsAre(6, 5, 3, 6));
  EXPECT_FALSE(drawn_answer(made[0]).is_ended);
}

TEST(StopWords, AWordMayBeginInThePartThatIsThere) {
  // The prompt is 3 7; 7 belongs to it, or is the answer's first part.
  std::vector<Request> requests(2, request_to({3, 7}));
  requests[1].answered = 1;
  EXPECT_THAT(drawn_tokens({"</answer>"}, requests, {{8, 9, 5}, {8, 9, 5}}),
              testing::ElementsAre(3, 2));
}

/// Six answers.
std::vector<DrawnAnswer> drawn_by_policy(const Drawing& drawing) {
  std::vector<DrawnAnswer> answers;
  std::vector<Request> requests;
  for (int32_t i = 0; i < 6; ++i) {
    Request request = request_to({3 + i, 4});
    request.sampling.do_sample = true;
    request.sampling.seed = 7;
    request.max_new_tokens = 12;
    request.stream = static_cast<uint64_t>(i);
    requests.push_back(request);
  }
  drawing.with_weights([&] {
    for (const Answer& answer : drawing.generate(requests)) answers.push_back(drawn_answer(answer));
  });
  return answers;
}

TEST(StopWords, ThePolicyDrawsTheSameTokensUpToTheWord) {
  Made made;
  const auto ranks = std::make_shared<const DrawingRanks>(Mesh::single());
  const auto pieces = std::make_shared<Pieces>();
  const auto drawing = [&](const std::vector<std::string>& words) {
    return drawing_of(*made.state.model, ranks, 3, {words, pieces});
  };
  const std::vector<DrawnAnswer> whole = drawn_by_policy(drawing({}));
  // A word that some answers have: the text of the fourth token of one of them.
  const std::vector<text::TokenId> some = {whole[2].ids.at(3)};
  const std::string word = pieces->decode(some, false);
  const std::vector<DrawnAnswer> got = drawn_by_policy(drawing({word}));
  int64_t ended = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    // The oracle looks at the text of each beginning of the answer.
    size_t length = 1;
    const auto has_word = [&](size_t tokens) {
      const std::vector<text::TokenId> ids(whole[i].ids.begin(),
                                           whole[i].ids.begin() + static_cast<int64_t>(tokens));
      return pieces->decode(ids, false).find(word) != std::string::npos;
    };
    while (length < whole[i].ids.size() && !has_word(length)) ++length;
    ended += has_word(length) ? 1 : 0;
    EXPECT_EQ(got[i].ids, std::vector<int32_t>(whole[i].ids.begin(),
                                               whole[i].ids.begin() + static_cast<int64_t>(length)))
        << i;
    EXPECT_EQ(got[i].is_ended, has_word(length) || whole[i].is_ended) << i;
  }
  EXPECT_GE(ended, 1);
}

/// What two rollouts of weights that stay learn from, on all ranks: prompts with their answers.
std::set<std::vector<int64_t>> learnt_on(const MeshShape& shape, int64_t parts,
                                         const std::vector<std::string>& words) {
  std::set<std::vector<int64_t>> learnt;
  std::mutex mutex;
  on_drawing_ranks(shape, [&](const Mesh& mesh, const auto& ranks) {
    const TrainState state = state_of({"llama", "llama", Json::object()}, mesh);
    RolloutSettings settings = settings_of(mesh.shape().data_rank(mesh.rank()), shape.data);
    settings.told.parts = parts;
    settings.rollouts = 2;
    const Drawing drawing = drawing_of(*state.model, ranks, 3, {words, std::make_shared<Pieces>()});
    RolloutParts of = parts_of(*state.model, *state.links, drawing.generate);
    of.with_weights = drawing.with_weights;
    of.ranks = ranks;
    RolloutStream stream(std::move(of), settings, 0);
    for (int64_t rollout = 0; rollout < settings.rollouts; ++rollout) {
      const data::StepBatches step = stream.next();
      const std::lock_guard lock(mutex);
      for (const data::Batch& batch : step.micro_batches) {
        for (size_t i = 0; i + 1 < batch.segment_starts.size(); ++i)
          learnt.emplace(batch.ids.begin() + batch.segment_starts[i],
                         batch.ids.begin() + batch.segment_starts[i + 1]);
      }
    }
  });
  return learnt;
}

TEST(StopWords, EveryMeshEndsAnswersAsOneProcessDoes) {
  const auto whole = learnt_on({}, 1, {});
  // A token in the midst of an answer, and what is left where all end behind it.
  const std::vector<int64_t>& some = *std::find_if(
      whole.begin(), whole.end(), [](const auto& answer) { return answer.size() > 7; });
  const std::string word = std::to_string(some[some.size() - 3]) + " ";
  const auto one = learnt_on({}, 1, {word});
  EXPECT_NE(one, whole);
  for (const int64_t parts : {1, 3}) {
    for (const MeshShape& shape : {MeshShape{}, MeshShape{.tensor = 2}, MeshShape{.data = 2}})
      EXPECT_EQ(learnt_on(shape, parts, {word}), one)
          << "tp" << shape.tensor << " dp" << shape.data << " parts " << parts;
  }
}

}  // namespace
}  // namespace mesh_test
}  // namespace danlu::train
