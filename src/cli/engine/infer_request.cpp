#include "cli/engine/infer_request.h"

#include <algorithm>

#include "base/error.h"
#include "base/message.h"
#include "text/raw_encoder.h"

namespace danlu::cli {
namespace {

/// Without a template a lone question is a text like any other.
const std::string& text_to_complete(const Question& question) {
  const std::vector<text::Message>& messages = question.conversation.messages;
  if (messages.empty()) return question.plain;
  if (messages.size() == 1 && messages[0].role == "user") return messages[0].content;
  throw UsageError(tr("{}: without a chat template this row, a conversation, cannot be answered",
                      question.place),
                   tr("leave out --raw, or name a template with --template"));
}

infer::Request request_of(const Question& question, const InferenceModel& loaded,
                          const infer::SamplingParams& sampling, int64_t max_new_tokens,
                          uint64_t stream) {
  infer::Request request;
  request.sampling = sampling;
  request.max_new_tokens = max_new_tokens;
  request.stream = stream;
  request.num_tokens = static_cast<int64_t>(loaded.tokenizer->size());
  request.stop_ids = loaded.end_ids();
  if (!question.prompt_ids.empty()) {
    request.prompt = question.prompt_ids;
    return request;
  }
  if (!loaded.encoder) {
    const std::string& text = text_to_complete(question);
    if (!loaded.media || question.conversation.messages.empty()) {
      request.prompt = loaded.tokenizer->encode(text);
    } else {
      loaded.media->encode(text::RawTextEncoder(loaded.tokenizer), question.conversation,
                           question.folder, question.place, &request);
    }
    return request;
  }
  text::Conversation conversation = question.conversation;
  if (conversation.messages.empty()) conversation.messages.push_back({"user", question.plain});
  if (!loaded.system.empty() && conversation.messages.front().role != "system") {
    conversation.messages.insert(conversation.messages.begin(),
                                 text::Message{"system", loaded.system});
  }
  if (loaded.media) {
    loaded.media->encode(*loaded.encoder, conversation, question.folder, question.place, &request);
  } else {
    request.prompt = loaded.encoder->encode_prompt(conversation);
  }
  return request;
}

}  // namespace

infer::Request checked_request(const Question& question, const InferenceModel& loaded,
                               const infer::SamplingParams& sampling, int64_t max_new_tokens,
                               uint64_t stream) {
  try {
    if (question.is_blank) throw DataError(tr("blank line"));
    infer::Request request = request_of(question, loaded, sampling, max_new_tokens, stream);
    infer::check_prompt(loaded.model->config(), request.prompt, request.pictures);
    return request;
  } catch (const DataError& error) {
    throw DataError(tr("{}: {}", question.place, error.what()), error.hint());
  }
}

}  // namespace danlu::cli
