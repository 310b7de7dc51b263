// Rows of preference training, process rewards and reinforcement learning to tokens.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/rng.h"
#include "data/answer_cut.h"
#include "data/groups.h"
#include "data/labelled_text.h"
#include "data/media_record.h"
#include "data/preprocess_encode.h"
#include "data/step_text.h"
#include "data/text_record.h"
#include "text/query_and_document.h"

namespace danlu::data {
namespace {

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string described_group(const text::Tokenizer* tokenizer, std::span<const int32_t> ids,
                            std::span<const int32_t> record) {
  constexpr const char* kNames[] = {"ANCHOR", "POSITIVE", "NEGATIVE"};
  std::string all;
  size_t begin = 0;
  for (size_t i = 0; i < record.size(); i += 3) {
    const auto length = static_cast<size_t>(record[i]);
    all += fmt::format("[{}]\n", kNames[record[i + 1]]) +
           describe_sample(tokenizer, ids.subspan(begin, length), {});
    begin += length;
  }
  return all;
}

}  // namespace

void RowEncoder::prepare_steps() {
  step_texts_ = std::make_shared<const StepTexts>(settings_.tokenizer, settings_.steps.placeholder);
  for (const std::string& token : settings_.steps.reward_tokens) {
    if (single_token(*settings_.tokenizer, token) >= 0) continue;
    throw ModelError(tr("[reward_tokens] \"{}\" is no single token of this tokenizer", token));
  }
}

bool RowEncoder::encode_answer(AnsweredRow answer, const Dataset& dataset, Pieces* pieces,
                               RowEvent* event) const {
  if (auto* tokens = std::get_if<TokenRow>(&answer)) {
    if (!check_vocabulary(*tokens, event)) return false;
    pieces->ids = std::move(tokens->ids);
    pieces->labels = std::move(tokens->labels);
  } else {
    if (!encode_conversation(std::get<text::Conversation>(answer), dataset, pieces, event))
      return false;
    if (settings_.append_eod) {
      pieces->ids.push_back(eod_);
      pieces->labels.push_back(eod_);
    }
  }
  if (count_targets(pieces->labels) > 0) return true;
  event->reason = "no token carries loss (all labels masked)";
  return false;
}

/// Answers to one prompt: all are cut alike. False: the row is to be dropped.
bool RowEncoder::cut_answers(std::span<Pieces> answers, RowEvent* event) const {
  int64_t longest = 0;
  AnswerShares whole;
  for (const Pieces& pieces : answers) {
    const int64_t size = std::ssize(pieces.ids), prompt = prompt_length(pieces.labels);
    longest = std::max(longest, size);
    whole.prompt = std::max(whole.prompt, prompt);
    whole.answer = std::max(whole.answer, size - prompt);
  }
  if (settings_.max_length <= 0 || longest <= settings_.max_length) return true;
  event->reason = fmt::format("longer than {} tokens", settings_.max_length);
  event->detail = fmt::format("{} tokens", longest);
  if (settings_.truncation == Truncation::kDelete || settings_.truncation == Truncation::kSplit)
    return false;
  const AnswerShares shares = shares_within(whole.prompt, whole.answer, settings_.max_length);
  for (Pieces& pieces : answers) {
    cut_answer(shares, settings_.truncation == Truncation::kLeft, &pieces.ids, &pieces.labels);
    if (count_targets(pieces.labels) > 0) continue;
    event->reason = "no token carries loss after truncation";
    return false;
  }
  return true;
}

bool RowEncoder::append_pair(PairRow row, const Dataset& dataset, EncodedBatch* batch,
                             RowEvent* event) const {
  Pieces sides[2];
  if (!encode_answer(std::move(row.chosen), dataset, &sides[0], event) ||
      !encode_answer(std::move(row.rejected), dataset, &sides[1], event)) {
    return false;
  }
  if (sides[0].ids == sides[1].ids) {
    event->reason = kNoDifference;
    return false;
  }
  if (!cut_answers(sides, event)) return false;
  if (sides[0].ids == sides[1].ids) {
    event->reason = "chosen and rejected do not differ after truncation";
    return false;
  }
  for (size_t side = 0; side < 2; ++side) {
    batch->target_tokens += count_targets(sides[side].labels);
    batch->append(2 * side, sides[side].ids);
    batch->append(2 * side + 1, sides[side].labels);
  }
  batch->append(4, std::vector{std::bit_cast<int32_t>(row.margin)});
  return true;
}

bool RowEncoder::append_unpaired(UnpairedRow row, const Dataset& dataset, EncodedBatch* batch,
                                 RowEvent* event) const {
  Pieces pieces;
  if (!encode_answer(std::move(row.answer), dataset, &pieces, event) ||
      !cut_answers({&pieces, 1}, event)) {
    return false;
  }
  batch->target_tokens += count_targets(pieces.labels);
  batch->append(0, pieces.ids);
  batch->append(1, pieces.labels);
  batch->append(2, std::vector<int32_t>{row.liked ? 1 : 0});
  return true;
}

/// The reward token that a step's value names. -1: *event is set.
int32_t RowEncoder::reward_token(const Json& value, RowEvent* event) const {
  const std::vector<std::string>& allowed = settings_.steps.reward_tokens;
  std::string token;
  if (value.is_string()) {
    token = value.get<std::string>();
  } else if (value.is_boolean() || (value.is_number() && (value == 0 || value == 1))) {
    const bool good = value.is_boolean() ? value.get<bool>() : value == 1;
    if (allowed.size() == 2) {
      token = allowed[good ? 0 : 1];
    } else {
      token = good ? "+" : "-";
    }
  }
  const bool is_allowed =
      allowed.empty() || std::find(allowed.begin(), allowed.end(), token) != allowed.end();
  const int32_t id = token.empty() || !is_allowed ? -1 : single_token(*settings_.tokenizer, token);
  if (id >= 0) return id;
  event->reason = "a step's value is no reward token";
  event->detail = fmt::format("got {}", text_of(value));
  return -1;
}

bool RowEncoder::append_steps(const StepsRow& row, EncodedBatch* batch, RowEvent* event) const {
  StepText read = step_texts_->read(row);
  Pieces pieces;
  pieces.ids = std::move(read.ids);
  pieces.labels.assign(pieces.ids.size(), kIgnoreLabel);
  for (size_t step = 0; step < std::min(read.places.size(), row.values.size()); ++step) {
    int32_t& label = pieces.labels[read.places[step]];
    label = reward_token(row.values[step], event);
    if (label < 0) return false;
  }
  if (read.places.size() != row.values.size() || read.places.size() != read.written) {
    event->reason = kUnequalSteps;
    event->detail = fmt::format("{} tokens \"{}\", {} values", read.places.size(),
                                settings_.steps.placeholder, row.values.size());
    return false;
  }
  if (!cut(&pieces, event)) return false;
  const auto judged = std::count_if(pieces.labels.begin(), pieces.labels.end(),
                                    [](int32_t label) { return label != kIgnoreLabel; });
  if (judged == 0) {
    event->reason = "no token carries loss after truncation";
    return false;
  }
  batch->target_tokens += judged;
  batch->append(0, pieces.ids);
  batch->append(1, pieces.labels);
  return true;
}

bool RowEncoder::encode_prompt(PromptRow* row, Pieces* pieces, RowEvent* event) const {
  if (auto* texts = std::get_if<TextRow>(&row->prompt)) {
    settings_.tokenizer->encode_append(texts->texts[0], true, pieces->ids);
  } else if (auto* tokens = std::get_if<TokenRow>(&row->prompt)) {
    if (!check_vocabulary(*tokens, event)) return false;
    pieces->ids = std::move(tokens->ids);
    pieces->ids.resize(static_cast<size_t>(prompt_length(tokens->labels)));
  } else {
    try {
      pieces->ids =
          settings_.chat_encoder->encode_prompt(std::get<text::Conversation>(row->prompt));
    } catch (const DataError& error) {
      event->reason = "the chat template cannot render it";
      event->detail = error.what();
      return false;
    }
  }
  if (pieces->ids.empty()) event->reason = "empty question";
  return !pieces->ids.empty();
}

bool RowEncoder::append_prompt(PromptRow row, EncodedBatch* batch, RowEvent* event) const {
  Pieces pieces;
  if (!encode_prompt(&row, &pieces, event) || !cut(&pieces, event)) return false;
  std::vector<std::vector<int32_t>> keys;
  for (const std::string& key : settings_.additional_keys) {
    const auto value = row.columns.find(key);
    if (value == row.columns.end()) {
      event->reason =
          key == "labels" ? "empty answer" : fmt::format("column \"{}\" is missing", key);
      return false;
    }
    settings_.tokenizer->encode_append(text_of(*value), false, keys.emplace_back());
    if (settings_.max_length <= 0 || std::ssize(keys.back()) <= settings_.max_length) continue;
    event->reason = fmt::format("longer than {} tokens", settings_.max_length);
    event->detail = fmt::format("\"{}\": {} tokens", key, keys.back().size());
    return false;
  }
  batch->append(0, pieces.ids);
  batch->append(1, text_record(text_of(row.columns)));
  for (size_t i = 0; i < keys.size(); ++i) batch->append(2 + i, keys[i]);
  return true;
}

bool RowEncoder::append_labelled(LabelledRow row, EncodedBatch* batch, RowEvent* event) const {
  std::string problem;
  const std::optional<std::vector<float>> numbers =
      label_numbers(row.label, settings_.label_form, &problem);
  if (!numbers) {
    event->reason = "the label is none of this training";
    event->detail = std::move(problem);
    return false;
  }
  Pieces pieces;
  if (auto* tokens = std::get_if<TokenRow>(&row.text)) {
    if (!check_vocabulary(*tokens, event)) return false;
  }
  try {
    pieces.ids = ids_of_text(row, settings_.tokenizer.get(), settings_.chat_encoder.get());
  } catch (const DataError& error) {
    event->reason = "the chat template cannot render it";
    event->detail = error.what();
    return false;
  }
  if (pieces.ids.empty()) {
    event->reason = "empty question";
    return false;
  }
  if (!cut(&pieces, event)) return false;
  std::vector<int32_t> bits;
  for (const float number : *numbers) bits.push_back(std::bit_cast<int32_t>(number));
  ++batch->target_tokens;
  batch->append(0, pieces.ids);
  batch->append(1, bits);
  return true;
}

std::vector<int32_t> RowEncoder::ids_of_pair(const LabelledRow& pair,
                                             const text::ChatEncoder* encoder) const {
  // What is cut is the document, and not the words of the template around it.
  const int64_t most = settings_.truncation == Truncation::kDelete ? 0 : settings_.max_length;
  return text::pair_ids(std::get<text::Conversation>(pair.text), *settings_.tokenizer, encoder,
                        most);
}

/// The tokens of one text, cut. False: the row is to be dropped.
bool RowEncoder::encode_text_of_group(const LabelledRow& text, Pieces* pieces,
                                      RowEvent* event) const {
  const GroupForm& form = settings_.group_form;
  const text::ChatEncoder* encoder = form.without_template ? nullptr : settings_.chat_encoder.get();
  const auto* tokens = std::get_if<TokenRow>(&text.text);
  if (tokens && !check_vocabulary(*tokens, event)) return false;
  try {
    pieces->ids = form.texts == GroupForm::Texts::kBehindAnchor
                      ? ids_of_pair(text, encoder)
                      : ids_of_embedded_text(text, settings_.tokenizer.get(), encoder);
  } catch (const text::UnrankablePair& error) {
    event->reason = error.reason();
    event->detail = error.what();
    return false;
  } catch (const DataError& error) {
    event->reason = "the chat template cannot render it";
    event->detail = error.what();
    return false;
  }
  if (pieces->ids.empty()) {
    event->reason = "a text without a token";
    return false;
  }
  const std::vector<int32_t> whole = pieces->ids;
  if (!cut(pieces, event)) return false;
  const bool is_cut_plainly = pieces->ids.size() < whole.size() && !encoder && !tokens;
  if (is_cut_plainly)
    pieces->ids = cut_plain_text(text, *settings_.tokenizer, whole, std::ssize(pieces->ids),
                                 settings_.truncation == Truncation::kLeft);
  return true;
}

bool RowEncoder::append_group(GroupRow row, EncodedBatch* batch, RowEvent* event) const {
  const GroupForm& form = settings_.group_form;
  constexpr uint64_t kSeed = 42;  // ms-swift's
  draw_texts(form, mix64(mix64(kSeed, event->file), static_cast<uint64_t>(event->index)), &row);
  const auto texts = texts_of_group(std::move(row), form, &event->reason, &event->detail);
  if (!texts) return false;
  std::vector<int32_t> all;
  std::vector<int64_t> lengths;
  std::vector<GroupMember> members;
  for (const GroupText& text : *texts) {
    Pieces pieces;
    if (!encode_text_of_group(text.text, &pieces, event)) return false;
    all.insert(all.end(), pieces.ids.begin(), pieces.ids.end());
    lengths.push_back(std::ssize(pieces.ids));
    members.push_back(text.member);
  }
  batch->target_tokens += std::ssize(lengths);
  batch->append(0, all);
  batch->append(1, group_record(lengths, members));
  return true;
}

size_t num_sample_streams(const EncodeSettings& settings) {
  switch (settings.sample_kind) {
    case SampleKind::kTokens:
      return settings.media ? 3 : 2;
    case SampleKind::kPairs:
      return 5;
    case SampleKind::kUnpaired:
      return 3;
    case SampleKind::kSteps:
    case SampleKind::kLabelled:
    case SampleKind::kGroups:
      return 2;
    case SampleKind::kPrompts:
      return 2 + settings.additional_keys.size();
  }
  throw InternalError("a kind of samples without streams");
}

std::vector<size_t> id_streams(SampleKind kind) {
  if (kind == SampleKind::kPairs) return {0, 2};
  return {0};
}

std::string describe_first(const EncodeSettings& settings, const EncodedBatch& batch) {
  const text::Tokenizer* tokenizer = settings.tokenizer.get();
  const auto first = [&](size_t stream) {
    return std::span(batch.tokens[stream]).first(static_cast<size_t>(batch.lengths[stream][0]));
  };
  switch (settings.sample_kind) {
    case SampleKind::kTokens: {
      const bool has_media = settings.media && batch.lengths[2][0] > 0;
      return describe_sample(
          tokenizer, first(0), first(1),
          has_media ? read_media_record(first(2), "the first sample") : std::vector<MediaSpan>());
    }
    case SampleKind::kPairs: {
      const float margin = std::bit_cast<float>(first(4)[0]);
      return "[CHOSEN]\n" + describe_sample(tokenizer, first(0), first(1)) + "[REJECTED]\n" +
             describe_sample(tokenizer, first(2), first(3)) +
             (margin == 0 ? "" : fmt::format("[MARGIN] {}\n", margin));
    }
    case SampleKind::kUnpaired:
      return describe_sample(tokenizer, first(0), first(1)) +
             fmt::format("[LIKED]  {}\n", first(2)[0] != 0);
    case SampleKind::kSteps:
      return describe_sample(tokenizer, first(0), first(1));
    case SampleKind::kPrompts:
      return describe_sample(tokenizer, first(0), {}) +
             fmt::format("[COLUMNS] {}\n", read_text_record(first(1), "the first sample"));
    case SampleKind::kLabelled: {
      std::string numbers;
      for (const int32_t bits : first(1)) numbers += fmt::format(" {}", std::bit_cast<float>(bits));
      return describe_sample(tokenizer, first(0), {}) + fmt::format("[LABEL] {}\n", numbers);
    }
    case SampleKind::kGroups:
      return described_group(tokenizer, first(0), first(1));
  }
  throw InternalError("a kind of samples without a description");
}

}  // namespace danlu::data
