#include "infer/generate.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/rng.h"
#include "infer/engine_answers.h"
#include "infer/step.h"
#include "infer/tested_device.h"
#include "models/golden.h"
#include "models/weight_files.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"
#include "support/tiny_model.h"
#include "weights/tensor_source.h"

namespace danlu::infer {
namespace generate_test {

std::unique_ptr<models::CausalLM> tiny_model(int64_t vocab, int64_t window = 64) {
  const Json json = {{"model_type", "llama"},    {"vocab_size", vocab},
                     {"hidden_size", 32},        {"intermediate_size", 40},
                     {"num_hidden_layers", 2},   {"num_attention_heads", 4},
                     {"num_key_value_heads", 2}, {"max_position_embeddings", window},
                     {"rms_norm_eps", 1e-5},     {"initializer_range", 0.5}};
  auto model = std::make_unique<models::CausalLM>(
      arch::family_of(json).parse(json), parallel::Mesh::single(), at::kFloat, tested_device());
  models::initialize(*model, 7);
  return model;
}

Request request(std::vector<text::TokenId> prompt, int64_t max_new_tokens) {
  Request r;
  r.prompt = std::move(prompt);
  r.max_new_tokens = max_new_tokens;
  return r;
}

/// log p(answer | prompt) without any cache.
double log_probability(const models::CausalLM& model, const std::vector<text::TokenId>& prompt,
                       const std::vector<text::TokenId>& answer) {
  std::vector<int64_t> ids(prompt.begin(), prompt.end()), positions;
  ids.insert(ids.end(), answer.begin(), answer.end());
  for (size_t i = 0; i < ids.size(); ++i) positions.push_back(static_cast<int64_t>(i));
  const int64_t n = static_cast<int64_t>(ids.size());
  models::ForwardInput input;
  input.ids_N = at::tensor(ids, at::kLong);
  input.positions_N = at::tensor(positions, at::kLong);
  input.segments = {{0, n}, {0, n}};
  const at::NoGradGuard no_grad;
  const at::Tensor log_p =
      at::log_softmax(model.logits(model.forward_hidden(input)).to(at::kDouble), -1);
  double total = 0;
  for (size_t i = 0; i < answer.size(); ++i) {
    total += log_p[static_cast<int64_t>(prompt.size() + i) - 1][answer[i]].item<double>();
  }
  return total;
}

TEST(Generate, GreedyMatchesTheGoldensOfEveryFamily) {
  DANLU_REQUIRES_SHARED();
  for (const char* name :
       {"llama",         "llama_sharded_bf16", "qwen2",          "qwen3",         "baichuan2_7b",
        "moe/phi3",      "moe/phi3_longrope",  "moe/gemma",      "moe/gemma2",    "moe/gemma3_text",
        "moe/glm",       "moe/glm4",           "moe/chatglm3",   "moe/minicpm",   "moe/internlm2",
        "moe/internlm3", "moe/llama3_2",       "mixtral",        "moe/qwen2_moe", "moe/qwen3_moe",
        "moe/glm4_moe",  "moe/phimoe",         "moe/llama4_text"}) {
    SCOPED_TRACE(name);
    const std::filesystem::path dir = test::shared_dir() / "golden" / name;
    const auto model =
        models::load_model(dir, parallel::Mesh::single(), at::kFloat, tested_device());
    const auto golden = weights::open_safetensors(dir / "golden.safetensors");
    auto ids_of = [&](const std::string& tensor) {
      std::vector<int64_t> wide(static_cast<size_t>(golden->find(tensor)->num_elements()));
      golden->read(tensor, std::as_writable_bytes(std::span(wide)));
      return std::vector<text::TokenId>(wide.begin(), wide.end());
    };
    const std::vector<text::TokenId> prompt = ids_of("gen_prompt_ids"),
                                     expected = ids_of("gen_output_ids");
    const std::vector<Answer> answers = generate(
        *model, {request(prompt, static_cast<int64_t>(expected.size() - prompt.size()))}, 1);
    std::vector<text::TokenId> whole = prompt;
    whole.insert(whole.end(), answers[0].ids.begin(), answers[0].ids.end());
    EXPECT_EQ(whole, expected);
  }
}

/// A model whose original context is 8 tokens.
std::unique_ptr<models::CausalLM> longrope_model() {
  const test::TemporaryDirectory directory;
  Json config = test::tiny_config("phi3");
  config.update({{"original_max_position_embeddings", 8},
                 {"rope_scaling",
                  {{"type", "longrope"},
                   {"short_factor", {1.0, 1.0, 1.0, 1.0}},
                   {"long_factor", {1.0, 7.0, 0.3, 40.0}}}}});
  test::write_tiny_model(directory.path(), config, 3);
  return models::load_model(directory.path(), parallel::Mesh::single(), at::kFloat,
                            tested_device());
}

// longrope turns the keys of a text that grows beyond its original context by other frequencies:
// what a whole pass over the text gives is what the answer goes on with.
TEST(Generate, ATextThatOutgrowsLongropesContextGoesOnAsAWholePassDoes) {
  const auto model = longrope_model();
  const std::vector<text::TokenId> prompt{5, 9, 2, 31, 40};
  const at::Tensor whole = models::greedy_tokens(
      *model, at::tensor(std::vector<int64_t>(prompt.begin(), prompt.end()), at::kLong), 12);
  const std::vector<text::TokenId> expected(whole.data_ptr<int64_t>() + prompt.size(),
                                            whole.data_ptr<int64_t>() + whole.numel());
  EXPECT_EQ(generate(*model, {request(prompt, 12), request({7, 7}, 12)}, 2)[0].ids, expected);
  Session session(*model);
  EXPECT_EQ(session.answer(request(prompt, 12)).ids, expected);
  // A second question of the same text, which is short again.
  EXPECT_EQ(session.answer(request(prompt, 3)).ids,
            std::vector<text::TokenId>(expected.begin(), expected.begin() + 3));
  // What is kept of such texts goes on with those of its own frequencies alone.
  std::vector<text::TokenId> text = prompt;
  for (const int64_t said : {1, 4, 8, 2, 9}) {
    text = prompt;
    text.insert(text.end(), expected.begin(), expected.begin() + said);
    EXPECT_EQ(session.answer(request(text, 3)).ids,
              std::vector<text::TokenId>(expected.begin() + said, expected.begin() + said + 3))
        << said;
  }
}

TEST(Engine, LongropesTextsShareWithThoseOfTheirOwnFrequencies) {
  const auto model = longrope_model();
  const std::vector<text::TokenId> ids{5, 9, 2, 31, 40, 7, 8, 1, 12, 3, 22, 17, 30};
  Engine engine(*model, {.kept_pages = 20});
  int64_t shared_short = 0, shared_long = 0;
  for (const size_t length : {6, 7, 9, 12, 7, 8, 6, 10, 5, 11, 13, 6}) {
    std::vector<EngineRequest> one(1);
    one[0].request = request({ids.begin(), ids.begin() + static_cast<int64_t>(length)}, 3);
    one[0].num_logprobs = 0;
    Engine fresh(*model, {.prefix_caching = false});
    const std::vector<Whole> answers = answers_of(engine, one);
    expect_alike(answers, answers_of(fresh, one));
    (length > 8 ? shared_long : shared_short) += answers[0].cached;
  }
  EXPECT_GT(shared_short, 0);
  EXPECT_GT(shared_long, 0);
}

TEST(Generate, AnAnswerDoesNotDependOnItsBatch) {
  const auto model = tiny_model(31);
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 7; ++i) {
    std::vector<text::TokenId> prompt;
    for (uint64_t t = 0; t < 1 + i % 4; ++t)
      prompt.push_back(static_cast<text::TokenId>(mix64(i, t) % 31));
    requests.push_back(request(prompt, 5 + static_cast<int64_t>(i)));
    requests.back().sampling.do_sample = i % 2 == 1;
    requests.back().sampling.seed = 11;
    requests.back().stream = i;
  }
  const std::vector<Answer> together = generate(*model, requests, 3);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(generate(*model, {requests[i]}, 1)[0].ids, together[i].ids) << "request " << i;
  }
}

