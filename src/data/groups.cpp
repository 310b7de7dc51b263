#include "data/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/rng.h"
#include "data/formats/columns.h"
#include "data/labelled_text.h"

namespace danlu::data {
namespace {

/// nullopt: the label is none of this training.
std::optional<float> number_of_label(const Json& given, GroupForm::Label kind) {
  const bool is_one = kind == GroupForm::Label::kIfGiven && given.is_null();
  if (is_one || kind == GroupForm::Label::kNone) return 1.0F;
  const Json label = parse_if_text(given).value_or(given);
  if (label.is_boolean()) return label.get<bool>() ? 1.0F : 0.0F;
  if (!label.is_number()) return std::nullopt;
  const auto number = label.get<float>();
  const bool is_binary = number == 0.0F || number == 1.0F;
  if (!std::isfinite(number) || (kind == GroupForm::Label::kBinary && !is_binary))
    return std::nullopt;
  return number;
}

/// Why a row has not the texts that `form` wants; "": it has.
std::string fault_of_counts(const GroupRow& row, const GroupForm& form) {
  const int64_t positives = std::ssize(row.positives);
  if (positives == 0 && (form.needs_positives || row.negatives.empty()))
    return "the row has no positive text";
  if (form.max_positives > 0 && positives > form.max_positives)
    return "the row has more positive texts than this training takes";
  if (form.needs_negatives && row.negatives.empty()) return "the row has no negative text";
  if (!form.takes_negatives && !row.negatives.empty())
    return "the row has negative texts, which this loss does not take";
  return "";
}

/// A text that stands for itself is asked, whoever its row says it is by.
text::Conversation as_question(text::Conversation conversation) {
  const auto& messages = conversation.messages;
  const bool has_system = !messages.empty() && messages.front().role == "system";
  if (messages.size() == (has_system ? 2 : 1)) conversation.messages.back().role = "user";
  return conversation;
}

/// The answer behind the anchor's messages. A system message of its own wins over the anchor's.
text::Conversation behind_anchor(const text::Conversation& anchor, text::Conversation answer) {
  text::Conversation whole = anchor;
  auto& messages = whole.messages;
  const auto is_system = [](const text::Conversation& conversation) {
    return !conversation.messages.empty() && conversation.messages.front().role == "system";
  };
  if (is_system(answer)) {
    if (is_system(anchor)) messages.erase(messages.begin());
    messages.insert(messages.begin(), std::move(answer.messages.front()));
    answer.messages.erase(answer.messages.begin());
  }
  if (answer.messages.size() == 1) answer.messages.front().role = "assistant";
  for (text::Message& message : answer.messages) messages.push_back(std::move(message));
  return whole;
}

text::Conversation conversation_of(LabelledRow text) {
  if (auto* conversation = std::get_if<text::Conversation>(&text.text))
    return std::move(*conversation);
  text::Conversation asked;
  if (auto* plain = std::get_if<TextRow>(&text.text))
    asked.messages.push_back({"user", std::move(plain->texts[0])});
  return asked;
}

std::string text_with_system(const text::Conversation& conversation) {
  std::string all;
  for (const text::Message& message : conversation.messages) {
    all += message.content;
    if (message.role == "system") all += " ";
  }
  return all;
}

}  // namespace

std::vector<float> numbers_of_member(const GroupMember& member) {
  return {member.begins_group ? 1.0F : 0.0F, static_cast<float>(member.role), member.label};
}

std::vector<Group> groups_of(const Batch& batch) {
  const size_t segments = batch.segment_starts.empty() ? 0 : batch.segment_starts.size() - 1;
  if (batch.segment_labels.size() != segments * kGroupNumbers) {
    throw DataError(tr("[train] samples that are no groups of texts"),
                    tr("rows have \"messages\" beside \"positive_messages\""));
  }
  std::vector<Group> groups;
  for (size_t s = 0; s < segments; ++s) {
    const float* numbers = &batch.segment_labels[s * kGroupNumbers];
    if (numbers[0] != 0 || groups.empty()) groups.emplace_back();
    Group& group = groups.back();
    const auto segment = static_cast<int64_t>(s);
    switch (static_cast<GroupRole>(static_cast<int>(numbers[1]))) {
      case GroupRole::kAnchor:
        group.anchor = segment;
        break;
      case GroupRole::kPositive:
        if (group.positives.empty()) group.label = numbers[2];
        group.positives.push_back(segment);
        break;
      case GroupRole::kNegative:
        group.negatives.push_back(segment);
        break;
    }
  }
  return groups;
}

void draw_texts(const GroupForm& form, uint64_t key, GroupRow* row) {
  constexpr uint64_t kPositives = 1, kNegatives = 2;
  const auto draw = [&](std::vector<text::Conversation>& texts, std::optional<int64_t> most,
                        uint64_t kind) {
    const size_t count = texts.size();
    if (!most || std::ssize(texts) <= *most) return;
    // The first places of a shuffle, in the row's order.
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), size_t{0});
    const auto kept = static_cast<size_t>(*most);
    for (size_t i = 0; i < kept; ++i)
      std::swap(order[i], order[i + mix64(mix64(key, kind), i) % (count - i)]);
    std::sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept));
    std::vector<text::Conversation> drawn;
    for (size_t i = 0; i < kept; ++i) drawn.push_back(std::move(texts[order[i]]));
    texts = std::move(drawn);
  };
  draw(row->positives, form.most_positives, kPositives);
  draw(row->negatives, form.most_negatives, kNegatives);
}

