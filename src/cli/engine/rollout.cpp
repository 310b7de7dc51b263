#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/message.h"
#include "base/progress.h"
#include "base/rng.h"
#include "cli/engine/dataset_rows.h"
#include "cli/engine/engine.h"
#include "cli/engine/infer_output.h"
#include "cli/engine/infer_request.h"
#include "cli/engine/infer_resume.h"
#include "cli/engine/model_files.h"
#include "cli/engine/rollout_progress.h"
#include "data/preprocess_run.h"
#include "eval/rewards/reward.h"
#include "settings/model_source.h"
#include "settings/options/reinforcement_options.h"
#include "text/encoder_tools.h"
#include "train/lone_judge.h"
#include "train/rollouts/advantages.h"
#include "train/rollouts/conversations.h"
#include "train/rollouts/judges.h"
#include "train/rollouts/model_reward.h"
#include "train/rollouts/reward_settings.h"
#include "train/rollouts/stop_words.h"

namespace danlu::cli {
namespace {

/// A prompt, and the columns of its row.
struct Prompt {
  Question question;
  Json columns;
};

Prompt prompt_of(data::PromptRow row, std::string place) {
  Prompt prompt{.question = {}, .columns = std::move(row.columns)};
  if (auto* plain = std::get_if<data::TextRow>(&row.prompt))
    prompt.question.plain = plain->texts.empty() ? "" : plain->texts.front();
  else if (auto* conversation = std::get_if<text::Conversation>(&row.prompt))
    prompt.question.conversation = std::move(*conversation);
  else
    prompt.question.prompt_ids = std::get<data::TokenRow>(row.prompt).ids;
  prompt.question.place = std::move(place);
  return prompt;
}

/// The prompts of one data set, at most `limit` (0: all).
std::vector<Prompt> prompts_of_rows(const data::PlannedDataset& planned, size_t limit,
                                    double max_dropped_ratio) {
  std::vector<Prompt> prompts;
  RowTaker taker;
  taker.wants_more = [&] { return limit == 0 || prompts.size() < limit; };
  taker.take = [&](data::Row row, const RowPlace& place) {
    prompts.push_back(prompt_of(std::get<data::PromptRow>(std::move(row)), place.text));
  };
  each_row(planned, max_dropped_ratio, taker);
  return prompts;
}

std::vector<Prompt> read_prompts(const Options& options, std::vector<fs::path>& files) {
  data::FormatOptions format;
  format.kind = data::SampleKind::kPrompts;
  if (options.has_value("columns")) format.columns = options.get_json("columns");
  format.keeps_messages = options.has_value("environment");
  const auto limit = static_cast<size_t>(std::max<int64_t>(0, options.get_int("max_samples")));
  std::vector<Prompt> prompts;
  for (const data::PlannedDataset& planned :
       data::plan_datasets(options.get_list("dataset"), format)) {
    for (const data::DataFile& file : planned.dataset.files) files.push_back(file.path);
    std::vector<Prompt> more = prompts_of_rows(
        planned, limit, options.get_float_or("max_dropped_ratio", data::kMaxDroppedRatio));
    prompts.insert(prompts.end(), std::make_move_iterator(more.begin()),
                   std::make_move_iterator(more.end()));
  }
  if (prompts.empty()) throw DataError(tr("[--dataset] no usable prompt"));
  return prompts;
}

/// Before anything is read. Errors: as take_rewards' and make_reward's.
settings::Reinforcement rewards_named(const Options& options) {
  settings::Reinforcement told;
  settings::take_rewards(options, told);
  // Else the model's files may say it, which are not read yet.
  told.max_new_tokens = options.get_int_or("max_new_tokens", INT64_MAX);
  train::require_rewards(told);
  for (const fs::path& judge : told.reward_models)
    (void)settings::open_model(settings::reward_model_at(judge));
  return told;
}

/// Reward models, and what they are to see behind an answer that is ended.
std::vector<std::unique_ptr<eval::Reward>> judges_named(const settings::Reinforcement& told,
                                                        const InferenceModel& loaded) {
  const std::vector<text::TokenId> tail =
      train::tail_of_answers(loaded.encoder.get(), loaded.end_ids());
  std::vector<std::unique_ptr<eval::Reward>> judges;
  for (size_t i = 0; i < told.reward_models.size(); ++i) {
    const settings::ModelSource source = settings::reward_model_at(told.reward_models[i]);
    const weights::CheckpointSource opened = settings::open_model(source);
    // Answers are judged as the ids that were drawn.
    train::require_same_tokens(*loaded.tokenizer,
                               "--reward_model " + told.reward_models[i].string(),
                               source.adapter.empty() ? opened.companions : source.adapter);
    train::say_trained_base(source.adapter);
    const auto judge =
        train::lone_judge(opened, source.adapter, loaded.model->dtype(), loaded.model->device());
    judges.push_back(train::model_reward(train::name_of_judge(told.reward_models, i), judge,
                                         judge->stage(), judge->links(), tail));
  }
  return judges;
}

/// An answer and what it is worth.
struct Judged {
  eval::Completion completion;
  std::optional<text::TokenId> ended_by;
  std::vector<eval::Score> scores;  ///< of each reward
  eval::Score reward;
  int64_t turns = 1;  ///< of a conversation with an environment
};

/// Which answers become rows, and how.
struct Keeping {
  size_t best = 0;  ///< so many of each prompt; 0: all
  std::optional<double> at_least;
  bool with_rejected = false;
};

class Rollout {
 public:
  Rollout(const Options& options, const InferenceModel& loaded, settings::Reinforcement told)
      : loaded_(loaded),
        sampling_(sampling_from(options, loaded.defaults)),
        told_(std::move(told)) {
    const bool is_cold = options.is_set("temperature") && options.get_float("temperature") == 0;
    if (!options.is_set("do_sample") && !is_cold) sampling_.do_sample = true;
    max_new_tokens_ = max_new_tokens_from(options, loaded.defaults);
    answers_ = static_cast<size_t>(options.get_int("num_generations"));
    batch_size_ = options.get_int("batch_size");
    told_.max_new_tokens = max_new_tokens_;
    told_.stop_words = settings::stop_words_from(options);
    answer_end_ = train::end_of_answers(loaded.encoder.get(), loaded.end_ids(), *loaded.tokenizer);
    for (const std::string& name : told_.rewards)
      rewards_.push_back(eval::make_reward(name, train::reward_settings(told_)));
    num_rules_ = rewards_.size();
    if (!told_.environment.empty()) begin_conversations(options);
    for (auto& judge : judges_named(told_, loaded)) rewards_.push_back(std::move(judge));
    keeping_.best = static_cast<size_t>(options.get_int("n_best_to_keep"));
    if (options.has_value("min_reward")) keeping_.at_least = options.get_float("min_reward");
    keeping_.with_rejected = options.get_bool("keep_rejected");
  }

