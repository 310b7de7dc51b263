#include "data/preprocess_encode.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/nearest_name.h"
#include "data/answer_cut.h"
#include "data/media_record.h"
#include "data/readers/row_json.h"
#include "text/media.h"

namespace danlu::data {

void EncodedBatch::append(size_t stream, std::span<const int32_t> sample) {
  tokens[stream].insert(tokens[stream].end(), sample.begin(), sample.end());
  lengths[stream].push_back(static_cast<int32_t>(sample.size()));
}

int64_t count_targets(std::span<const int32_t> labels) {
  if (labels.empty()) return 0;
  return std::count_if(labels.begin() + 1, labels.end(),
                       [](int32_t label) { return label != kIgnoreLabel; });
}

Truncation truncation_from_name(const std::string& name) {
  static const std::vector<std::string> kNames{"delete", "left", "right", "split", "shares"};
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Truncation>(i);
  }
  if (name == "truncation_left") return Truncation::kLeft;  // ms-swift 2.x
  const auto near = nearest_name(name, kNames);
  throw UsageError(
      tr("[truncation] must be delete, left, right, split or shares, got \"{}\"", name),
      near ? tr("did you mean {}?", *near) : std::string{});
}

RowResult read_row(const RowHandler& handler, const Dataset& dataset, const RawRow& row,
                   ColumnCounts* unread) {
  if (!row.is_json) return handler.read_text(row.text);
  const Json value = parse_row(dataset, row);
  count_unread_columns(handler, value, unread);
  try {
    return handler.read(value);
  } catch (const DataError& error) {
    throw DataError(tr("{}: {}", row_place(dataset, row.file, row.index), error.what()),
                    error.hint());
  }
}

namespace {

/// A conversation without a template is the text of its question and answer; as in ms-swift's pt,
/// which leaves system messages out. False: it has no such text, and *event says why.
bool write_plainly(Row* row, RowEvent* event) {
  const auto* conversation = std::get_if<text::Conversation>(row);
  if (!conversation) return true;
  std::string all;
  int64_t answers = 0;
  for (const text::Message& message : conversation->messages) {
    if (message.role == "system") continue;
    if (!message.media.empty() || message.extra.contains("tool_calls") || message.role == "tool") {
      event->reason = "pictures or calls, which plain texts have not";
      return false;
    }
    if (message.role == "assistant") ++answers;
    all += message.content;
  }
  if (answers > 1) {
    event->reason = "several rounds, which plain texts have not";
    return false;
  }
  *row = TextRow{{std::move(all)}};
  return true;
}

}  // namespace

RowEncoder::RowEncoder(EncodeSettings settings, const RowHandler& handler)
    : settings_(std::move(settings)), handler_(handler) {
  const RowFormat format = handler.format();
  if (handler.kind() != settings_.sample_kind) {
    throw UsageError(
        tr("[dataset] {}: the rows are {}, and {} are needed here", handler.description(),
           sample_kind_description(handler.kind()), sample_kind_description(settings_.sample_kind)),
        hint_for_kind(handler.kind()));
  }
  if (settings_.kind == EncodedKind::kTexts) {
    if (format != RowFormat::kText) {
      throw UsageError(tr("[dataset] rows of layout {} are not plain text", handler.description()));
    }
    num_streams_ = handler.text_keys().size();
  } else if (format == RowFormat::kText && handler.text_keys().size() != 1) {
    throw UsageError(tr("[json_keys] several text columns make several data sets; name one"));
  }
  if (settings_.kind == EncodedKind::kSamples) num_streams_ = num_sample_streams(settings_);
  if (format != RowFormat::kTokens && !settings_.tokenizer) {
    throw UsageError(
        tr("[tokenizer] rows of text need a tokenizer: --tokenizer-name-or-path or --model"),
        tr("the model's directory holds none; name one: --tokenizer DIR"));
  }
  const bool is_group = settings_.sample_kind == SampleKind::kGroups;
  if ((handler.needs_template() || is_group) && !settings_.chat_encoder &&
      !settings_.label_form.without_template && !settings_.group_form.without_template) {
    throw ModelError(
        tr("[template] rows of layout {} need a chat template, and none comes with the model",
           handler.description()),
        tr("name one with --template: {}", fmt::join(text::ChatEncoder::names({}), ", ")));
  }
  if (format == RowFormat::kSteps) prepare_steps();
  if (!settings_.additional_keys.empty() && !settings_.tokenizer)
    throw UsageError(tr("[dataset_additional_keys] need a tokenizer: --tokenizer-name-or-path"));
  const bool needs_eod = settings_.append_eod ||
                         (settings_.append_eod_text && settings_.kind == EncodedKind::kSamples);
  if (needs_eod && settings_.tokenizer) {
    const auto eos = settings_.tokenizer->eos_id();
    if (!eos && settings_.append_eod) {
      throw ModelError(tr("[append_eod] the tokenizer names no end-of-text token (eos_token)"));
    }
    eod_ = eos.value_or(-1);
  }
}