TEST(Generate, StopsBeforeAStopIdAndSaysSo) {
  const auto model = tiny_model(31);
  const Answer free = generate(*model, {request({3, 4}, 10)}, 1)[0];
  EXPECT_EQ(free.reason, FinishReason::kLength);
  Request stopped = request({3, 4}, 10);
  stopped.stop_ids = {free.ids[4]};
  const Answer answer = generate(*model, {stopped}, 1)[0];
  EXPECT_EQ(answer.reason, FinishReason::kStop);
  const auto first = std::find(free.ids.begin(), free.ids.end(), free.ids[4]);
  EXPECT_EQ(answer.ids, std::vector<text::TokenId>(free.ids.begin(), first));
}

TEST(Generate, NeverAnswersWithAnIdOfTheVocabularysPadding) {
  const auto model = tiny_model(31);
  Request limited = request({3, 4}, 20);
  limited.num_tokens = 5;
  for (const bool sample : {false, true}) {
    limited.sampling.do_sample = sample;
    const Answer answer = generate(*model, {limited}, 1)[0];
    for (const text::TokenId id : answer.ids) EXPECT_LT(id, 5);
  }
}

TEST(Generate, StopsWhenTheWindowIsFull) {
  const auto model = tiny_model(31, 12);
  EXPECT_EQ(generate(*model, {request({1, 2, 3}, 100)}, 1)[0].ids.size(), 9u);
}