std::optional<std::vector<GroupText>> texts_of_group(GroupRow row, const GroupForm& form,
                                                     std::string* reason, std::string* detail) {
  *reason = fault_of_counts(row, form);
  if (!reason->empty()) {
    *detail = fmt::format("{} positive, {} negative", row.positives.size(), row.negatives.size());
    return std::nullopt;
  }
  if (form.texts == GroupForm::Texts::kBehindAnchor &&
      std::holds_alternative<TokenRow>(row.anchor.text)) {
    *reason = "a query of token ids cannot be put before a document";
    *detail = "\"input_ids\"";
    return std::nullopt;
  }
  const std::optional<float> label = number_of_label(row.label, form.label);
  if (!label) {
    *reason = "the label is none of this training";
    *detail = fmt::format("got {}", row.label.dump(-1, ' ', false, Json::error_handler_t::replace));
    return std::nullopt;
  }
  std::vector<GroupText> texts;
  const auto add = [&](GroupRole role, float number, LabelledRow text) {
    texts.push_back({{role, number, texts.empty()}, std::move(text)});
  };
  text::Conversation anchor;
  const bool is_apart = form.texts == GroupForm::Texts::kApart;
  if (is_apart) {
    add(GroupRole::kAnchor, 0, std::move(row.anchor));
  } else {
    anchor = conversation_of(std::move(row.anchor));
  }
  const auto add_other = [&](GroupRole role, float number, text::Conversation other) {
    add(role, number,
        {is_apart ? as_question(std::move(other)) : behind_anchor(anchor, std::move(other)),
         nullptr});
  };
  for (text::Conversation& other : row.positives)
    add_other(GroupRole::kPositive, *label, std::move(other));
  for (text::Conversation& other : row.negatives)
    add_other(GroupRole::kNegative, 0, std::move(other));
  return texts;
}

std::vector<int32_t> ids_of_embedded_text(const LabelledRow& row, const text::Tokenizer* tokenizer,
                                          const text::ChatEncoder* encoder) {
  const auto* conversation = std::get_if<text::Conversation>(&row.text);
  if (!conversation || encoder) return ids_of_text(row, tokenizer, encoder);
  std::vector<int32_t> ids;
  tokenizer->encode_append(text_with_system(*conversation), true, ids);
  return ids;
}

std::vector<int32_t> cut_plain_text(const LabelledRow& row, const text::Tokenizer& tokenizer,
                                    std::span<const int32_t> whole, int64_t most, bool keeps_end) {
  std::vector<int32_t> bare;
  tokenizer.encode_append(text_with_system(std::get<text::Conversation>(row.text)), false, bare);
  const auto found = std::search(whole.begin(), whole.end(), bare.begin(), bare.end());
  const int64_t kept = most - (std::ssize(whole) - std::ssize(bare));
  const bool fits_around = found != whole.end() && kept >= 1;
  // What stands around the text takes all of the room: no rule is better than the plain one.
  if (!fits_around) {
    const auto size = static_cast<size_t>(most);
    const auto some = keeps_end ? whole.last(size) : whole.first(size);
    return {some.begin(), some.end()};
  }
  std::vector<int32_t> ids(whole.begin(), found);
  const auto inside = std::span(bare);
  const auto some =
      keeps_end ? inside.last(static_cast<size_t>(kept)) : inside.first(static_cast<size_t>(kept));
  ids.insert(ids.end(), some.begin(), some.end());
  ids.insert(ids.end(), found + std::ssize(bare), whole.end());
  return ids;
}

std::vector<int32_t> group_record(std::span<const int64_t> lengths,
                                  std::span<const GroupMember> members) {
  std::vector<int32_t> record;
  for (size_t i = 0; i < lengths.size(); ++i) {
    record.push_back(static_cast<int32_t>(lengths[i]));
    record.push_back(static_cast<int32_t>(members[i].role));
    record.push_back(std::bit_cast<int32_t>(members[i].label));
  }
  return record;
}

Sample sample_of_group(std::vector<int32_t> ids, std::span<const int32_t> record,
                       const std::string& what) {
  Sample sample;
  sample.ids = std::move(ids);
  sample.labels.assign(sample.ids.size(), kIgnoreLabel);
  sample.labels_are_targets = true;
  sample.segments.clear();
  int64_t begin = 0;
  bool is_sound = !record.empty() && record.size() % 3 == 0;
  for (size_t i = 0; is_sound && i < record.size(); i += 3) {
    is_sound = record[i] > 0 && begin + record[i] <= std::ssize(sample.ids) && record[i + 1] >= 0 &&
               record[i + 1] <= static_cast<int32_t>(GroupRole::kNegative);
    if (!is_sound) break;
    sample.segments.push_back(static_cast<int32_t>(begin));
    begin += record[i];
    sample.labels[static_cast<size_t>(begin) - 1] = sample.ids[static_cast<size_t>(begin) - 1];
    for (const float number :
         numbers_of_member({static_cast<GroupRole>(record[i + 1]),
                            std::bit_cast<float>(record[i + 2]), /*begins_group=*/i == 0}))
      sample.segment_labels.push_back(number);
  }
  if (is_sound && begin == std::ssize(sample.ids)) return sample;
  throw DataError(
      tr("{}: the lengths of its texts do not fit its {} tokens", what, sample.ids.size()));
}

}  // namespace danlu::data