void RowEncoder::encode(const Dataset& dataset, const RawRow& row, EncodedBatch* batch) const {
  batch->tokens.resize(num_streams_);
  batch->lengths.resize(num_streams_);
  ++batch->rows;
  RowEvent event{true, row.file, row.index, "", ""};
  RowResult result = read_row(handler_, dataset, row, &batch->unread);
  bool kept = false;
  if (auto* problem = std::get_if<RowProblem>(&result)) {
    event.reason = std::move(problem->reason);
    event.detail = std::move(problem->detail);
  } else if (settings_.kind == EncodedKind::kTexts) {
    kept = append_texts(std::get<TextRow>(std::get<Row>(result)), batch, &event);
  } else {
    kept = append_row(std::move(std::get<Row>(result)), dataset, batch, &event);
  }
  if (kept) ++batch->rows_kept;
  event.dropped = !kept;
  if (!event.reason.empty()) batch->events.push_back(std::move(event));
}

bool RowEncoder::append_row(Row row, const Dataset& dataset, EncodedBatch* batch,
                            RowEvent* event) const {
  if (auto* pair = std::get_if<PairRow>(&row))
    return append_pair(std::move(*pair), dataset, batch, event);
  if (auto* unpaired = std::get_if<UnpairedRow>(&row))
    return append_unpaired(std::move(*unpaired), dataset, batch, event);
  if (auto* steps = std::get_if<StepsRow>(&row)) return append_steps(*steps, batch, event);
  if (auto* prompt = std::get_if<PromptRow>(&row))
    return append_prompt(std::move(*prompt), batch, event);
  if (auto* labelled = std::get_if<LabelledRow>(&row))
    return append_labelled(std::move(*labelled), batch, event);
  if (auto* group = std::get_if<GroupRow>(&row))
    return append_group(std::move(*group), batch, event);
  return append_sample(std::move(row), dataset, batch, event);
}

bool RowEncoder::append_texts(const TextRow& row, EncodedBatch* batch, RowEvent* event) const {
  std::vector<std::vector<int32_t>> ids(num_streams_);
  for (size_t stream = 0; stream < num_streams_; ++stream) {
    const std::string& text = row.texts[stream];
    // An empty column adds no document to its stream, as Megatron does.
    if (text.empty()) continue;
    settings_.tokenizer->encode_append(text, true, ids[stream]);
    if (settings_.append_eod) ids[stream].push_back(eod_);
    Pieces pieces{std::move(ids[stream]), {}, {}};
    if (!cut(&pieces, event)) return false;
    ids[stream] = std::move(pieces.ids);
  }
  for (size_t stream = 0; stream < num_streams_; ++stream) {
    if (!ids[stream].empty()) batch->append(stream, ids[stream]);
  }
  return true;
}