TEST(Generate, RejectsAPromptLongerThanTheWindow) {
  const auto model = tiny_model(31, 4);
  try {
    generate(*model, {request({1, 2, 3, 4, 5}, 1)}, 1);
    FAIL() << "a prompt of 5 tokens fitted a window of 4";
  } catch (const DataError& e) {
    EXPECT_STREQ(e.what(), "[generate] the prompt has 5 tokens, the model's window holds 4");
  }
}

TEST(Generate, RejectsAnIdOutsideTheVocabulary) {
  const auto model = tiny_model(31);
  EXPECT_THROW(generate(*model, {request({1, 31}, 1)}, 1), DataError);
}

TEST(Generate, ACallbackCanCancelOneRequest) {
  const auto model = tiny_model(31);
  const std::vector<Answer> answers =
      generate(*model, {request({1}, 8), request({2}, 8)}, 2,
               [](size_t index, text::TokenId) { return index == 1; });
  EXPECT_EQ(answers[0].reason, FinishReason::kCancelled);
  EXPECT_EQ(answers[0].ids.size(), 1u);
  EXPECT_EQ(answers[1].ids.size(), 8u);
}

/// A step that keeps guesses tells of several tokens, of which the first may be the last.
TEST(Generate, ACallbackCanCancelAmongGuessesThatWereKept) {
  const auto model = tiny_model(31, 128);
  const std::vector<text::TokenId> prompt{1, 2, 3, 1, 2, 3, 1, 2, 3};
  const Speculation guesses{.lookup = {.num_tokens = 6, .shortest = 1, .longest = 4}};
  int64_t kept = 0;
  for (size_t last = 1; last < 60; last += 3) {
    size_t told = 0;
    GenerationStats stats;
    const std::vector<Answer> answers = generate(
        *model, {request(prompt, 60), request({2}, 9)}, 2,
        [&](size_t index, text::TokenId) { return index == 1 || ++told < last; }, &stats, {}, {},
        nullptr, 0, guesses);
    EXPECT_EQ(answers[0].ids.size(), last);
    EXPECT_EQ(answers[1].ids.size(), 9u);
    kept += stats.guessed_right;
  }
  EXPECT_GT(kept, 0);
}

