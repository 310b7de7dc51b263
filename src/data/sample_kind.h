// data/sample_kind.h: what one sample is for: which objective it can be trained with.
#pragma once
#include <string>

namespace danlu::data {

enum class SampleKind {
  /// One sequence; every target is learnt.
  kTokens,
  /// Two segments, prompt and chosen answer first, prompt and rejected answer second. Labels are
  /// kIgnoreLabel on the prompts. segment_values: {margin or 0, 0}.
  kPairs,
  /// An answer that is liked or not. Two segments: the row's prompt and answer, and its prompt with
  /// the answer of the row before (of the first row: of the last), which KTO's estimate of the
  /// divergence needs. segment_values: {1 liked or 0, 0}.
  kUnpaired,
  /// One segment. labels_are_targets: at the token after each step the reward token that it should
  /// have, kIgnoreLabel elsewhere.
  kSteps,
  /// One segment, the prompt alone; all labels are kIgnoreLabel. SampleSource::columns has the
  /// row's other columns.
  kPrompts,
  /// One segment, a text that is sorted. labels_are_targets: at its last token, where a classifier
  /// is read, that token; kIgnoreLabel elsewhere. segment_labels: LabelForm's numbers.
  kLabelled,
  /// A segment for each text of a row: see data/groups.h. labels_are_targets: as of kLabelled.
  /// segment_labels: GroupMember's numbers.
  kGroups,
};

/// "tokens", "pairs", "unpaired", "steps", "prompts", "labelled", "groups": in files and caches.
const char* sample_kind_name(SampleKind kind);
/// The other way. Errors: DataError.
SampleKind sample_kind_from_name(const std::string& name);
/// What such rows are, for people: "preference pairs".
std::string sample_kind_description(SampleKind kind);
/// "danlu rlhf --rlhf_type dpo (or danlu posttrain --stage dpo) trains on them".
std::string hint_for_kind(SampleKind kind);

}  // namespace danlu::data
