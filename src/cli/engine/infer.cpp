#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/in_english.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/message.h"
#include "base/progress.h"
#include "base/slow_watch.h"
#include "cli/engine/answer_rules.h"
#include "cli/engine/chat.h"
#include "cli/engine/infer_figures.h"
#include "cli/engine/infer_flags.h"
#include "cli/engine/infer_labels.h"
#include "cli/engine/infer_output.h"
#include "cli/engine/infer_ranks.h"
#include "cli/engine/infer_request.h"
#include "cli/engine/infer_resume.h"
#include "cli/engine/infer_rows.h"
#include "cli/engine/infer_scores.h"
#include "cli/engine/infer_steps.h"
#include "cli/engine/infer_vectors.h"
#include "cli/engine/load_for_inference.h"
#include "cli/engine/model_ranks.h"
#include "cli/engine/ranking.h"
#include "cli/engine/sorting.h"
#include "cli/engine/speculation.h"
#include "cli/infer_talks.h"
#include "settings/options/media_flags.h"
#include "settings/options/mm_inference.h"
#include "text/raw_encoder.h"

namespace danlu::cli {
namespace {

bool is_interrupted() { return pending_interrupt() != 0; }

WorkDone layers_walked(const models::CausalLM& model) {
  const int64_t passes = model.layer_passes().forward;
  return {passes, static_cast<double>(passes)};
}

/// Errors: DataError for an answer that failed.
void require_made(const infer::Answer& answer) {
  if (answer.reason == infer::FinishReason::kFailed) throw DataError(answer.problem);
}

struct HowToAnswer {
  infer::SamplingParams sampling;
  int64_t max_new_tokens;
  AnswerRules rules;
  infer::Speculation speculation;
};

/// Streams one answer to the screen. Until its first token nothing else would be seen.
void stream_answer(const InferenceModel& loaded, const HowToAnswer& how,
                   const infer::Request& request, infer::GenerationStats* stats) {
  api::AnswerReader reader = how.rules.reader(request);
  SlowWatch watch([&] { return layers_walked(*loaded.model); },
                  [](const std::string& line) { log::info("{}", line); });
  const int64_t num_layers = loaded.model->config().num_layers;
  watch.begin(tr("prompt of {} tokens", request.prompt.size()), "in all",
              {num_layers, static_cast<double>(num_layers)});
  const std::vector<infer::Answer> made = infer::generate(
      *loaded.model, {request}, 1,
      [&](size_t, text::TokenId id) {
        watch.end();
        print_text(reader.push(id).content);
        return !is_interrupted() && !reader.stopped_by();
      },
      stats, {}, {}, loaded.followers.get(), 0, how.speculation);
  require_made(made.front());
  print_text(reader.finish().content + "\n");
}

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

void report_speed(const infer::GenerationStats& stats, double seconds) {
  log::info("{} prompt tokens, {} new tokens, {:.1f} new tokens/s",
            format_count(static_cast<uint64_t>(stats.prompt_tokens)),
            format_count(static_cast<uint64_t>(stats.new_tokens)),
            seconds > 0 ? static_cast<double>(stats.new_tokens) / seconds : 0.0);
  if (stats.guessed > 0)
    log::info("{} tokens were guessed, {} of them right", stats.guessed, stats.guessed_right);
}

/// Outcomes come as they are done and leave in the order of the questions. Those that a signal cut
/// short come last, and leave only where one that is done follows.
class OrderedResults {
 public:
  /// `file` may be null. Both must outlive this.
  /// `earlier`: of the first questions, whose rows are in the file.
  OrderedResults(const std::vector<Question>& questions, AnswerFile* file, bool prints,
                 const std::vector<Outcome>& earlier)
      : questions_(questions),
        file_(file),
        prints_(prints),
        waiting_(questions.size()),
        next_(earlier.size()),
        num_done_(earlier.size()),
        done_end_(earlier.size()) {
    for (size_t i = 0; i < earlier.size(); ++i) count_match(questions[i], earlier[i]);
  }