TEST(Session, ReusingTheCacheChangesNothing) {
  const auto model = tiny_model(31);
  Session session(*model);
  std::vector<text::TokenId> prompt{5, 6, 7};
  for (int turn = 0; turn < 4; ++turn) {
    const Answer cached = session.answer(request(prompt, 6));
    EXPECT_EQ(cached.ids, generate(*model, {request(prompt, 6)}, 1)[0].ids) << "turn " << turn;
    prompt.insert(prompt.end(), cached.ids.begin(), cached.ids.end());
    prompt.push_back(turn + 1);
    if (turn == 2) prompt = {5, 6, 9, 9};  // shares only a prefix with what is cached
  }
}

TEST(BeamSearch, AWideBeamFindsTheMostLikelyAnswer) {
  constexpr int kVocab = 6, kLength = 3;
  const auto model = tiny_model(kVocab);
  Request r = request({2, 4}, kLength);
  r.sampling.num_beams = 36;  // as many as there are prefixes of length 2: nothing can be lost
  std::vector<text::TokenId> best;
  double best_score = -1e30;
  for (int code = 0; code < kVocab * kVocab * kVocab; ++code) {
    const std::vector<text::TokenId> answer{code / 36, code / 6 % 6, code % 6};
    const double score = log_probability(*model, r.prompt, answer);
    if (score > best_score) {
      best_score = score;
      best = answer;
    }
  }
  EXPECT_EQ(beam_search(*model, r).ids, best);
}

TEST(BeamSearch, LogitsThatAreNotNumbersAreAnError) {
  const auto model = tiny_model(6);
  for (const parallel::Parameter& parameter : model->parameters()) {
    if (parameter.name() == "model.norm.weight") parameter.tensor.data().fill_(std::nan(""));
  }
  Request r = request({2, 4}, 4);
  for (const bool do_sample : {false, true}) {
    r.sampling.do_sample = do_sample;
    r.sampling.num_beams = 3;
    EXPECT_THROW(beam_search(*model, r), NumericError);
    r.sampling.num_beams = 1;
    EXPECT_THROW(generate(*model, {r}, 1), NumericError);
  }
}

TEST(Generate, WhatIsUnfinishedWhenCancelledKeepsWhatItHas) {
  const auto model = tiny_model(50);
  // One begun and one waiting request; asked before each of the steps, the fourth time it ends.
  int asked = 0;
  const std::vector<Answer> answers = generate(*model, {request({5, 6}, 30), request({7}, 30)}, 1,
                                               {}, nullptr, [&] { return ++asked == 4; });
  EXPECT_EQ(answers[0].ids.size(), 3u);
  EXPECT_TRUE(answers[1].ids.empty());
  for (const Answer& answer : answers) EXPECT_EQ(answer.reason, FinishReason::kCancelled);
}

TEST(BeamSearch, GivesItsBestSoFarWhenCancelled) {
  const auto model = tiny_model(50);
  Request r = request({5, 6}, 30);
  r.sampling.num_beams = 3;
  const Answer answer = beam_search(*model, r, nullptr, [] { return true; });
  EXPECT_EQ(answer.ids.size(), 1u);
  EXPECT_EQ(answer.reason, FinishReason::kCancelled);
}

TEST(BeamSearch, LengthPenaltyDecidesBetweenShortAndLong) {
  const auto model = tiny_model(6);
  Request r = request({2, 4}, 4);
  r.sampling.num_beams = 36;
  r.stop_ids = {0};
  r.sampling.length_penalty = -20;  // a negative exponent makes every further token costly
  const size_t shortest = beam_search(*model, r).ids.size();
  r.sampling.length_penalty = 20;
  EXPECT_GT(beam_search(*model, r).ids.size(), shortest);
}