  /// Prompts whose answers are drawn and judged together.
  size_t prompts_at_a_time() const {
    return std::max<size_t>(1, 4 * static_cast<size_t>(batch_size_) / answers_);
  }

  /// The rows of prompts [begin, end); whether all answers were drawn.
  std::pair<std::string, bool> rows_of(const std::vector<Prompt>& prompts, size_t begin,
                                       size_t end) {
    std::vector<infer::Request> requests;
    std::vector<size_t> prompt_of_group;
    for (size_t i = begin; i < end; ++i) add_requests(prompts[i], i, requests, prompt_of_group);
    std::vector<Judged> judged = conversations_ ? talked(requests, prompts, prompt_of_group)
                                                : drawn(requests, prompts, prompt_of_group);
    if (pending_interrupt() != 0) return {"", false};
    judge(judged);
    if (pending_interrupt() != 0) return {"", false};  // a program was not waited for
    std::string rows;
    for (size_t group = 0; group < prompt_of_group.size(); ++group)
      rows += rows_of_group(prompts[prompt_of_group[group]],
                            std::span(judged).subspan(group * answers_, answers_));
    return {rows, true};
  }

  /// Errors: DataError where nothing could be judged.
  void report(double seconds) const {
    log::info("{} prompts, {} answers, {} rows; {} new tokens, {:.1f} new tokens/s",
              format_count(num_prompts_), format_count(num_prompts_ * answers_),
              format_count(num_rows_), format_count(static_cast<uint64_t>(stats_.new_tokens)),
              seconds > 0 ? static_cast<double>(stats_.new_tokens) / seconds : 0.0);
    for (size_t rule = 0; rule < sums_.size(); ++rule) {
      const Sum& sum = sums_[rule];
      if (sum.count > 0) {
        log::info("{}: mean {:.4f}, {} answers that it could not judge", rewards_[rule]->name(),
                  sum.sum / sum.count, sum.unjudged);
      } else {
        log::info("{}: {} answers, none of which it could judge", rewards_[rule]->name(),
                  sum.unjudged);
      }
    }
    if (num_judged_ > 0) {
      log::info("best of {}: mean reward {:.4f}", answers_,
                sum_of_best_ / static_cast<double>(num_judged_));
    }
    if (num_skipped_ > 0) log::warning("{} prompts could not be asked", num_skipped_);
    if (num_prompts_ > 0 && num_judged_ == 0) {
      throw DataError(
          tr("[rollout] none of {} answers could be judged, so that none is a row",
             num_prompts_ * answers_),
          tr("rules need the right answer in the row (--reward_column names it), programs print a "
             "number for each"));
    }
  }
  const infer::GenerationStats& stats() const { return stats_; }

