#include "eval/run/encode.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/message.h"
#include "text/jinja/python_text.h"

namespace danlu::eval {
namespace {

text::TokenId prefix_of(const text::Tokenizer& tokenizer, const EncoderSettings& settings) {
  if (settings.prefix_id) return *settings.prefix_id;
  if (tokenizer.bos_id()) return *tokenizer.bos_id();
  if (tokenizer.eos_id()) return *tokenizer.eos_id();
  throw ModelError(tr("[eval] the tokenizer has neither BOS nor EOS, which stand before a text "
                      "without context"),
                   tr("--model_args prefix_token_id=ID names one"));
}

/// At most `room` ids, without those on the left.
void cut_left(Encoded& encoded, int64_t room) {
  encoded.num_cut = std::max<int64_t>(0, std::ssize(encoded.ids) - room);
  encoded.ids.erase(encoded.ids.begin(), encoded.ids.begin() + encoded.num_cut);
  encoded.num_context -= encoded.num_cut;
}

}  // namespace

Encoder::Encoder(std::shared_ptr<const text::Tokenizer> tokenizer, const EncoderSettings& settings)
    : tokenizer_(std::move(tokenizer)),
      settings_(settings),
      prefix_id_(prefix_of(*tokenizer_, settings)),
      prefix_text_(tokenizer_->decode(std::vector{prefix_id_})) {}

std::vector<text::TokenId> Encoder::encode(const std::string& text, bool has_own_bos) const {
  const bool begins_with_it = !prefix_text_.empty() && text.starts_with(prefix_text_);
  const bool adds = settings_.add_special.value_or(true);
  return tokenizer_->encode(text, adds && !has_own_bos && !begins_with_it);
}

Encoded Encoder::pair(const Call& call) const {
  Encoded encoded;
  if (call.context.empty()) {
    encoded.ids = tokenizer_->encode(call.continuation, /*add_special=*/false);
    encoded.num_context = 1;
    if (encoded.ids.empty() || encoded.ids.front() != prefix_id_)
      encoded.ids.insert(encoded.ids.begin(), prefix_id_);
  } else {
    const std::string_view context =
        text::jinja::strip(call.context, /*left=*/false, /*right=*/true);
    encoded.ids = encode(call.context + call.continuation, call.has_own_bos);
    encoded.num_context = std::ssize(encode(std::string(context), call.has_own_bos));
    if (encoded.num_context == 0) {
      encoded.ids.insert(encoded.ids.begin(), prefix_id_);
      encoded.num_context = 1;
    }
  }
  const int64_t num_asked = std::ssize(encoded.ids) - encoded.num_context;
  if (num_asked <= 0) {
    throw DataError(
        tr("[eval] nothing is asked for behind a context: the continuation '{}' adds "
           "no token to it",
           call.continuation));
  }
  if (settings_.window > 0) {
    if (num_asked > settings_.window) {
      throw DataError(tr("[eval] a continuation of {} tokens, the model's window holds {}",
                         num_asked, settings_.window),
                      tr("a model with a longer window"));
    }
    cut_left(encoded, settings_.window + 1);
  }
  return encoded;
}

Encoded Encoder::prompt(const Call& call) const {
  Encoded encoded;
  encoded.ids = encode(call.context, call.has_own_bos);
  if (encoded.ids.empty()) encoded.ids = {prefix_id_};
  encoded.num_context = std::ssize(encoded.ids);
  if (settings_.window > 0) {
    const int64_t room = settings_.window - call.rules.max_tokens;
    if (room <= 0) {
      throw DataError(
          tr("[eval] answers of up to {} tokens leave no room for a question in the model's window "
             "of {}",
             call.rules.max_tokens, settings_.window),
          tr("--gen_kwargs max_gen_toks={}", std::max<int64_t>(1, settings_.window / 2)));
    }
    cut_left(encoded, room);
  }
  return encoded;
}

std::vector<Encoded> Encoder::rolling(const Call& call) const {
  // The harness has it so: special ids are not written around the text unless that was asked for,
  // and BOS stands before the text, it is never predicted.
  const bool has_prefix = !prefix_text_.empty() && call.continuation.starts_with(prefix_text_);
  std::vector<text::TokenId> ids =
      tokenizer_->encode(call.continuation, settings_.add_special.value_or(false) && !has_prefix);
  if (!ids.empty() && (ids.front() == prefix_id_ || ids.front() == tokenizer_->bos_id()))
    ids.erase(ids.begin());
  const int64_t size = std::ssize(ids);
  if (size == 0) throw DataError(tr("[eval] a text whose likelihood is asked for is empty"));
  const int64_t window = settings_.window > 0 ? settings_.window : size;
  std::vector<Encoded> windows;
  const int64_t first = std::min(size, window);
  Encoded begin;
  begin.ids.push_back(prefix_id_);
  begin.ids.insert(begin.ids.end(), ids.begin(), ids.begin() + first);
  begin.num_context = 1;
  windows.push_back(std::move(begin));
  for (int64_t done = first; done < size;) {
    const int64_t end = std::min(size, done + window);
    // As many ids as the window reads, of which the last is only predicted.
    const int64_t start = end - window - 1;
    windows.push_back({{ids.begin() + start, ids.begin() + end}, done - start, 0});
    done = end;
  }
  return windows;
}

}  // namespace danlu::eval