/// A directory with the config.json of a small Llama and nothing else.
struct DirectoryOfASmallModel : test::TemporaryDirectory {
  DirectoryOfASmallModel() {
    write_json_file(*this / "config.json", {{"model_type", "llama"},
                                            {"vocab_size", 8},
                                            {"hidden_size", 8},
                                            {"intermediate_size", 8},
                                            {"num_hidden_layers", 1},
                                            {"num_attention_heads", 2},
                                            {"max_position_embeddings", 8},
                                            {"eos_token_id", 2}});
  }
};

TEST(GenerationDefaults, ReadsTheFileAndTreatsTemperatureZeroAsGreedy) {
  const DirectoryOfASmallModel dir;
  write_json_file(
      dir / "generation_config.json",
      {{"eos_token_id", {5, 6}}, {"do_sample", true}, {"temperature", 0}, {"top_k", 20}});
  const GenerationDefaults defaults = load_generation_defaults(arch::load_model_config(dir), dir);
  EXPECT_FALSE(defaults.sampling.do_sample);
  EXPECT_EQ(defaults.sampling.top_k, 20);
  EXPECT_THAT(defaults.stop_ids, testing::IsSupersetOf({5, 6}));

  const auto with = [&](const Json& json) {
    write_json_file(dir / "generation_config.json", json);
    return load_generation_defaults(arch::load_model_config(dir), dir);
  };
  const auto error_with = [&](const Json& json) -> std::string {
    try {
      with(json);
    } catch (const ModelError& error) {
      return error.what();
    }
    return "no ModelError";
  };
  // Ids beyond any vocabulary must not wrap round to one of it (2^32 + 3).
  EXPECT_THAT(with({{"eos_token_id", (int64_t{1} << 32) + 3}}).stop_ids,
              testing::Not(testing::Contains(3)));
  using testing::HasSubstr;
  EXPECT_THAT(error_with({{"temperature", "hot"}}),
              HasSubstr("generation_config.json: temperature must be a number, got \"hot\""));
  EXPECT_THAT(error_with({{"top_k", 1.5}}), HasSubstr("top_k must be a whole number, got 1.5"));
  EXPECT_THAT(error_with({{"do_sample", 1}}), HasSubstr("do_sample must be true or false, got 1"));
  EXPECT_THAT(error_with({{"max_new_tokens", -1}}),
              HasSubstr("max_new_tokens must be > 0, got -1"));
  EXPECT_THAT(error_with({{"eos_token_id", "a"}}),
              HasSubstr("generation_config.json: eos_token_id must be a whole number"));
  EXPECT_THAT(error_with({{"do_sample", true}, {"top_p", 7}}),
              HasSubstr("generation_config.json: [sampling] top_p must be in (0, 1], got 7"));
  // Greedy models never use it: Hugging Face passes over it too.
  EXPECT_EQ(with({{"top_p", 7}}).sampling.top_p, 1.0);
}

/// What a request to a server gets that says nothing.
TEST(GenerationDefaults, AServerTakesTheFilesNumbersAndNoneOfHuggingFaces) {
  const DirectoryOfASmallModel dir;
  const auto with = [&](const Json& json) {
    write_json_file(dir / "generation_config.json", json);
    return sampling_of_server(load_generation_defaults(arch::load_model_config(dir), dir));
  };
  EXPECT_FALSE(with({{"temperature", 0}}).do_sample) << "the file wants the likeliest token";
  EXPECT_FALSE(with({{"temperature", 0}, {"do_sample", true}}).do_sample);
  const SamplingParams plain = with({{"do_sample", true}, {"temperature", 0.6}, {"top_p", 0.9}});
  EXPECT_TRUE(plain.do_sample);
  EXPECT_EQ(plain.top_k, 0) << "all tokens, as OpenAI's";
  EXPECT_EQ(plain.temperature, 0.6);
  EXPECT_EQ(plain.top_p, 0.9);
  EXPECT_EQ(with({{"do_sample", true}, {"top_k", 20}}).top_k, 20);
  EXPECT_TRUE(with({{"do_sample", false}}).do_sample) << "that is for generate()";
  EXPECT_TRUE(sampling_of_server({}).do_sample);
  EXPECT_EQ(with({{"num_beams", 4}}).num_beams, 1);
}

