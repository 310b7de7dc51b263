// data/groups.h: several texts of one row: which segments of samples and batches belong together,
// and what each is to the others.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/batch.h"
#include "data/formats/row.h"
#include "data/preprocess_encode.h"
#include "text/conversation.h"
#include "text/tokenizer.h"

namespace danlu::data {

/// What a segment is in its group. Embeddings compare an anchor with others; where a text is judged
/// together with what it answers (GroupForm::Texts::kBehindAnchor), no segment is the anchor.
enum class GroupRole { kAnchor = 0, kPositive = 1, kNegative = 2 };

/// A segment of a group. label: the row's for a positive (1 where it has none), 0 for others.
struct GroupMember {
  GroupRole role = GroupRole::kAnchor;
  float label = 0;
  bool begins_group = false;
};

/// How many of Sample::segment_labels a segment of a group has.
inline constexpr size_t kGroupNumbers = 3;
/// The member as such numbers: whether it begins a group, its role, its label.
std::vector<float> numbers_of_member(const GroupMember& member);

/// Segments of a batch that were one row, in order: the anchor, if there is one, positives,
/// negatives.
struct Group {
  int64_t anchor = -1;  ///< -1: none
  std::vector<int64_t> positives, negatives;
  float label = 1;  ///< of the first positive
};

/// The groups of a whole batch, of samples of SampleKind::kGroups, packed or not. Errors: DataError
/// where segments have no such numbers.
std::vector<Group> groups_of(const Batch& batch);

/// Leaves out what is more than form.most_positives and form.most_negatives, drawn by `key`.
void draw_texts(const GroupForm& form, uint64_t key, GroupRow* row);

/// A text of a row on its way to be a segment.
struct GroupText {
  GroupMember member;
  LabelledRow text;  ///< without a label
};

/// The segments of a row as GroupForm wants them. nullopt: the row cannot be used, and *reason
/// (one that rows are counted by) and *detail say why.
std::optional<std::vector<GroupText>> texts_of_group(GroupRow row, const GroupForm& form,
                                                     std::string* reason, std::string* detail);

/// The tokens of a text that is embedded by itself. With a template: as ids_of_text. Without
/// (encoder null): what the system says, a space, and what the other messages say, with the
/// tokenizer's special tokens, as ms-swift's template of Qwen3-Embedding and sentence-transformers
/// have it. Errors: DataError if the template cannot render it.
std::vector<int32_t> ids_of_embedded_text(const LabelledRow& row, const text::Tokenizer* tokenizer,
                                          const text::ChatEncoder* encoder);

/// What is left of `whole`, the ids of a text that is embedded without a template, in `most`: its
/// beginning, or with keeps_end its end, between the tokenizer's special tokens. These stay, as in
/// sentence-transformers: the vector is the hidden state of the last one. REQUIRES: 1 <= most <
/// whole.size(); the row has a conversation.
std::vector<int32_t> cut_plain_text(const LabelledRow& row, const text::Tokenizer& tokenizer,
                                    std::span<const int32_t> whole, int64_t most, bool keeps_end);

/// A sample's stream that says what its segments are: of each its length, its role and the bits of
/// its label.
std::vector<int32_t> group_record(std::span<const int64_t> lengths,
                                  std::span<const GroupMember> members);
/// The sample of such a record and the tokens of its segments, one after the other.
/// labels_are_targets: the last token of each segment. Errors: DataError that begins with `what`.
Sample sample_of_group(std::vector<int32_t> ids, std::span<const int32_t> record,
                       const std::string& what);

}  // namespace danlu::data
