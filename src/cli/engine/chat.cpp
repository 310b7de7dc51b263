#include "cli/engine/chat.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/engine/answer_rules.h"
#include "cli/engine/model_ranks.h"
#include "cli/engine/speculation.h"
#include "data/media_settings.h"
#include "serve/chat_repl.h"
#include "text/conversation.h"
#include "text/raw_encoder.h"

namespace danlu::cli {
namespace {

serve::ChatMedia chat_media(const InferenceModel& loaded) {
  serve::ChatMedia media;
  if (!loaded.media) {
    media.why_none = data::why_no_media(loaded.model_directory);
    return media;
  }
  media.message = [&loaded](const std::string& content, const std::vector<std::string>& images,
                            const std::vector<std::string>& videos) {
    // A tag in what was typed speaks of itself where no file was given.
    if (images.empty() && videos.empty()) return text::Message{"user", content};
    return message_with_media(content, {images, videos}, loaded.media->settings(),
                              /*holds_files=*/true, "[chat]");
  };
  media.encode = [&loaded](const text::Conversation& conversation, infer::Request* request) {
    loaded.media->encode(*loaded.encoder, conversation, {}, "[chat]", request);
  };
  return media;
}

/// A conversation with one model. REQUIRES: `loaded` outlives it.
std::unique_ptr<serve::ChatSession> chat_session(const Options& options, InferenceModel& loaded,
                                                 const infer::SamplingParams& sampling) {
  if (!loaded.media) require_no_media(options, loaded.model_directory);
  if (!loaded.encoder) {
    throw ModelError(tr("{}: the model carries no chat template", loaded.model_directory.string()),
                     tr("name one with --template, or complete text with danlu infer; built in: {}",
                        fmt::join(text::ChatEncoder::names({}), ", ")));
  }
  serve::ChatSettings settings;
  settings.sampling = sampling;
  settings.max_new_tokens = max_new_tokens_from(options, loaded.defaults);
  settings.max_history_turns = options.get_int_or("history_turns", 0);
  settings.system = loaded.system;
  settings.keeps_history = !dynamic_cast<const text::RawTextEncoder*>(loaded.encoder.get());
  auto session = std::make_shared<infer::Session>(*loaded.model, loaded.followers.get(),
                                                  speculation_beside(options, sampling));
  const auto rules = std::make_shared<const AnswerRules>(options, loaded, sampling.num_beams);
  settings.reader = rules->reading();
  settings.continues_text = rules->continues_text();
  serve::AnswerFn answer = [session, rules, &loaded](const infer::Request& request,
                                                     const infer::OnToken& on_token,
                                                     infer::GenerationStats* stats) {
    infer::Request complete = request;
    complete.rules = rules->fresh();
    complete.stop_ids = loaded.end_ids();
    if (complete.sampling.num_beams < 2) return session->answer(complete, on_token, stats);
    infer::Answer found = infer::beam_search(
        *loaded.model, complete, stats, [] { return pending_interrupt() != 0; },
        loaded.followers.get());
    for (const text::TokenId id : found.ids) on_token(0, id);
    return found;
  };
  auto chat = std::make_unique<serve::ChatSession>(answer, loaded.model->config().max_positions,
                                                   loaded.tokenizer, loaded.encoder, settings,
                                                   chat_media(loaded));
  const GivenMedia given = given_media(options);
  for (const std::string& path : given.images) chat->add_media(text::MediaKind::kImage, path);
  for (const std::string& path : given.videos) chat->add_media(text::MediaKind::kVideo, path);
  return chat;
}

/// Where its answers come from: what was loaded last.
std::string where_answers_come_from(const InferenceModel& loaded) {
  const fs::path& adapter = loaded.adapter_directory;
  return (adapter.empty() ? loaded.model_directory : adapter).string();
}

/// The width of the terminal that answers go to; 0: they go elsewhere.
size_t columns_of_output() {
  winsize size{};
  const bool is_known =
      ::isatty(STDOUT_FILENO) != 0 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  return is_known ? size.ws_col : 0;
}

int talk(const std::vector<InferenceModel*>& models,
         const std::vector<std::unique_ptr<serve::ChatSession>>& sessions) {
  serve::ReplSettings repl;
  // Lines of other systems end in `| tee`: who types is to see where.
  repl.show_prompt = ::isatty(STDIN_FILENO) != 0;
  if (::isatty(STDOUT_FILENO) == 0) repl.prompts = &std::cerr;
  repl.columns = columns_of_output();
  std::vector<serve::Chatter> chatters;
  for (size_t i = 0; i < models.size(); ++i) {
    const InferenceModel& loaded = *models[i];
    chatters.push_back({where_answers_come_from(loaded), sessions[i].get()});
    if (!repl.show_prompt) continue;
    log::info("{}{}, template {}. /help lists commands.", loaded.model_directory.string(),
              loaded.adapter_directory.empty() ? "" : " + " + loaded.adapter_directory.string(),
              loaded.encoder->description());
  }
  const int num_answers = serve::run_chat(chatters, repl, std::cin, std::cout);
  if (num_answers == 0 && !repl.show_prompt) {
    log::warning(
        "nothing was asked: standard input is no terminal and holds no question; danlu infer "
        "--prompt TEXT asks one, --dataset FILE many, and --task greedy|do_sample|beam_search says "
        "how they are answered");
  }
  return 0;
}

}  // namespace

int run_chat_with(const Options& options, InferenceModel& loaded,
                  const infer::SamplingParams& sampling) {
  std::vector<std::unique_ptr<serve::ChatSession>> sessions;
  sessions.push_back(chat_session(options, loaded, sampling));
  return talk({&loaded}, sessions);
}

namespace {

/// Errors: UsageError for what one process alone does.
void refuse_compared_in_parts(const Options& options, const parallel::Ranks& ranks) {
  if (ranks.size() == 1 || !options.has_value("compare")) return;
  throw UsageError(
      tr("[{}] two models are compared by one process alone, and "
         "--tensor_parallel_size asks for several",
         options.given_as("compare")));
}

int chat_on(const Options& options, const parallel::Ranks& ranks) {
  refuse_compared_in_parts(options, ranks);
  // The second model is found before the first one's weights are read.
  std::vector<ModelLocation> places = {locate_model(options)};
  if (options.has_value("compare"))
    places.push_back(
        locate_model(options, fs::path(options.get_string("compare")), fs::path(), "--compare"));
  std::vector<InferenceModel> loaded;
  for (const ModelLocation& place : places) {
    loaded.push_back(
        load_for_inference(options, place, /*raw=*/false, /*tells_apart=*/true, ranks.mesh(),
                           /*predicts=*/speculation_from(options).predicted_tokens > 0));
  }
  if (!ranks.is_first()) {
    watch_interrupts();
    infer::follow(*loaded.front().model, ranks.all(), ranks.world());
    return 0;
  }
  if (ranks.size() > 1)
    loaded.front().followers = std::make_shared<infer::Followers>(ranks.all(), ranks.world());
  std::vector<InferenceModel*> models;
  std::vector<std::unique_ptr<serve::ChatSession>> sessions;
  for (InferenceModel& one : loaded) {
    models.push_back(&one);
    sessions.push_back(chat_session(options, one, sampling_from(options, one.defaults)));
  }
  const int code = talk(models, sessions);
  if (loaded.front().followers) loaded.front().followers->end();
  return code;
}

}  // namespace

int run_chat(const Options& options) {
  const parallel::Ranks ranks = model_ranks(options);
  return ranks.do_or_give_up([&] { return chat_on(options, ranks); });
}

}  // namespace danlu::cli