/// As prepare_generation_config of ms-swift 4 makes them, for a request that says nothing.
TEST(GenerationDefaults, MsSwiftsServerDrawsWhereTheFileSaysSo) {
  const DirectoryOfASmallModel dir;
  const auto with = [&](const Json& json) {
    write_json_file(dir / "generation_config.json", json);
    return sampling_of_swift(load_generation_defaults(arch::load_model_config(dir), dir));
  };
  EXPECT_FALSE(sampling_of_swift({}).do_sample);
  EXPECT_FALSE(with({{"temperature", 0.6}}).do_sample);
  EXPECT_EQ(with({{"temperature", 0.6}}).temperature, 0.6) << "for requests that draw";
  EXPECT_EQ(with({{"temperature", 0.6}}).top_k, 50);
  EXPECT_TRUE(with({{"do_sample", true}}).do_sample);
  EXPECT_FALSE(with({{"do_sample", true}, {"temperature", 0}}).do_sample);
  EXPECT_EQ(with({{"do_sample", true}, {"top_k", 20}}).top_k, 20);
}

TEST(GenerationDefaults, NamesEveryKeyThatWouldChangeAnswersAndIsNotBuilt) {
  const DirectoryOfASmallModel dir;
  const auto warnings_of = [&](const Json& json) {
    write_json_file(dir / "generation_config.json", json);
    testing::internal::CaptureStderr();
    load_generation_defaults(arch::load_model_config(dir), dir);
    return testing::internal::GetCapturedStderr();
  };
  using testing::HasSubstr;
  const std::string all = warnings_of({{"no_repeat_ngram_size", 3},
                                       {"min_new_tokens", 5},
                                       {"bad_words_ids", {{1, 2}}},
                                       {"max_length", 4096}});
  EXPECT_THAT(all, HasSubstr("generation_config.json: no_repeat_ngram_size 3 is not built in: "
                             "answers may differ from Hugging Face's"));
  EXPECT_THAT(all, HasSubstr("min_new_tokens 5"));
  EXPECT_THAT(all, HasSubstr("bad_words_ids [[1,2]]"));
  EXPECT_THAT(all, HasSubstr("max_length 4096 is not built in: --max_new_tokens bounds"));
  // Defaults, keys without influence and max_length beside max_new_tokens.
  EXPECT_EQ(warnings_of({{"no_repeat_ngram_size", 0},
                         {"typical_p", 1},
                         {"bad_words_ids", nullptr},
                         {"suppress_tokens", Json::array()},
                         {"transformers_version", "4.44.0"},
                         {"_from_model_config", true},
                         {"pad_token_id", 0},
                         {"use_cache", false},
                         {"early_stopping", true},
                         {"length_penalty", 2.0},
                         {"max_length", 4096},
                         {"max_new_tokens", 100}}),
            "");
}

TEST(GenerationDefaults, ReadsWhenBeamsStop) {
  const DirectoryOfASmallModel dir;
  const auto with = [&](const Json& value) {
    write_json_file(dir / "generation_config.json", {{"early_stopping", value}});
    return load_generation_defaults(arch::load_model_config(dir), dir).sampling.early_stopping;
  };
  EXPECT_EQ(with(nullptr), EarlyStopping::kHeuristic);
  EXPECT_EQ(with(false), EarlyStopping::kHeuristic);
  EXPECT_EQ(with(true), EarlyStopping::kWhenFull);
  EXPECT_EQ(with("never"), EarlyStopping::kNever);
  EXPECT_THROW(with("always"), ModelError);
}

}  // namespace generate_test
}  // namespace danlu::infer