bool RowEncoder::append_sample(Row row, const Dataset& dataset, EncodedBatch* batch,
                               RowEvent* event) const {
  Pieces pieces;
  if (settings_.label_form.without_template && !write_plainly(&row, event)) return false;
  if (auto* text_row = std::get_if<TextRow>(&row)) {
    settings_.tokenizer->encode_append(text_row->texts[0], true, pieces.ids);
    if (eod_ >= 0) pieces.ids.push_back(eod_);
    if (!has_no_placeholder(pieces.ids, event)) return false;
    if (settings_.truncation == Truncation::kSplit) {
      if (append_pieces(pieces.ids, batch)) return true;
      event->reason = "too short: nothing to predict";
      return false;
    }
    pieces.labels = pieces.ids;
  } else if (auto* tokens = std::get_if<TokenRow>(&row)) {
    if (!check_vocabulary(*tokens, event) || !has_no_placeholder(tokens->ids, event)) return false;
    pieces.ids = std::move(tokens->ids);
    pieces.labels = std::move(tokens->labels);
  } else {
    if (!encode_conversation(std::get<text::Conversation>(row), dataset, &pieces, event))
      return false;
    if (settings_.append_eod) {
      pieces.ids.push_back(eod_);
      pieces.labels.push_back(eod_);
      if (!pieces.answers.empty()) pieces.answers.push_back(eod_);
    }
  }
  int64_t targets = count_targets(pieces.labels);
  if (targets == 0) {
    event->reason = "no token carries loss (all labels masked)";
    return false;
  }
  const size_t whole_length = pieces.labels.size();
  if (!cut(&pieces, event)) return false;
  if (pieces.labels.size() != whole_length) targets = count_targets(pieces.labels);
  if (targets == 0) {
    event->reason = "no token carries loss after truncation";
    return false;
  }
  batch->target_tokens += targets;
  batch->append(0, pieces.ids);
  batch->append(1, pieces.labels);
  if (num_streams_ < 3) return true;
  const std::vector<int32_t> record = media_record(pieces.media);
  batch->append(2, record);
  batch->visual.add(pieces.media);
  return true;
}

bool RowEncoder::encode_conversation(const text::Conversation& conversation, const Dataset& dataset,
                                     Pieces* pieces, RowEvent* event) const {
  RowProblem problem;
  const text::Conversation* written = &conversation;
  text::Conversation with_media;
  if (settings_.media) {
    if (const auto pad = text::placeholder_written_in(conversation); !pad.empty()) {
      event->reason = "the text holds a token that stands for pictures";
      event->detail = pad;
      return false;
    }
    const fs::path& file = dataset.files[event->file].path;
    const std::string name = fmt::format("{}: row {}", file.filename().string(), event->index + 1);
    if (!settings_.media->measure(conversation, file.parent_path(), name, &pieces->media,
                                  &problem)) {
      event->reason = std::move(problem.reason);
      event->detail = std::move(problem.detail);
      event->media_files = std::move(problem.media_files);
      return false;
    }
    if (!pieces->media.empty() || conversation.grounding) {
      auto made = settings_.media->written(conversation, pieces->media, &problem);
      if (!made) {
        event->reason = std::move(problem.reason);
        event->detail = std::move(problem.detail);
        return false;
      }
      with_media = std::move(*made);
      written = &with_media;
    }
  }
  text::EncodedConversation encoded;
  try {
    encoded = settings_.chat_encoder->encode(*written);
  } catch (const DataError& error) {
    event->reason = "the chat template cannot render it";
    event->detail = error.what();
    return false;
  }
  if (settings_.media && !settings_.media->expand(&encoded, &pieces->media, &problem)) {
    event->reason = std::move(problem.reason);
    event->detail = std::move(problem.detail);
    return false;
  }
  pieces->ids = std::move(encoded.ids);
  pieces->labels = std::move(encoded.labels);
  return find_answers(*written, event, pieces);
}