  void put(size_t index, Outcome outcome) {
    const bool is_done = outcome.finish_reason != name_of(infer::FinishReason::kCancelled);
    if (!is_done && index >= done_end_) return;
    num_done_ += is_done;
    if (is_done) done_end_ = std::max(done_end_, index + 1);
    waiting_[index] = std::move(outcome);
    std::string shown, rows;
    for (; next_ < waiting_.size() && waiting_[next_]; ++next_) {
      const Question& question = questions_[next_];
      const Outcome& due = *waiting_[next_];
      count_match(question, due);
      if (prints_) shown += result_text(question, due);
      if (file_)
        rows +=
            result_row(question, due).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
      waiting_[next_].reset();
    }
    if (!shown.empty()) print_text(shown);
    if (!rows.empty()) file_->add(rows);
  }

  size_t num_done() const { return num_done_; }
  /// In the order of the questions, without prompts.
  std::vector<AnsweredRow>& answered() { return answered_; }

  void report_matches() const {
    if (with_reference_ == 0) return;
    log::info("exact match: {:.1f}% ({} of {})",
              100.0 * static_cast<double>(equal_) / static_cast<double>(with_reference_), equal_,
              with_reference_);
  }

 private:
  void count_match(const Question& question, const Outcome& outcome) {
    answered_.push_back({outcome.answer, question.reference});
    if (!question.reference || !outcome.error.empty()) return;
    ++with_reference_;
    equal_ += trimmed(outcome.answer) == trimmed(*question.reference);
  }