  /// What report() says of the prompts so far, but for new tokens.
  Json counts() const {
    Json sums = Json::array();
    for (const Sum& sum : sums_) sums.push_back({sum.sum, sum.count, sum.unjudged});
    return {{"sums", sums},          {"sum_of_best", sum_of_best_}, {"prompts", num_prompts_},
            {"judged", num_judged_}, {"rows", num_rows_},           {"skipped", num_skipped_}};
  }
  /// Goes on from counts() of a run that was killed.
  void take_counts(const Json& counts) {
    for (const Json& sum : counts.at("sums"))
      sums_.push_back({sum.at(0).get<double>(), sum.at(1).get<double>(), sum.at(2).get<int64_t>()});
    sum_of_best_ = counts.at("sum_of_best").get<double>();
    num_prompts_ = counts.at("prompts").get<uint64_t>();
    num_judged_ = counts.at("judged").get<uint64_t>();
    num_rows_ = counts.at("rows").get<uint64_t>();
    num_skipped_ = counts.at("skipped").get<uint64_t>();
  }

 private:
  struct Sum {
    double sum = 0, count = 0;
    int64_t unjudged = 0;
  };

  void begin_conversations(const Options& options) {
    if (!loaded_.encoder)
      throw UsageError(tr("{}: without a chat template nothing says how a conversation goes on",
                          options.given_as("environment")),
                       tr("--template names one"));
    train::Conversations::Parts parts{
        eval::make_environment(told_.environment, train::environment_settings(told_)),
        loaded_.encoder,
        loaded_.tokenizer,
        loaded_.end_ids(),
        text::tool_format_of_encoder(*loaded_.encoder, *loaded_.tokenizer,
                                     options.get_string_or("prompt_type", ""),
                                     options.get_string_or("prompt_type_path", "")),
        loaded_.model->config().max_positions};
    conversations_ = std::make_unique<train::Conversations>(std::move(parts), told_);
  }

  void add_requests(const Prompt& prompt, size_t index, std::vector<infer::Request>& requests,
                    std::vector<size_t>& prompt_of_group) {
    try {
      infer::Request request =
          checked_request(prompt.question, loaded_, sampling_, max_new_tokens_, 0);
      prompt_of_group.push_back(index);
      for (size_t i = 0; i < answers_; ++i) {
        request.stream = index * answers_ + i;
        requests.push_back(request);
      }
    } catch (const DataError& error) {
      if (num_skipped_++ == 0) log::warning("{}", error.what());
    }
  }