/// Finds where the answers of a conversation that is cut are, whatever is learnt of them.
bool RowEncoder::find_answers(const text::Conversation& conversation, RowEvent* event,
                              Pieces* pieces) const {
  const int64_t size = std::ssize(pieces->ids) + (settings_.append_eod ? 1 : 0);
  const bool is_cut = settings_.truncation == Truncation::kShares && settings_.max_length > 0 &&
                      size > settings_.max_length && pieces->media.empty();
  if (!is_cut) return true;
  try {
    pieces->answers = settings_.chat_encoder->encode_all_answers(conversation).labels;
    return true;
  } catch (const DataError& error) {
    event->reason = "the chat template cannot render it";
    event->detail = error.what();
    return false;
  }
}

/// Whether a row without pictures is free of their placeholders.
bool RowEncoder::has_no_placeholder(const std::vector<int32_t>& ids, RowEvent* event) const {
  if (!settings_.media) return true;
  const text::MediaTokens& tokens = settings_.media->tokens();
  if (std::none_of(ids.begin(), ids.end(), [&](int32_t id) { return tokens.is_pad(id); }))
    return true;
  event->reason = "the text holds a token that stands for pictures";
  return false;
}

/// False: the row is to be dropped. Labels may be absent. A picture is never cut.
bool RowEncoder::cut(Pieces* pieces, RowEvent* event) const {
  const int64_t size = std::ssize(pieces->ids);
  if (settings_.max_length <= 0 || size <= settings_.max_length) return true;
  event->reason = fmt::format("longer than {} tokens", settings_.max_length);
  event->detail = fmt::format("{} tokens", size);
  if (settings_.truncation == Truncation::kDelete || settings_.truncation == Truncation::kSplit) {
    return false;
  }
  if (settings_.truncation == Truncation::kShares && pieces->media.empty() &&
      settings_.sample_kind == SampleKind::kTokens && !pieces->labels.empty()) {
    const std::vector<int32_t> answers =
        pieces->answers.empty() ? pieces->labels : std::move(pieces->answers);
    cut_turns(settings_.max_length, answers, &pieces->ids, &pieces->labels);
    return true;
  }
  const bool keeps_end = settings_.truncation == Truncation::kLeft;
  if (keeps_end && !pieces->media.empty()) {
    // What follows may be about the pictures that would go.
    event->reason += ", and a cut at its front would take pictures";
    return false;
  }
  const int64_t kept = uncut_length(pieces->media, settings_.max_length);
  keep_spans_before(&pieces->media, kept);
  for (std::vector<int32_t>* values : {&pieces->ids, &pieces->labels}) {
    if (values->empty()) continue;
    if (keeps_end) {
      values->erase(values->begin(), values->end() - static_cast<ptrdiff_t>(kept));
    } else {
      values->resize(static_cast<size_t>(kept));
    }
  }
  return true;
}

bool RowEncoder::check_vocabulary(const TokenRow& row, RowEvent* event) const {
  if (!settings_.tokenizer) return true;
  const auto size = static_cast<int32_t>(settings_.tokenizer->size());
  const auto outside =
      std::find_if(row.ids.begin(), row.ids.end(), [&](int32_t id) { return id >= size; });
  if (outside == row.ids.end()) return true;
  event->reason = "a token id is outside the vocabulary";
  event->detail = fmt::format("{} >= {}", *outside, size);
  return false;
}

bool RowEncoder::append_pieces(const std::vector<int32_t>& ids, EncodedBatch* batch) const {
  const size_t limit = settings_.max_length > 0 ? static_cast<size_t>(settings_.max_length)
                                                : std::max<size_t>(1, ids.size());
  for (size_t begin = 0; begin < ids.size(); begin += limit) {
    const size_t count = std::min(limit, ids.size() - begin);
    // A single token has nothing to predict.
    if (count < 2) break;
    batch->append(0, {ids.data() + begin, count});
    batch->append(1, {ids.data() + begin, count});
    if (num_streams_ > 2) batch->append(2, {});
    batch->target_tokens += static_cast<int64_t>(count) - 1;
  }
  return ids.size() >= 2;
}

}  // namespace danlu::data