  const std::vector<Question>& questions_;
  AnswerFile* file_;
  bool prints_;
  std::vector<std::optional<Outcome>> waiting_;
  std::vector<AnsweredRow> answered_;
  size_t next_ = 0, num_done_ = 0, done_end_ = 0, with_reference_ = 0, equal_ = 0;
};

infer::Answer searched(const InferenceModel& loaded, const infer::Request& request,
                       infer::GenerationStats* stats) {
  try {
    return infer::beam_search(*loaded.model, request, stats, is_interrupted,
                              loaded.followers.get());
  } catch (const DataError& error) {
    return {.ids = {}, .reason = infer::FinishReason::kFailed, .problem = error.what()};
  }
}

/// Ends each answer whose text has a stop word; empty where there are none.
infer::OnToken stops_at_words(const AnswerRules& rules,
                              const std::vector<infer::Request>& requests) {
  if (rules.reading().stop.empty()) return {};
  auto readers = std::make_shared<std::vector<api::AnswerReader>>();
  for (const infer::Request& request : requests) readers->push_back(rules.reader(request));
  return [readers](size_t index, text::TokenId id) {
    api::AnswerReader& reader = (*readers)[index];
    reader.push(id);
    return !reader.stopped_by();
  };
}

/// Hands over each answer once it is finished; the cancelled ones last.
void answer_requests(const InferenceModel& loaded, const HowToAnswer& how,
                     const std::vector<infer::Request>& requests, int64_t batch_size,
                     infer::GenerationStats* stats, const infer::OnAnswer& on_answer) {
  ProgressBar bar("infer", requests.size(), "rows");
  std::vector<bool> is_done(requests.size());
  uint64_t num_done = 0;
  const auto finished = [&](size_t index, const infer::Answer& answer) {
    is_done[index] = true;
    on_answer(index, answer);
    bar.update(++num_done);
  };
  if (!requests.empty() && requests.front().sampling.num_beams > 1) {
    for (size_t i = 0; i < requests.size(); ++i) {
      infer::Answer answer{.ids = {}, .reason = infer::FinishReason::kCancelled};
      if (!is_interrupted()) answer = searched(loaded, requests[i], stats);
      finished(i, answer);
    }
  } else {
    const std::vector<infer::Answer> answers = infer::generate(
        *loaded.model, requests, batch_size, stops_at_words(how.rules, requests), stats,
        is_interrupted, finished, loaded.followers.get(), 0, how.speculation);
    for (size_t i = 0; i < answers.size(); ++i) {
      if (!is_done[i]) on_answer(i, answers[i]);
    }
  }
  bar.finish();
}

/// How questions are answered.
/// checked_request, whose rules are its own.
infer::Request ruled_request(const Question& question, const InferenceModel& loaded,
                             const HowToAnswer& how, uint64_t stream) {
  infer::Request request =
      checked_request(question, loaded, how.sampling, how.max_new_tokens, stream);
  request.rules = how.rules.fresh();
  return request;
}

/// Requests, and which question each belongs to.
struct Work {
  std::vector<infer::Request> requests;
  std::vector<size_t> question_of;
};

/// Why no request can be made of it. Rows are stored, and read the same everywhere.
std::string problem_in_english(const std::function<void()>& make_request) {
  const InEnglish english;
  try {
    make_request();
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

Outcome outcome_of(const AnswerRules& rules, const infer::Request& request,
                   const infer::Answer& answer) {
  api::AnswerReader reader = rules.reader(request);
  Outcome outcome{.answer = "", .finish_reason = name_of(answer.reason), .error = answer.problem};
  for (const text::TokenId id : answer.ids) outcome.answer += reader.push(id).content;
  outcome.answer += reader.finish().content;
  if (reader.stopped_by()) outcome.finish_reason = name_of(infer::FinishReason::kStop);
  if (answer.reason == infer::FinishReason::kFailed && speaks_chinese()) {
    outcome.error = problem_in_english([&] {
      for (const infer::PromptPicture& picture : request.pictures) picture.pixels();
    });
  }
  return outcome;
}

/// Plans questions[from …]. Those that no request can be made of get their outcome at once. Errors:
/// DataError of the first of them that is no blank line if that leaves none.
Work plan_work(const std::vector<Question>& questions, size_t from, const InferenceModel& loaded,
               const HowToAnswer& how, std::vector<std::pair<size_t, Outcome>>* done) {
  Work work;
  std::optional<DataError> first_problem, first_of_a_text;
  size_t num_problems = 0;
  for (size_t i = from; i < questions.size(); ++i) {
    const auto request = [&] { return ruled_request(questions[i], loaded, how, i); };
    try {
      work.requests.push_back(request());
      work.question_of.push_back(i);
    } catch (const DataError& error) {
      if (num_problems++ == 0) first_problem = error;
      if (!first_of_a_text && !questions[i].is_blank) first_of_a_text = error;
      const std::string stored = speaks_chinese() ? problem_in_english(request) : error.what();
      done->push_back({i, {.answer = "", .finish_reason = "error", .error = stored}});
    }
  }
  if (from == 0 && work.requests.empty() && first_of_a_text) throw *first_of_a_text;
  if (first_problem) {
    log::warning("{} row(s) cannot be answered and are marked \"error\"; the first: {}",
                 num_problems, first_problem->what());
  }
  return work;
}

/// What the model reads of a question; of one that no request can be made of, its text.
std::string prompt_read(const Question& question, const InferenceModel& loaded,
                        const HowToAnswer& how, size_t index) {
  try {
    return loaded.tokenizer->decode(ruled_request(question, loaded, how, index).prompt);
  } catch (const DataError&) {
    return question.plain;
  }
}

/// Figures of the answers, on the screen and in --output_dir.
void judge_answers(const Options& options, const InferenceModel& loaded, const HowToAnswer& how,
                   const std::vector<Question>& questions, std::vector<AnsweredRow>& rows,
                   double seconds) {
  report_metric(options, rows);
  if (!options.has_value("output_dir")) return;
  for (size_t i = 0; i < rows.size(); ++i)
    rows[i].prompt = prompt_read(questions[i], loaded, how, i);
  write_predictions(options.get_string("output_dir"), rows, seconds, options.get_int("batch_size"));
}

void answer_all(const Options& options, const InferenceModel& loaded, const fs::path& output,
                const std::vector<Question>& questions, const HowToAnswer& how) {
  require_labels(options, questions);
  const auto begin = std::chrono::steady_clock::now();
  const std::string identity =
      output.empty() ? "" : request_identity(options, loaded, questions) + how.rules.identity();
  EarlierAnswers earlier;
  if (!output.empty()) earlier = earlier_answers(output, identity, questions);
  const size_t num_earlier = earlier.outcomes.size();
  if (num_earlier > 0) {
    log::info("{} of {} answers are there from a run that was broken off: {}", num_earlier,
              questions.size(), partial_of(output).string());
  }
  std::vector<std::pair<size_t, Outcome>> done;
  const Work work = plan_work(questions, num_earlier, loaded, how, &done);
  std::optional<AnswerFile> file;
  if (!output.empty()) file.emplace(output, options.get_bool("overwrite"), identity, earlier.text);
  OrderedResults results(questions, file ? &*file : nullptr, !options.has_value("output"),
                         earlier.outcomes);
  for (auto& [index, outcome] : done) results.put(index, std::move(outcome));
  infer::GenerationStats stats;
  answer_requests(loaded, how, work.requests, options.get_int("batch_size"), &stats,
                  [&](size_t index, const infer::Answer& answer) {
                    results.put(work.question_of[index],
                                outcome_of(how.rules, work.requests[index], answer));
                  });
  report_speed(stats, stats.prefill_s + stats.decode_s);
  if (results.num_done() < questions.size()) {
    throw_interrupted(pending_interrupt(), tr("[infer] stopped: {} of {} rows are done",
                                              results.num_done(), questions.size()));
  }
  if (file) file->finish();
  results.report_matches();
  judge_answers(options, loaded, how, questions, results.answered(),
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

/// --prompt alone: the bare answer on stdout.
void answer_one(const Options& options, const InferenceModel& loaded, const Question& question,
                const HowToAnswer& how) {
  const infer::Request request = ruled_request(question, loaded, how, 0);
  infer::GenerationStats stats;
  if (how.sampling.num_beams == 1 && options.get_bool("stream")) {
    stream_answer(loaded, how, request, &stats);
  } else {
    answer_requests(loaded, how, {request}, 1, &stats, [&](size_t, const infer::Answer& answer) {
      require_made(answer);
      print_text(outcome_of(how.rules, request, answer).answer + "\n");
    });
  }
  report_speed(stats, stats.prefill_s + stats.decode_s);
  if (const int signal = pending_interrupt())
    throw_interrupted(signal, tr("[infer] stopped; the answer is not complete"));
}

bool searches_beams(const std::string& task) { return task.starts_with("beam_search"); }

/// MindSpeed's --task names a decoding mode. A temperature of 0 leaves nothing to draw from.
void apply_task(const Options& options, const std::string& task, infer::SamplingParams& sampling) {
  const bool is_cold = options.is_set("temperature") && options.get_float("temperature") == 0;
  if (task == "greedy" || task == "beam_search") sampling.do_sample = false;
  if (task == "do_sample" || task == "beam_search_with_sampling") sampling.do_sample = !is_cold;
  if (task == "chat" && !options.is_given("do_sample")) sampling.do_sample = !is_cold;
  if (searches_beams(task) && sampling.num_beams < 2) sampling.num_beams = 2;
}

/// Before a model is loaded. Errors: UsageError.
void require_beams_of(const Options& options, const std::string& task) {
  if (!searches_beams(task) || !options.is_given("num_beams")) return;
  const int64_t beams = options.get_int("num_beams");
  if (beams >= 2) return;
  throw UsageError(tr("[{}] --task {} searches at least 2 beams, got {}",
                      options.given_as("num_beams"), task, beams),
                   tr("leave out --num_beams for 2 beams, or --task for none"));
}

/// Nothing if the model reads text alone. Errors: UsageError if it does and a picture is named.
std::optional<data::MediaSettings> media_settings(const Options& options,
                                                  const ModelLocation& where) {
  const fs::path place = processor_directory(options, where);
  if (!place.empty()) return data::media_settings_of(place, settings::media_flags_from(options));
  require_no_media(options, where.model);
  return std::nullopt;
}

/// The data sets, and what the model, adapter and template are read from.
std::vector<fs::path> files_read(const Options& options, const ModelLocation& where,
                                 std::vector<fs::path> files) {
  for (const char* name : {"prompt_type", "prompt_type_path"}) {
    if (options.has_value(name)) files.push_back(options.get_string(name));
  }
  std::error_code ignored;
  for (const fs::path& directory : {where.model, where.adapter, where.record}) {
    for (const auto& entry : fs::directory_iterator(directory, ignored)) {
      // Answers may well lie beside a model.
      if (entry.path().extension() != ".jsonl") files.push_back(entry.path());
    }
  }
  return files;
}

/// The inference json's outweighs the model's own.
void take_generation_config(const Options& options, InferenceModel& loaded) {
  if (const auto generation = settings::mm_generation_config(options)) {
    loaded.defaults = infer::generation_defaults_of(loaded.model->config(), *generation,
                                                    options.get_string("mm_model"));
  }
}

/// Gives questions that are ids their texts.
void decode_tokenised(const text::Tokenizer& tokenizer, std::vector<Question>& questions) {
  for (Question& question : questions) {
    if (question.prompt_ids.empty()) continue;
    question.plain = tokenizer.decode(question.prompt_ids);
    if (!question.reference_ids.empty())
      question.reference = tokenizer.decode(question.reference_ids, true);
  }
}

void answer_questions(const Options& options, const InferenceModel& loaded, const fs::path& output,
                      std::vector<Question> questions, const infer::SamplingParams& sampling) {
  decode_tokenised(*loaded.tokenizer, questions);
  watch_interrupts();
  const HowToAnswer how{sampling, max_new_tokens_from(options, loaded.defaults),
                        AnswerRules(options, loaded, sampling.num_beams),
                        speculation_beside(options, sampling)};
  const bool single =
      questions.size() == 1 && options.has_value("prompt") && !options.has_value("output");
  if (single) {
    answer_one(options, loaded, questions[0], how);
  } else {
    answer_all(options, loaded, output, questions, how);
  }
}

/// What the other ranks do: compute what rank 0 asks for.
void help_rank_0(const Options& options, const parallel::Ranks& ranks) {
  const InferenceModel loaded =
      load_for_inference(options, locate_model(options), /*raw=*/true, /*tells_apart=*/false,
                         ranks.mesh(), speculation_from(options).predicted_tokens > 0);
  watch_interrupts();
  infer::follow(*loaded.model, ranks.all(), ranks.world());
}

/// What ranking came to; nothing: the model ranks no documents.
std::optional<int> ranked(const Options& options, ModelLocation where,
                          const parallel::Ranks& ranks) {
  where.ranks_by = ranks_by(options, where, /*by_files=*/false);
  if (!where.ranks_by) return std::nullopt;
  if (ranks.size() > 1) {
    throw UsageError(tr("[{}] rows are ranked by one process alone; danlu serve has no such limit",
                        options.given_as("tensor_parallel_size")));
  }
  if (where.ranks_by == RanksBy::kTokens) where.usual_template = ranking_template(options, where);
  return rank_rows(options, where);
}

/// What judging came to, of a model that gives numbers and no text; nothing: it answers.
std::optional<int> judged(const Options& options, const ModelLocation& where,
                          const parallel::Ranks& ranks) {
  if (const auto code = ranked(options, where, ranks)) return code;
  const bool embeds = embeds_texts(options, where);
  // What the line says goes before what files say.
  const bool is_told = embeds && options.has_value("task_type");
  const bool scores = !is_told && scores_answers(options, where);
  const bool has_steps = !is_told && judges_steps(options, where);
  if (!has_steps && !scores && !embeds && !sorts_texts(options, where)) return std::nullopt;
  if (ranks.size() > 1) {
    const std::string flag = options.given_as("tensor_parallel_size");
    throw UsageError(has_steps ? tr("[{}] steps are judged by one process alone", flag)
                     : scores  ? tr("[{}] answers are scored by one process alone", flag)
                     : embeds  ? tr("[{}] vectors of texts are made by one process alone", flag)
                               : tr("[{}] texts are sorted by one process alone", flag));
  }
  if (scores) return score_answers(options, where);
  if (embeds) return embed_texts(options, where);
  return has_steps ? judge_steps(options, where) : label_texts(options, where);
}

int infer_on(const Options& options, const parallel::Ranks& ranks) {
  const ModelLocation where = locate_model(options);
  const std::string checkpoint = (where.adapter.empty() ? where.model : where.adapter).string();
  const std::string task = options.has_value("task") ? options.get_string("task") : "";
  require_beams_of(options, task);
  if (const std::optional<int> code = judged(options, where, ranks)) return *code;
  const bool chat = infer_talks(options);
  const auto media = media_settings(options, where);
  Questions found =
      chat ? Questions{}
           : read_questions(options, where.run_args, checkpoint, media ? &*media : nullptr);
  std::optional<FileLock> lock;
  fs::path output = options.get_string_or("output", "");
  const bool has_data_set = options.has_value("dataset") || options.get_bool("load_dataset_config");
  if (output.empty() && !chat && has_data_set && options.get_bool("save_result")) {
    DefaultOutput chosen = default_output(where);
    output = chosen.file;
    if (chosen.lock) lock.emplace(std::move(*chosen.lock));
  }
  if (!chat && options.has_value("output"))
    lock.emplace(
        require_usable_output(options, files_read(options, where, std::move(found.files))));
  InferenceModel loaded = load_for_inference(options, where, options.get_bool("raw"),
                                             /*tells_apart=*/chat, ranks.mesh(),
                                             speculation_from(options).predicted_tokens > 0);
  if (!loaded.media) require_no_media(options, loaded.model_directory);
  take_generation_config(options, loaded);
  infer::SamplingParams sampling = sampling_from(options, loaded.defaults);
  apply_task(options, task, sampling);
  if (ranks.size() > 1)
    loaded.followers = std::make_shared<infer::Followers>(ranks.all(), ranks.world());
  if (sampling.num_beams > 1 && (task == "greedy" || task == "do_sample")) {
    log::notice("--task {} names no beams, but {} are searched (--num_beams)", task,
                sampling.num_beams);
  }
  report_idle_infer_flags(options, {.chat = chat,
                                    .data_set = has_data_set,
                                    .has_template = loaded.encoder != nullptr,
                                    .sampling = sampling});
  if (!loaded.encoder && !options.get_bool("raw"))
    log::info("the model carries no chat template: completing the text itself");
  if (chat) {
    if (!loaded.encoder) loaded.encoder = std::make_shared<text::RawTextEncoder>(loaded.tokenizer);
    const int code = run_chat_with(options, loaded, sampling);
    if (loaded.followers) loaded.followers->end();
    return code;
  }
  answer_questions(options, loaded, output, std::move(found.rows), sampling);
  if (loaded.followers) loaded.followers->end();
  return 0;
}

}  // namespace

int run_infer(const Options& typed) {
  const Options options = with_output_dir(with_plain_prompts(settings::with_mm_inference(typed)));
  const parallel::Ranks ranks = model_ranks(options);
  return ranks.do_or_give_up([&] {
    if (ranks.is_first()) return infer_on(options, ranks);
    help_rank_0(options, ranks);
    return 0;
  });
}

}  // namespace danlu::cli