  std::vector<infer::Answer> answers_to(const std::vector<infer::Request>& requests) {
    return train::with_stop_words(
        loaded_.tokenizer, told_.stop_words, requests, [&](const infer::OnToken& on_token) {
          return infer::generate(*loaded_.model, requests, batch_size_, on_token, &stats_,
                                 [] { return pending_interrupt() != 0; });
        });
  }

  std::vector<Judged> drawn(const std::vector<infer::Request>& requests,
                            const std::vector<Prompt>& prompts,
                            const std::vector<size_t>& prompt_of_group) {
    const std::vector<infer::Answer> answers = answers_to(requests);
    std::vector<Judged> judged;
    for (size_t i = 0; i < answers.size(); ++i) {
      Judged& one = judged.emplace_back();
      one.completion.prompt = loaded_.tokenizer->decode(requests[i].prompt);
      one.completion.text = loaded_.tokenizer->decode(answers[i].ids, /*skip_special=*/true);
      one.completion.prompt_ids.assign(requests[i].prompt.begin(), requests[i].prompt.end());
      one.completion.ids = answers[i].ids;
      one.ended_by = answers[i].stopped_by;
      one.completion.is_ended = answers[i].reason == infer::FinishReason::kStop;
      one.completion.row = prompts[prompt_of_group[i / answers_]].columns;
    }
    return judged;
  }

  /// The same of conversations with an environment.
  std::vector<Judged> talked(const std::vector<infer::Request>& requests,
                             const std::vector<Prompt>& prompts,
                             const std::vector<size_t>& prompt_of_group) {
    std::vector<train::TalkBegin> begins;
    for (size_t i = 0; i < requests.size(); ++i) {
      const size_t prompt = prompt_of_group[i / answers_];
      begins.push_back(
          {requests[i], fmt::format("{}.{}", prompt, i % answers_), prompts[prompt].columns});
    }
    const auto draw = [&](int64_t, const std::vector<infer::Request>& of_turn) {
      std::vector<train::DrawnAnswer> answers;
      for (const infer::Answer& found : answers_to(of_turn))
        answers.push_back(train::drawn_answer(found));
      return answers;
    };
    const auto ask = [](int64_t, const std::function<Json()>& of_environment) -> Json {
      return pending_interrupt() != 0 ? Json() : of_environment();
    };
    const std::vector<text::TokenId> stop_ids = loaded_.end_ids();
    std::vector<Judged> judged;
    for (const train::DrawnAnswer& answer : conversations_->hold(begins, draw, ask)) {
      Judged one;
      one.completion = train::completion_of(answer, *loaded_.tokenizer);
      one.completion.row = begins[judged.size()].row;
      std::vector<int32_t>& ids = one.completion.ids;
      if (!ids.empty() && std::count(stop_ids.begin(), stop_ids.end(), ids.back()) > 0) {
        one.ended_by = ids.back();
        ids.pop_back();
      }
      one.turns = answer.turns;
      judged.push_back(std::move(one));
    }
    return judged;
  }

  /// Reward models see the token that ended an answer, or the one that would have, as where they
  /// were trained.
  void add_ends(const std::vector<Judged>& judged,
                std::vector<eval::Completion>& completions) const {
    for (size_t i = 0; i < judged.size(); ++i) {
      if (judged[i].ended_by)
        completions[i].ids.push_back(*judged[i].ended_by);
      else
        completions[i].missing_end = answer_end_;
    }
  }

