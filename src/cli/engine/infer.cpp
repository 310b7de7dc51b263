#include <fmt/format.h>

#include <cstdio>

#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/engine/chat.h"
#include "cli/engine/infer_rows.h"
#include "cli/engine/load_for_inference.h"

namespace danlu::cli {
namespace {

bool is_interrupted() { return pending_interrupt() != 0; }

void print_text(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

infer::Request request_of(const Question& question, const InferenceModel& loaded,
                          const infer::SamplingParams& sampling, int64_t max_new_tokens,
                          uint64_t stream) {
  infer::Request request;
  request.sampling = sampling;
  request.max_new_tokens = max_new_tokens;
  request.stream = stream;
  request.num_tokens = static_cast<int64_t>(loaded.tokenizer->size());
  request.stop_ids = loaded.defaults.stop_ids;
  if (loaded.encoder) {
    const std::vector<text::TokenId> stops = loaded.encoder->stop_ids();
    request.stop_ids.insert(request.stop_ids.end(), stops.begin(), stops.end());
  }
  if (!question.prompt_ids.empty()) {
    request.prompt = question.prompt_ids;
    return request;
  }
  if (!loaded.encoder) {
    if (question.plain.empty() && !question.conversation.messages.empty()) {
      throw UsageError(
          fmt::format("{}: the model carries no chat template, and this row is a conversation",
                      question.place),
          {"name a template with --prompt-type", "请用 --prompt-type 指定对话模板"});
    }
    request.prompt = loaded.tokenizer->encode(question.plain);
    return request;
  }
  text::Conversation conversation = question.conversation;
  if (conversation.messages.empty()) conversation.messages.push_back({"user", question.plain});
  if (!loaded.system.empty() && conversation.messages.front().role != "system") {
    conversation.messages.insert(conversation.messages.begin(),
                                 text::Message{"system", loaded.system});
  }
  request.prompt = loaded.encoder->encode_prompt(conversation);
  return request;
}

/// Streams one answer to the screen.
std::string stream_answer(const InferenceModel& loaded, const infer::Request& request,
                          infer::GenerationStats* stats) {
  text::DecodeStream decoder(loaded.tokenizer);
  std::string answer;
  auto show = [&](const std::string& piece) {
    answer += piece;
    print_text(piece);
  };
  infer::generate(
      *loaded.model, {request}, 1,
      [&](size_t, text::TokenId id) {
        show(decoder.push(id));
        return !is_interrupted();
      },
      stats);
  show(decoder.finish() + "\n");
  return answer;
}

Json result_row(const Question& question, const std::string& answer, infer::FinishReason reason) {
  Json row = Json::object();
  if (!question.conversation.messages.empty()) {
    row["messages"] = Json::array();
    for (const text::Message& message : question.conversation.messages) {
      Json one = {{"role", message.role}, {"content", message.content}};
      for (const auto& [key, value] : message.extra.items()) {
        // The parts of an Alpaca question: the content already holds them.
        if (key != "instruction" && key != "input") one[key] = value;
      }
      row["messages"].push_back(std::move(one));
    }
  } else {
    row["query"] = question.plain;
  }
  row["response"] = answer;
  if (question.reference) row["labels"] = *question.reference;
  row["finish_reason"] = reason == infer::FinishReason::kStop     ? "stop"
                         : reason == infer::FinishReason::kLength ? "length"
                                                                  : "cancelled";
  return row;
}

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

/// What is shown on the screen for a row of a data set.
void print_result(const Question& question, const std::string& answer) {
  const std::string asked = question.conversation.messages.empty()
                                ? question.plain
                                : question.conversation.messages.back().content;
  print_text(fmt::format("[QUERY] {}\n[RESPONSE] {}\n", asked, answer));
  if (question.reference) print_text(fmt::format("[LABELS] {}\n", *question.reference));
  print_text(std::string(50, '-') + "\n");
}

void report_speed(const infer::GenerationStats& stats, double seconds) {
  log::info("{} prompt tokens, {} new tokens, {:.1f} new tokens/s",
            format_count(static_cast<uint64_t>(stats.prompt_tokens)),
            format_count(static_cast<uint64_t>(stats.new_tokens)),
            seconds > 0 ? static_cast<double>(stats.new_tokens) / seconds : 0.0);
}

std::vector<infer::Answer> answer_requests(const InferenceModel& loaded,
                                           const std::vector<infer::Request>& requests,
                                           int64_t batch_size, infer::GenerationStats* stats) {
  ProgressBar bar("infer", requests.size(), "rows");
  std::vector<infer::Answer> answers;
  if (!requests.empty() && requests.front().sampling.num_beams > 1) {
    for (const infer::Request& request : requests) {
      if (is_interrupted()) {
        answers.push_back({.ids = {}, .reason = infer::FinishReason::kCancelled});
        continue;
      }
      answers.push_back(infer::beam_search(*loaded.model, request, stats, is_interrupted));
      bar.update(answers.size());
    }
  } else {
    // A row counts when its first token comes: which rows are finished is known at the end only.
    std::vector<bool> begun(requests.size());
    uint64_t num_begun = 0;
    const auto on_token = [&](size_t index, text::TokenId) {
      if (!begun[index]) bar.update(++num_begun);
      begun[index] = true;
      return true;
    };
    answers = infer::generate(*loaded.model, requests, batch_size, on_token, stats, is_interrupted);
  }
  bar.finish();
  return answers;
}

/// Before any answer is made, so that a bad row late in a file costs no work.
void check_prompts(const InferenceModel& loaded, const std::vector<Question>& questions,
                   const std::vector<infer::Request>& requests) {
  for (size_t i = 0; i < requests.size(); ++i) {
    try {
      infer::check_prompt(loaded.model->config(), requests[i].prompt);
    } catch (const DataError& error) {
      throw DataError(fmt::format("{}: {}", questions[i].place, error.what()), error.hint());
    }
  }
}

/// Before any answer is made, so that none is made in vain.
void require_writable_result(const fs::path& file) {
  std::error_code error;
  const bool is_directory = fs::is_directory(file, error);
  const bool is_missing = error == std::errc::no_such_file_or_directory ||
                          error == std::errc::not_a_directory;  // judged by the folder's check
  if (error && !is_missing)
    throw IoError(fmt::format("[--output] {}: {}", file.string(), error.message()));
  if (is_directory) {
    throw UsageError(
        fmt::format("[--output] {}: is a directory, answers go into a file", file.string()),
        {"name a .jsonl file in it", "请给出其中的 .jsonl 文件名"});
  }
  require_writable_directory(fs::absolute(file).parent_path());
}

/// Answers took long to make: what cannot be written is printed.
void write_result(const fs::path& file, const std::string& lines) {
  try {
    write_file_atomic(file, lines);
  } catch (const IoError& error) {
    print_text(lines);
    throw IoError(fmt::format("{}; the answers were printed instead", error.what()), error.hint());
  }
  log::info("answers: {}", file.string());
}

void answer_all(const Options& options, const InferenceModel& loaded,
                const std::vector<Question>& questions, const infer::SamplingParams& sampling,
                int64_t max_new_tokens) {
  std::vector<infer::Request> requests;
  for (size_t i = 0; i < questions.size(); ++i)
    requests.push_back(request_of(questions[i], loaded, sampling, max_new_tokens, i));
  check_prompts(loaded, questions, requests);
  infer::GenerationStats stats;
  const std::vector<infer::Answer> answers =
      answer_requests(loaded, requests, options.get_int("batch_size"), &stats);
  std::string lines;
  size_t with_reference = 0, equal = 0;
  for (size_t i = 0; i < questions.size(); ++i) {
    const std::string answer = loaded.tokenizer->decode(answers[i].ids, true);
    if (questions[i].reference) {
      ++with_reference;
      equal += trimmed(answer) == trimmed(*questions[i].reference);
    }
    if (options.has_value("output")) {
      lines += result_row(questions[i], answer, answers[i].reason)
                   .dump(-1, ' ', false, Json::error_handler_t::replace) +
               "\n";
    } else {
      print_result(questions[i], answer);
    }
  }
  if (options.has_value("output")) write_result(options.get_string("output"), lines);
  report_speed(stats, stats.prefill_s + stats.decode_s);
  if (with_reference > 0) {
    log::info("exact match: {:.1f}% ({} of {})",
              100.0 * static_cast<double>(equal) / static_cast<double>(with_reference), equal,
              with_reference);
  }
}

/// MindSpeed's --task names a decoding mode.
void apply_task(const std::string& task, infer::SamplingParams& sampling) {
  if (task == "greedy" || task == "beam_search") sampling.do_sample = false;
  if (task == "do_sample" || task == "beam_search_with_sampling") sampling.do_sample = true;
  if (task.rfind("beam_search", 0) == 0 && sampling.num_beams < 2) sampling.num_beams = 2;
}

}  // namespace

int run_infer(const Options& options) {
  const ModelLocation where = locate_model(options);
  const std::string checkpoint = (where.adapter.empty() ? where.model : where.adapter).string();
  const std::string task = options.has_value("task") ? options.get_string("task") : "";
  const bool chat =
      task == "chat" || (!options.has_value("prompt") && !options.has_value("dataset") &&
                         !options.get_bool("load_dataset_config"));
  std::vector<Question> questions =
      chat ? std::vector<Question>{} : read_questions(options, where.run_args, checkpoint);
  if (options.has_value("output")) require_writable_result(options.get_string("output"));
  InferenceModel loaded = load_for_inference(options, where, options.get_bool("raw"));
  if (chat) return run_chat_with(options, loaded);

  for (Question& question : questions) {
    if (question.prompt_ids.empty()) continue;
    question.plain = loaded.tokenizer->decode(question.prompt_ids);
    question.reference = loaded.tokenizer->decode(question.reference_ids, true);
  }
  watch_interrupts();
  if (!loaded.encoder && !options.get_bool("raw"))
    log::info("the model carries no chat template: completing the text itself");
  infer::SamplingParams sampling = sampling_from(options, loaded.defaults);
  apply_task(task, sampling);
  const int64_t max_new_tokens = max_new_tokens_from(options, loaded.defaults);
  const bool single = questions.size() == 1 && options.has_value("prompt") &&
                      !options.has_value("output") && sampling.num_beams == 1;
  if (single) {
    infer::GenerationStats stats;
    const infer::Request request = request_of(questions[0], loaded, sampling, max_new_tokens, 0);
    check_prompts(loaded, questions, {request});
    stream_answer(loaded, request, &stats);
    report_speed(stats, stats.prefill_s + stats.decode_s);
  } else {
    answer_all(options, loaded, questions, sampling, max_new_tokens);
  }
  if (const int signal = pending_interrupt()) {
    throw_interrupted(signal, single ? "[infer] stopped; the answer is not complete"
                                     : "[infer] stopped; unfinished answers are marked cancelled");
  }
  return 0;
}

}  // namespace danlu::cli