  void judge(std::vector<Judged>& judged) {
    std::vector<eval::Completion> completions;
    for (const Judged& one : judged) completions.push_back(one.completion);
    std::vector<std::vector<eval::Score>> by_rule;
    sums_.resize(rewards_.size());
    for (size_t rule = 0; rule < rewards_.size(); ++rule) {
      if (rule == num_rules_) add_ends(judged, completions);
      by_rule.push_back(eval::usable_scores(*rewards_[rule], completions));
      for (size_t i = 0; i < judged.size(); ++i) {
        const eval::Score score = by_rule.back().at(i);
        judged[i].scores.push_back(score);
        sums_[rule].sum += score.value_or(0);
        sums_[rule].count += score ? 1 : 0;
        sums_[rule].unjudged += score ? 0 : 1;
      }
    }
    const std::vector<eval::Score> rewards = train::weighted_rewards(by_rule, told_.reward_weights);
    for (size_t i = 0; i < judged.size(); ++i) judged[i].reward = rewards[i];
  }

  std::string rows_of_group(const Prompt& prompt, std::span<const Judged> group) {
    ++num_prompts_;
    std::vector<size_t> order(group.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::erase_if(order, [&](size_t i) { return !group[i].reward; });
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return *group[a].reward > *group[b].reward; });
    num_judged_ += order.empty() ? 0 : 1;
    if (!order.empty()) sum_of_best_ += *group[order.front()].reward;
    const Judged* worst = order.empty() ? nullptr : &group[order.back()];
    std::string rows;
    size_t kept = 0;
    for (const size_t i : order) {
      const Judged& one = group[i];
      if (keeping_.best > 0 && kept == keeping_.best) break;
      if (keeping_.at_least && *one.reward < *keeping_.at_least) break;
      if (keeping_.with_rejected && *one.reward <= *worst->reward) break;
      rows += row_of(prompt, one, keeping_.with_rejected ? worst : nullptr)
                  .dump(-1, ' ', false, Json::error_handler_t::replace) +
              "\n";
      ++kept;
    }
    num_rows_ += kept;
    return rows;
  }

  static Json prompt_messages(const Prompt& prompt, const Judged& one) {
    Json messages = Json::array();
    for (const text::Message& message : prompt.question.conversation.messages)
      messages.push_back({{"role", message.role}, {"content", message.content}});
    if (!messages.empty()) return messages;
    const std::string text =
        prompt.question.plain.empty() ? one.completion.prompt : prompt.question.plain;
    messages.push_back({{"role", "user"}, {"content", text}});
    return messages;
  }

  Json row_of(const Prompt& prompt, const Judged& one, const Judged* rejected) const {
    Json row = prompt.columns;
    Json messages = one.completion.messages;
    if (messages.is_null()) {
      messages = prompt_messages(prompt, one);
      messages.push_back({{"role", "assistant"}, {"content", one.completion.text}});
    }
    row["messages"] = std::move(messages);
    if (conversations_) row["num_turns"] = one.turns;
    row["reward"] = *one.reward;
    Json rewards = Json::object();
    for (size_t rule = 0; rule < rewards_.size(); ++rule)
      rewards[rewards_[rule]->name()] = one.scores[rule] ? Json(*one.scores[rule]) : Json();
    row["rewards"] = std::move(rewards);
    row["finish_reason"] = one.completion.is_ended ? "stop" : "length";
    if (rejected) {
      row["rejected_response"] = rejected->completion.text;
      row["rejected_reward"] = *rejected->reward;
    }
    return row;
  }

  const InferenceModel& loaded_;
  infer::SamplingParams sampling_;
  int64_t max_new_tokens_ = 0, batch_size_ = 64;
  size_t answers_ = 8;
  std::optional<text::TokenId> answer_end_;
  settings::Reinforcement told_;
  std::vector<std::unique_ptr<eval::Reward>> rewards_;  ///< reward models last
  size_t num_rules_ = 0;                                ///< of rewards_, without reward models
  std::unique_ptr<const train::Conversations> conversations_;  ///< nullptr: single answers
  Keeping keeping_;
  infer::GenerationStats stats_;
  std::vector<Sum> sums_;
  double sum_of_best_ = 0;
  uint64_t num_prompts_ = 0, num_judged_ = 0, num_rows_ = 0, num_skipped_ = 0;
};

/// --output_dir is where --output lies. Errors: UsageError where that says so itself.
Options with_place(const Options& given) {
  if (!given.has_value("output_dir")) return given;
  // The file of danlu sample is named by the time.
  const Options options = given.has_value("output")
                              ? given
                              : given.with("output",
                                           fmt::format("{:%Y-%m-%d-%H-%M-%S}.jsonl",
                                                       fmt::localtime(std::time(nullptr))),
                                           "output_dir");
  if (!options.is_given("output_dir") && fs::path(options.get_string("output")).has_parent_path())
    return options;
  const fs::path place = options.get_string("output_dir"), output = options.get_string("output");
  if (output.has_parent_path()) {
    throw UsageError(tr("[{}] and {} both say where the file goes", options.given_as("output_dir"),
                        options.given_as("output")),
                     tr("give one of them"));
  }
  return options.with("output", (place / output).string(), options.given_as("output"));
}

/// What rows depend on: the request as infer's, the rows, and the files of models that judge.
std::string identity_of(const Options& options, const InferenceModel& loaded,
                        const std::vector<Prompt>& prompts, const settings::Reinforcement& told) {
  uint64_t rows = 0;
  for (const Prompt& prompt : prompts) rows = mix64(rows, hash_bytes(dump_text(prompt.columns)));
  return request_identity(options, loaded, {}) +
         dump_text({{"rows", rows}, {"judges", files_of_models(told.reward_models)}});
}

/// Errors: IoError where the rows cannot be written; `kept`: prompts from which on the same request
/// goes on.
void add_rows(AnswerFile& file, const std::string& rows, size_t kept, size_t prompts) {
  try {
    file.add_or_stop(rows);
  } catch (const IoError& error) {
    const std::string again = tr("the same command goes on behind the prompts that are done");
    throw IoError(tr("{}; {} of {} prompts are done, and stay there", error.what(), kept, prompts),
                  error.hint().empty() ? again : error.hint() + "; " + again);
  }
}

}  // namespace

int run_rollout(const Options& told_options) {
  const Options options = with_place(told_options);
  const settings::Reinforcement told = rewards_named(options);
  std::vector<fs::path> files;
  const std::vector<Prompt> prompts = read_prompts(options, files);
  const FileLock lock = require_usable_output(options, files);
  const InferenceModel loaded =
      load_for_inference(options, locate_model(options), /*raw=*/false, /*tells_apart=*/false);
  Rollout rollout(options, loaded, told);
  watch_interrupts();
  const fs::path output = options.get_string("output");
  const std::string identity = identity_of(options, loaded, prompts, told);
  const RolloutProgress earlier = earlier_progress(output, identity).value_or(RolloutProgress{});
  if (earlier.prompts > 0) {
    rollout.take_counts(earlier.counts);
    log::info("{} of {} prompts are done by a run that was broken off: {}", earlier.prompts,
              prompts.size(), partial_of(output).string());
  }
  // Another request's never stands beside this one's identity.
  std::error_code ignored;
  if (earlier.prompts == 0) fs::remove(progress_file_of(output), ignored);
  AnswerFile file(output, options.get_bool("overwrite"), identity, earlier.rows);
  uint64_t bytes = earlier.rows.size();
  size_t kept = earlier.prompts;
  ProgressBar bar("rollout", prompts.size(), "prompts");
  for (size_t begin = earlier.prompts; begin < prompts.size();) {
    const size_t end = std::min(prompts.size(), begin + rollout.prompts_at_a_time());
    const auto [rows, is_whole] = rollout.rows_of(prompts, begin, end);
    if (!is_whole) {
      throw_interrupted(pending_interrupt(),
                        tr("[rollout] stopped: {} of {} prompts are done", begin, prompts.size()));
    }
    add_rows(file, rows, kept, prompts.size());
    if (note_progress(output, end, bytes += rows.size(), rollout.counts())) kept = end;
    bar.update(begin = end);
  }
  bar.finish();
  file.finish();
  fs::remove(progress_file_of(output), ignored);
  rollout.report(rollout.stats().prefill_s + rollout.stats().decode_s);
  return 0;
}

}  // namespace danlu::cli
